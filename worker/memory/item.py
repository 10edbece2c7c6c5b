"""An item: one memory as it is stored."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from producer.event import DURABLE, EPISODIC

__all__ = ["DURABLE", "EPISODIC", "INSIGHT", "INSIGHT_SALIENCE", "Item"]

#: The kind of what a pass writes, and its salience.
INSIGHT = "insight"
INSIGHT_SALIENCE = 0.8


@dataclass(frozen=True, slots=True)
class Item:
    """One memory. Times are Unix seconds; `rev` is the revision at which this text was stored."""

    id: int
    text: str
    tier: str
    kind: str
    provenance: str
    salience: float
    ts: float
    access_count: int = 0
    last_access_ts: float | None = None
    expires_at: float | None = None
    entities: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    last_consolidated_at: float | None = None
    event_id: str = ""
    rev: int = 0
    source_ids: tuple[int, ...] = ()

    def fields(self) -> dict[str, str]:
        """The item as flat hash fields; what is None or empty is left out."""
        row: dict[str, str] = {}
        for name in ("text", "tier", "kind", "provenance", "event_id"):
            row[name] = getattr(self, name)
        for name in ("salience", "ts", "last_access_ts", "expires_at", "last_consolidated_at"):
            value = getattr(self, name)
            if value is not None:
                row[name] = repr(value)
        row["access_count"], row["rev"] = str(self.access_count), str(self.rev)
        for name in ("entities", "topics"):
            if getattr(self, name):
                row[name] = json.dumps(getattr(self, name), ensure_ascii=False)
        if self.source_ids:
            row["source_ids"] = ",".join(map(str, self.source_ids))
        return row

    @classmethod
    def from_fields(cls, item_id: int, row: Mapping[bytes, bytes]) -> "Item":
        """Read an item's hash. Raises KeyError or ValueError for a corrupt one."""
        sources = row.get(b"source_ids", b"")
        return cls(
            id=item_id,
            text=row[b"text"].decode(),
            tier=row[b"tier"].decode(),
            kind=row[b"kind"].decode(),
            provenance=row[b"provenance"].decode(),
            salience=float(row[b"salience"]),
            ts=float(row[b"ts"]),
            access_count=int(row.get(b"access_count", 0)),
            last_access_ts=_time(row, b"last_access_ts"),
            expires_at=_time(row, b"expires_at"),
            entities=tuple(json.loads(row.get(b"entities", b"[]"))),
            topics=tuple(json.loads(row.get(b"topics", b"[]"))),
            last_consolidated_at=_time(row, b"last_consolidated_at"),
            event_id=row.get(b"event_id", b"").decode(),
            rev=int(row.get(b"rev", 0)),
            source_ids=tuple(int(part) for part in sources.split(b",") if part),
        )

    def public(self) -> dict[str, object]:
        """The shape of `memory list --json`; an insight also names its sources."""
        names = (
            "id", "text", "tier", "kind", "provenance", "salience", "access_count",
            "last_access_ts", "expires_at", "ts", "last_consolidated_at",
        )  # fmt: skip
        shown: dict[str, object] = {name: getattr(self, name) for name in names}
        shown["entities"], shown["topics"] = list(self.entities), list(self.topics)
        if self.kind == INSIGHT:
            shown["source_ids"] = list(self.source_ids)
        return shown


def _time(row: Mapping[bytes, bytes], name: bytes) -> float | None:
    value = row.get(name)
    return None if value is None else float(value)
