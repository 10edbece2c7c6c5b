"""Who sits in a window: identical texts share a seat, insights and what has expired have none."""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.memory.item import INSIGHT, Item
from worker.sleep.model import WindowItem

#: Copies that go with one window: a pass is one script call, and Lua bounds its arguments.
COPIES_MAX = 800


@dataclass(frozen=True, slots=True)
class Seat:
    """One place in the window: a memory, and the copies of its text that go with it."""

    item: Item
    copies: tuple[Item, ...] = ()

    @property
    def all(self) -> tuple[Item, ...]:
        """The memory and its copies."""
        return (self.item, *self.copies)

    def shown(self) -> WindowItem:
        """The memory as a model sees it."""
        item = self.item
        return WindowItem(item.id, item.text, item.kind, item.ts, item.entities, item.topics)


def seats(waiting: Iterable[Item], size: int, *, now: float) -> tuple[Seat, ...]:
    """Seat items, given newest first: identical texts share a seat, the newest speaks for them.

    At most `COPIES_MAX` copies in all; the others wait for a later pass.
    """
    seated: dict[str, list[Item]] = {}
    copies = 0
    for item in waiting:
        if item.kind == INSIGHT or has_expired(item, now):
            continue
        if item.text not in seated:
            if len(seated) < size:
                seated[item.text] = [item]
        elif copies < COPIES_MAX:
            seated[item.text].append(item)
            copies += 1
    return tuple(Seat(items[0], tuple(items[1:])) for items in seated.values())


def expired(window: Iterable[Seat], now: float) -> bool:
    """Whether any memory of a window has expired by now."""
    return any(has_expired(item, now) for seat in window for item in seat.all)


def has_expired(item: Item, now: float) -> bool:
    """Whether an item's time is over."""
    return item.expires_at is not None and item.expires_at <= now
