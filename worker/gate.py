"""Whether an agent is idle, asked for the settings at hand."""

import os
from dataclasses import dataclass, field

from worker import connect
from worker.connect import Client
from worker.keys import Keys
from worker.runs import RunRecord
from worker.settings import Settings
from worker.sleep.idle import Idle, IdleGate
from worker.sleep.queues import parse_queues

#: The longest one look at an agent's queue may take.
LOOK_S = 2.0


@dataclass(slots=True)
class Gate:
    """The idle gate of one process; its connections to the agents' queues are made once."""

    client: Client
    settings: Settings
    _gate: IdleGate = field(init=False)

    def __post_init__(self) -> None:
        self._gate = IdleGate(
            parse_queues(self.settings.agent_queues),
            connect=self._open,
            quiet_s=self.settings.quiet_s,
            horizon_s=self.settings.horizon_s,
            rq_prefix=os.environ.get("RQ_KEY_PREFIX", "rq"),
        )

    def look(self, agent: str, record: RunRecord, now: float) -> Idle:
        """Look at the agent's queues, or without any at how long it has been quiet."""
        last_event = self.client.zscore(Keys(self.settings.prefix).agents, agent)
        return self._gate.look(
            agent,
            now=now,
            last_event_at=None if last_event is None else float(last_event),
            last_recall_at=record.last_recall_at or None,
        )

    def _open(self, url: str | None) -> Client:
        """Open a queue's server, RQ's where it names none. A slow one must not hold us up."""
        own = self.settings.queue_url or self.settings.redis_url
        place = url or (own.get_secret_value() if own else "")
        return connect.by_url(place, retries=0, timeout_s=LOOK_S)
