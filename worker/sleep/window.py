"""The window of a pass: the newest memories that were never looked at, or not for long."""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.memory.item import INSIGHT, Item
from worker.memory.store import AgentMemory
from worker.sleep.seats import Seat, expired, has_expired, seats

__all__ = ["Window", "expired", "read", "seats"]

#: Items read at once, and at most, until the window is full: a flood of equal or expired memories
#: must not hide the older ones behind it.
SCAN_PAGE = 1000
SCAN_MAX = 20_000
#: Earlier insights a new one is compared with.
KNOWN_INSIGHTS = 200


@dataclass(frozen=True, slots=True)
class Window:
    """What a pass begins with: its seats, and the texts of the newest insights there are."""

    seats: tuple[Seat, ...]
    insights: frozenset[str]


def read(memory: AgentMemory, size: int, *, now: float, before: float | None = None) -> Window:
    """The newest `size` different texts that wait for a pass, newest first, expired ones left out.

    With `before` (Unix seconds) also what was last consolidated earlier than that. Two round trips,
    insights included, where the newest `SCAN_PAGE` items fill the window; else it reads on, up to
    `SCAN_MAX` items.
    """
    keys = memory.keys
    place = keys.unconsolidated if before is None else keys.items
    pipe = memory.client.pipeline(transaction=False)
    pipe.zrevrange(place, 0, SCAN_PAGE - 1)
    pipe.zrevrange(keys.insights, 0, KNOWN_INSIGHTS - 1)
    page, known = pipe.execute()
    found = memory.items({int(member) for member in (*page, *known)})
    insights = frozenset(item.text for item in found if _is_known(item, now))
    waiting = _newest_first(found, before)
    taken = seats(waiting, size, now=now)
    start = SCAN_PAGE
    while len(taken) < size and len(page) == SCAN_PAGE and start < SCAN_MAX:
        page = memory.client.zrevrange(place, start, start + SCAN_PAGE - 1)
        waiting += _newest_first(memory.items(map(int, page)), before)
        taken = seats(waiting, size, now=now)
        start += SCAN_PAGE
    return Window(taken, insights)


def _newest_first(items: Iterable[Item], before: float | None) -> list[Item]:
    waiting = (item for item in items if _waits(item, before))
    return sorted(waiting, key=lambda item: (item.ts, item.id), reverse=True)


def _waits(item: Item, before: float | None) -> bool:
    if item.last_consolidated_at is None:
        return True
    return before is not None and item.last_consolidated_at < before


def _is_known(item: Item, now: float) -> bool:
    return item.kind == INSIGHT and not has_expired(item, now)
