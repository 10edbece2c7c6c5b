"""What an agent installs to remember and recall: emit events, ask for memories.

Needs the standard library, and redis-py from the moment a connection is made.

```
memory = Memory("alice")                      # server: REMQ_REDIS_URL
memory.durable("Billing moves to the new region after the audit", kind="decision")
prompt = memory.recall_context("billing region")
```
"""

from producer.client import Memory, Recalled, RecallError, emit, emit_many
from producer.event import Event, EventError

__all__ = ["Event", "EventError", "Memory", "RecallError", "Recalled", "emit", "emit_many"]
