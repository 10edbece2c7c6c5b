"""The plan of a pass: everything it will change, as one value. Knows no Redis and no model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from worker.memory.item import DURABLE, INSIGHT, INSIGHT_SALIENCE, Item
from worker.memory.text import clip
from worker.sleep.model import Connection, Metadata
from worker.sleep.seats import Seat


@dataclass(frozen=True, slots=True)
class Member:
    """An item the pass marks as consolidated, if it is still as it was read (`rev`)."""

    id: int
    rev: int
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class Insight:
    """A new insight: durable, of salience 0.8, gone when the first of its sources expires."""

    text: str
    provenance: str
    expires_at: float | None
    source_ids: tuple[int, ...]
    entities: tuple[str, ...]
    topics: tuple[str, ...]

    def item(self, insight_id: int, now: float) -> Item:
        """The insight as the item that commit.lua stores."""
        return Item(
            insight_id,
            self.text,
            DURABLE,
            INSIGHT,
            self.provenance,
            INSIGHT_SALIENCE,
            ts=now,
            expires_at=self.expires_at,
            entities=self.entities,
            topics=self.topics,
            source_ids=self.source_ids,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What commit.lua applies whole or not at all. `now` is Unix seconds."""

    now: float
    members: tuple[Member, ...]
    connections: tuple[Connection, ...]
    insight: Insight | None

    def arguments(self, insight_id: int | None) -> list[str | int]:
        """The plan as commit.lua's flat arguments: members, connections, insight."""
        flat: list[str | int] = []
        for member in self.members:
            found = member.metadata
            flat += [member.id, member.rev]
            flat += ["", ""] if found is None else [_listed(found.entities), _listed(found.topics)]
        for link in self.connections:
            flat += [link.from_id, link.to_id, link.relationship]
        if self.insight is not None and insight_id is not None:
            new = self.insight
            expires = "" if new.expires_at is None else repr(new.expires_at)
            flat += [insight_id, new.text, new.provenance, repr(INSIGHT_SALIENCE), expires]
            flat += [",".join(map(str, new.source_ids)), _listed(new.entities), _listed(new.topics)]
        return flat


def draw_up(
    window: Sequence[Seat],
    *,
    now: float,
    metadata: Mapping[int, Metadata],
    connections: Sequence[Connection],
    insight: str | None,
    clip_at: int = 280,
) -> Plan:
    """Put together what a pass found.

    Copies of a text get its metadata and are marked with it. The whole window is the insight's
    source, so that forgetting any of it can reach the insight.
    """
    members = tuple(
        Member(item.id, item.rev, metadata.get(seat.item.id))
        for seat in window
        for item in seat.all
    )
    read = [item for seat in window for item in seat.all]
    made = None if insight is None else _insight(clip(insight, clip_at), read, metadata, now)
    return Plan(now, members, tuple(connections), made)


def _insight(
    text: str, read: Sequence[Item], metadata: Mapping[int, Metadata], now: float
) -> Insight:
    expiries = [item.expires_at for item in read if item.expires_at is not None]
    sources = tuple(sorted(item.id for item in read))
    entities = {name: None for found in metadata.values() for name in found.entities}
    topics = {name: None for found in metadata.values() for name in found.topics}
    folded = text.casefold()
    return Insight(
        text,
        f"consolidation:{int(now)}",
        min(expiries) if expiries else None,
        sources,
        tuple(name for name in entities if name.casefold() in folded),
        tuple(name for name in topics if name.casefold() in folded),
    )


def _listed(names: Sequence[str]) -> str:
    return json.dumps(list(names), ensure_ascii=False)
