"""What tests of memory and passes have in common: remember something, apply a plan."""

import itertools
from collections.abc import Sequence
from typing import Any

from producer import Event
from worker.memory.item import Item
from worker.memory.scripts import run
from worker.memory.store import AgentMemory, Written, written
from worker.runs import Committed, Runs
from worker.settings import Settings
from worker.sleep import window
from worker.sleep.model import Connection, Metadata
from worker.sleep.plan import draw_up
from worker.sleep.report import Report

NOW = 1_800_000_000.0
DAY = 86_400.0
_numbers = itertools.count()


def remember(memory: AgentMemory, text: str, **fields: Any) -> Written:
    """Store one event, a second after the one before unless `ts` says otherwise."""
    number = next(_numbers)
    given = {"event_id": f"test-{number}", "ts": NOW - DAY + number, **fields}
    event = Event(memory.keys.agent, text, **given)
    return written(run(memory.client, memory.write_call([event], memory.reserve(1), NOW)))


def recent_insights(memory: AgentMemory, count: int = 10) -> list[Item]:
    """The newest insights, newest first."""
    ids = memory.client.zrevrange(memory.keys.insights, 0, count - 1)
    return memory.items(int(member) for member in ids)


def started(runs: Runs, agent: str) -> str:
    """Claim and start a run; its token."""
    claim = runs.claim(agent, force=True)
    assert claim.word == "OK"
    assert runs.start(agent, claim.token) == "OK"
    return claim.token


def apply(
    memory: AgentMemory,
    *,
    connections: Sequence[Connection] = (),
    insight: str | None = None,
    metadata: dict[int, Metadata] | None = None,
    rerate: bool = True,
    now: float = NOW,
) -> Committed:
    """Commit a pass over all items, as if a model had found these things."""
    runs = Runs(memory.client, Settings())
    items = [item for item in memory.all_items() if item.kind != "insight"]
    seats = window.seats(reversed(items), 200, now=now)
    plan = draw_up(
        seats, now=now, metadata=metadata or {}, connections=connections, insight=insight
    )
    token = started(runs, memory.keys.agent)
    report = Report(memory.keys.agent, token, now, "test")
    return runs.commit(plan, report, not_before=0, rerate=rerate)
