"""A batch of events sorted out: each agent's share, checked and clipped, and what was refused."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from redis.exceptions import RedisError

from producer.event import Event, EventError, unknown_fields
from worker.group import Entry, Fields
from worker.memory.item import DURABLE
from worker.memory.store import Written
from worker.memory.text import clip
from worker.settings import Settings


@dataclass(slots=True)
class Share:
    """One agent's part of a batch, and what became of it.

    `arrived` is when the last of its entries did, in Unix seconds. `fault` is why it could not be
    stored: then its entries stay where they are. `extract` is whether entities and topics are
    wanted at once.
    """

    events: list[Event] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    arrived: float = 0.0
    first_id: int = 0
    written: list[Written] = field(default_factory=list)
    extract: bool = False
    fault: RedisError | None = None


@dataclass(slots=True)
class Batch:
    """The shares by agent, the refused with their reason, how many unknown fields were left out."""

    shares: dict[str, Share] = field(default_factory=dict)
    refused: list[tuple[bytes, Fields, str]] = field(default_factory=list)
    unknown: int = 0

    @property
    def stored(self) -> dict[str, Share]:
        """The shares in whose way nothing stands."""
        return {agent: share for agent, share in self.shares.items() if share.fault is None}

    @property
    def done(self) -> list[bytes]:
        """The entries that need no more looking at."""
        ids = [entry_id for entry_id, _, _ in self.refused]
        return ids + [entry_id for share in self.stored.values() for entry_id in share.entries]


def sort_out(entries: Iterable[Entry], settings: Settings, now: float) -> Batch:
    """Check and clip each event; bad ones harm no neighbour."""
    batch = Batch()
    for entry_id, fields in entries:
        arrived = arrival(entry_id, now)
        batch.unknown += len(unknown_fields(fields))
        try:
            event = Event.from_fields(fields, arrived=arrived, entry_id=entry_id.decode())
        except EventError as error:
            batch.refused.append((entry_id, fields, str(error)))
            continue
        share = batch.shares.setdefault(event.agent, Share())
        share.events.append(_clipped(event, settings))
        share.entries.append(entry_id)
        share.arrived = max(arrived, share.arrived)
    return batch


def arrival(entry_id: bytes, now: float) -> float:
    """When an entry arrived, in Unix seconds, by its id.

    Whoever adds an entry may name any id, also one of a far future, and those after it go on from
    there: but none arrived after now.
    """
    return min(now, int(entry_id.partition(b"-")[0]) / 1000)


def _clipped(event: Event, settings: Settings) -> Event:
    limit = settings.durable_clip if event.tier == DURABLE else settings.episodic_clip
    text = clip(event.text, limit)
    return event if text is event.text else replace(event, text=text)
