"""The window of a pass: the newest memories that were never looked at, or not for long."""

from dataclasses import dataclass

from worker.memory.item import INSIGHT, Item
from worker.memory.store import AgentMemory
from worker.sleep.seats import Seat, expired, has_expired, seats

__all__ = ["Window", "expired", "read", "seats"]

#: Newest items read while the window fills and its copies are looked for.
SCAN_MAX = 1000
#: Earlier insights a new one is compared with.
KNOWN_INSIGHTS = 200


@dataclass(frozen=True, slots=True)
class Window:
    """What a pass begins with: its seats, and the texts of the newest insights there are."""

    seats: tuple[Seat, ...]
    insights: frozenset[str]


def read(memory: AgentMemory, size: int, *, now: float, before: float | None = None) -> Window:
    """The newest `size` different texts that wait for a pass, newest first, expired ones left out.

    With `before` (Unix seconds) also what was last consolidated earlier than that. Looks at the
    newest `SCAN_MAX` items, also for copies of those texts. Two round trips, insights included.
    """
    keys = memory.keys
    pipe = memory.client.pipeline(transaction=False)
    pipe.zrevrange(keys.unconsolidated if before is None else keys.items, 0, SCAN_MAX - 1)
    pipe.zrevrange(keys.insights, 0, KNOWN_INSIGHTS - 1)
    members = {int(member) for page in pipe.execute() for member in page}
    found = sorted(memory.items(members), key=lambda item: (item.ts, item.id), reverse=True)
    return Window(
        seats((item for item in found if _waits(item, before)), size, now=now),
        frozenset(item.text for item in found if _is_known(item, now)),
    )


def _waits(item: Item, before: float | None) -> bool:
    if item.last_consolidated_at is None:
        return True
    return before is not None and item.last_consolidated_at < before


def _is_known(item: Item, now: float) -> bool:
    return item.kind == INSIGHT and not has_expired(item, now)
