"""An item: one memory as it is stored."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from producer.event import DURABLE, EPISODIC, INSIGHT_KIND

__all__ = ["DURABLE", "EPISODIC", "INSIGHT", "INSIGHT_SALIENCE", "Item"]

#: The kind of what a pass writes, and its salience.
INSIGHT: Final = INSIGHT_KIND
INSIGHT_SALIENCE: Final = 0.8


@dataclass(frozen=True, slots=True)
class Item:
    """One memory. Times are Unix seconds.

    `rev` is the revision of the agent's memory at which this text was stored; `source_ids` are the
    memories an insight was made from.
    """

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
        """The item as flat hash fields; what is None or an empty list is left out.

        Floats are written so that reading gives the same number. A stored hash also holds `base`
        and `bump`, of which the scripts make the salience.
        """
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
        """Read an item's hash; fields that are not the item's own are ignored.

        Raises KeyError (a field is missing) or ValueError (it does not read) for a corrupt hash;
        also where a script could not work with it, though the field is none of the item's own.
        """
        for name in (b"base", b"bump"):
            _number(row, name)
        sources = row.get(b"source_ids", b"")
        return cls(
            id=item_id,
            text=row[b"text"].decode(),
            tier=row[b"tier"].decode(),
            kind=row[b"kind"].decode(),
            provenance=row[b"provenance"].decode(),
            salience=_number(row, b"salience"),
            ts=_number(row, b"ts"),
            access_count=_count(row, b"access_count"),
            last_access_ts=_time(row, b"last_access_ts"),
            expires_at=_time(row, b"expires_at"),
            entities=_names(row, b"entities"),
            topics=_names(row, b"topics"),
            last_consolidated_at=_time(row, b"last_consolidated_at"),
            event_id=row.get(b"event_id", b"").decode(),
            rev=_count(row, b"rev"),
            source_ids=tuple(int(part) for part in sources.split(b",") if part),
        )

    def public(self) -> dict[str, object]:
        """The shape of `memory list --json`; an insight also names its sources."""
        names = (
            "id", "text", "tier", "kind", "provenance", "salience", "access_count",
            "last_access_ts", "expires_at", "ts", "entities", "topics", "last_consolidated_at",
        )  # fmt: skip
        shown: dict[str, object] = {name: getattr(self, name) for name in names}
        shown.update(entities=list(self.entities), topics=list(self.topics))
        if self.kind == INSIGHT:
            shown["source_ids"] = list(self.source_ids)
        return shown


def _number(row: Mapping[bytes, bytes], name: bytes) -> float:
    number = float(row[name])
    if b"_" in row[name]:
        raise ValueError(f"{name.decode()} is a number in Python alone")
    if not math.isfinite(number):
        # It would spoil the order of every ranking it takes part in.
        raise ValueError(f"{name.decode()} is not a finite number")
    return number


def _count(row: Mapping[bytes, bytes], name: bytes) -> int:
    if not row[name].isdigit():
        raise ValueError(f"{name.decode()} is not a count")
    return int(row[name])


def _time(row: Mapping[bytes, bytes], name: bytes) -> float | None:
    return _number(row, name) if name in row else None


def _names(row: Mapping[bytes, bytes], name: bytes) -> tuple[str, ...]:
    names = json.loads(row.get(name, b"[]"))
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"{name.decode()} is not a list of names")
    return tuple(names)
