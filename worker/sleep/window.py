"""The window of a pass: the newest memories that were never looked at."""

from collections.abc import Iterable
from dataclasses import dataclass

from worker.memory.item import INSIGHT, Item
from worker.memory.store import AgentMemory
from worker.sleep.model import WindowItem

#: Waiting items read while the window fills and its copies are looked for.
SCAN_MAX = 1000
PAGE = 100


@dataclass(frozen=True, slots=True)
class Seat:
    """One place in the window: a memory, and the copies of its text that go with it."""

    item: Item
    copies: tuple[Item, ...] = ()

    def shown(self) -> WindowItem:
        """The memory as a model sees it."""
        item = self.item
        return WindowItem(item.id, item.text, item.kind, item.ts, item.entities, item.topics)


def read(memory: AgentMemory, size: int, *, now: float) -> tuple[Seat, ...]:
    """The newest `size` different texts that wait for a pass, newest first, expired ones left out.

    Looks at up to `SCAN_MAX` waiting items for copies of those texts.
    """
    return seats(_waiting(memory), size, now=now)


def seats(waiting: Iterable[Item], size: int, *, now: float) -> tuple[Seat, ...]:
    """Seat items, given newest first: identical texts share a seat, the newest speaks for them."""
    seated: dict[str, list[Item]] = {}
    for item in waiting:
        if item.kind == INSIGHT or (item.expires_at is not None and item.expires_at <= now):
            continue
        if item.text in seated:
            seated[item.text].append(item)
        elif len(seated) < size:
            seated[item.text] = [item]
    return tuple(Seat(items[0], tuple(items[1:])) for items in seated.values())


def _waiting(memory: AgentMemory) -> Iterable[Item]:
    for start in range(0, SCAN_MAX, PAGE):
        members = memory.client.zrevrange(memory.keys.unconsolidated, start, start + PAGE - 1)
        page = memory.items(int(member) for member in members)
        yield from sorted(page, key=lambda item: (item.ts, item.id), reverse=True)
        if len(members) < PAGE:
            return
