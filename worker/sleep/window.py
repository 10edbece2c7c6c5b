"""The window of a pass: the newest memories that were never looked at, or not for long."""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.memory.item import INSIGHT, Item
from worker.memory.store import AgentMemory
from worker.sleep.model import WindowItem

#: Newest items read while the window fills and its copies are looked for.
SCAN_MAX = 1000


@dataclass(frozen=True, slots=True)
class Seat:
    """One place in the window: a memory, and the copies of its text that go with it."""

    item: Item
    copies: tuple[Item, ...] = ()

    def shown(self) -> WindowItem:
        """The memory as a model sees it."""
        item = self.item
        return WindowItem(item.id, item.text, item.kind, item.ts, item.entities, item.topics)


def read(
    memory: AgentMemory, size: int, *, now: float, before: float | None = None
) -> tuple[Seat, ...]:
    """The newest `size` different texts that wait for a pass, newest first, expired ones left out.

    With `before` (Unix seconds) also what was last consolidated earlier than that. Looks at the
    newest `SCAN_MAX` items, also for copies of those texts.
    """
    keys = memory.keys
    place = keys.unconsolidated if before is None else keys.items
    members = memory.client.zrevrange(place, 0, SCAN_MAX - 1)
    found = sorted(
        memory.items(map(int, members)), key=lambda item: (item.ts, item.id), reverse=True
    )
    return seats((item for item in found if _waits(item, before)), size, now=now)


def seats(waiting: Iterable[Item], size: int, *, now: float) -> tuple[Seat, ...]:
    """Seat items, given newest first: identical texts share a seat, the newest speaks for them."""
    seated: dict[str, list[Item]] = {}
    for item in waiting:
        if item.kind == INSIGHT or _expired(item, now):
            continue
        if item.text in seated:
            seated[item.text].append(item)
        elif len(seated) < size:
            seated[item.text] = [item]
    return tuple(Seat(items[0], tuple(items[1:])) for items in seated.values())


def expired(window: Iterable[Seat], now: float) -> bool:
    """Whether any memory of a window has expired by now."""
    return any(_expired(item, now) for seat in window for item in (seat.item, *seat.copies))


def _expired(item: Item, now: float) -> bool:
    return item.expires_at is not None and item.expires_at <= now


def _waits(item: Item, before: float | None) -> bool:
    if item.last_consolidated_at is None:
        return True
    return before is not None and item.last_consolidated_at < before
