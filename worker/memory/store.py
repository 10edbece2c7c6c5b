"""One agent's memories on the server: read them, delete them, count a recall of them."""

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from producer.event import SALIENCE, Event
from worker.connect import Client
from worker.errors import MemoryNotFound, StoreError, reading
from worker.keys import AgentKeys
from worker.memory.item import Item
from worker.memory.scripts import Call, Script, run

log = logging.getLogger("remq.memory")

_WRITE = Script.load("write")
_TOUCH = Script.load("touch")
_DELETE = Script.load("delete")
_ANNOTATE = Script.load("annotate")

#: Items read in one round trip: about 1 MB at the longest texts.
PAGE = 500
#: Another process may change the neighbours of an item while we delete it; nobody does so for long.
DELETE_TRIES = 20


@dataclass(frozen=True, slots=True)
class Link:
    """A stored connection. `insight_id` is None once its insight is deleted, or if it had none."""

    from_id: int
    to_id: int
    relationship: str
    insight_id: int | None
    run: str
    ts: float

    @classmethod
    def from_row(cls, field: bytes, value: bytes) -> "Link":
        """Read one row of the connections hash. Raises ValueError."""
        from_id, to_id, relationship = field.decode().split(":", 2)
        insight, made_by, ts = value.decode().split("|")
        return cls(
            int(from_id),
            int(to_id),
            relationship,
            int(insight) if insight else None,
            made_by,
            float(ts),
        )

    @property
    def field(self) -> str:
        """The connection's name in the hash: the unique triple."""
        return f"{self.from_id}:{self.to_id}:{self.relationship}"

    def public(self) -> dict[str, object]:
        """The shape of `memory show --json`."""
        return {
            "from_id": self.from_id,
            "to_id": self.to_id,
            "relationship": self.relationship,
            "insight_id": self.insight_id,
        }


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: events stored, seen before, and what now waits for a pass."""

    stored: int
    duplicates: int
    waiting: int
    not_before: float


@dataclass(frozen=True, slots=True)
class Position:
    """Where an agent's memory stands: a random name of its life, and its last revision."""

    epoch: str
    rev: int


class AgentMemory:
    """The memory of one agent. Every change is one script, once, with its own revision."""

    def __init__(self, client: Client, keys: AgentKeys, *, feed_max: int = 10_000) -> None:
        self.client = client
        self.keys = keys
        self.feed_max = feed_max

    # Reading.

    def position(self) -> Position:
        """Where the memory stands; rev 0 where there is none."""
        epoch, rev = self.client.mget(self.keys.epoch, self.keys.rev)
        return Position((epoch or b"").decode(), int(rev or 0))

    def ids(self) -> list[int]:
        """Every item's id, oldest memory first."""
        return [int(member) for member in self.client.zrange(self.keys.items, 0, -1)]

    def items(self, ids: Iterable[int]) -> list[Item]:
        """The items of these ids that exist, in the order given.

        One whose hash cannot be read is left out with a warning: it must not hide all others.
        """
        wanted = list(ids)
        found: list[Item] = []
        for start in range(0, len(wanted), PAGE):
            page = wanted[start : start + PAGE]
            pipe = self.client.pipeline(transaction=False)
            for item_id in page:
                pipe.hgetall(self.keys.item(item_id))
            rows = zip(page, pipe.execute(), strict=True)
            read = (self._read(item_id, row) for item_id, row in rows if row)
            found.extend(item for item in read if item is not None)
        return found

    def all_items(self) -> Iterator[Item]:
        """Every item, oldest memory first, read page by page."""
        ids = self.ids()
        for start in range(0, len(ids), PAGE):
            yield from self.items(ids[start : start + PAGE])

    def get(self, item_id: int) -> Item:
        """One item. Raises MemoryNotFound."""
        found = self.items([item_id])
        if not found:
            raise MemoryNotFound(f"Agent {self.keys.agent!r} has no memory {item_id}.")
        return found[0]

    def links(self, item_id: int) -> list[Link]:
        """The connections that touch an item, and for an insight those made with it.

        Raises Unreadable.
        """
        fields: list[bytes] = sorted(self.client.smembers(self.keys.links(item_id)))
        if not fields:
            return []
        values = self.client.hmget(self.keys.connections, fields)
        rows = zip(fields, values, strict=True)
        with reading(f"A connection of memory {item_id} of agent {self.keys.agent!r}"):
            return [Link.from_row(field, value) for field, value in rows if value is not None]

    def counts(self) -> dict[str, int]:
        """How many items, connections and insights there are, and how many wait for a pass."""
        pipe = self.client.pipeline(transaction=False)
        pipe.zcard(self.keys.items)
        pipe.hlen(self.keys.connections)
        pipe.zcard(self.keys.insights)
        pipe.zcard(self.keys.unconsolidated)
        names = ("items", "connections", "insights", "unconsolidated")
        return dict(zip(names, (int(count) for count in pipe.execute()), strict=True))

    # Changing.

    def reserve(self, count: int) -> int:
        """Hand out `count` ids; the first of them. Ids that end up unused are gaps."""
        return int(self.client.incrby(self.keys.ids, count)) - count + 1

    def write_call(self, events: Sequence[Event], first_id: int, now: float) -> Call:
        """The script call that stores `events`, each once, under ids from `first_id` on.

        Every event needs its `event_id` and `ts`; texts are stored as they are. See `written`.
        """
        rows: list[str | float | int] = []
        for number, event in enumerate(events):
            if event.event_id is None or event.ts is None:
                raise ValueError("an event to be stored has an event_id and a time")
            salience = SALIENCE[event.tier] if event.salience is None else event.salience
            expires = "" if event.expires_at is None else repr(event.expires_at)
            rows += [first_id + number, event.event_id, event.text, event.tier, event.kind]
            rows += [event.provenance, repr(salience), repr(event.ts), expires]
        return _WRITE.call(
            self._keys(
                "seen", "items", "unconsolidated", "expiring", "provenance", "rev", "epoch",
                "changes", "run",
            ),
            {"now": repr(now), "new_epoch": secrets.token_hex(8), "feed_max": self.feed_max},
            more_keys=[self.keys.item(first_id + number) for number in range(len(events))],
            more_args=rows,
        )  # fmt: skip

    def touch(self, ids: Sequence[int], now: float) -> None:
        """Count one recall of each item.

        Call it on a connection without retries: a repeated touch counts twice.
        """
        call = _TOUCH.call(
            self._keys("rev", "changes", "run"),
            {"now": repr(now), "feed_max": self.feed_max},
            more_keys=[self.keys.item(item_id) for item_id in ids],
            more_args=list(ids),
        )
        run(self.client, call)

    def delete(self, item_id: int, *, salience_at_most: float | None = None) -> bool:
        """Delete an item with its connections; connections made with an insight only lose its name.

        Returns whether it was deleted: not if it is gone, or its salience has risen above
        `salience_at_most`.
        """
        for _ in range(DELETE_TRIES):
            links = self.links(item_id)
            neighbours: list[str] = []
            for link in links:
                other = link.to_id if link.from_id == item_id else link.from_id
                insight = item_id if link.insight_id is None else link.insight_id
                neighbours += [self.keys.links(other), self.keys.links(insight)]
            call = _DELETE.call(
                {
                    "item": self.keys.item(item_id),
                    "links": self.keys.links(item_id),
                    **self._keys(
                        "items", "unconsolidated", "expiring", "provenance", "insights", "rev",
                        "changes", "connections",
                    ),
                },
                {
                    "id": item_id,
                    "feed_max": self.feed_max,
                    "salience_at_most": "" if salience_at_most is None else repr(salience_at_most),
                },
                more_keys=neighbours,
                more_args=[link.field for link in links],
            )  # fmt: skip
            answer = run(self.client, call)
            if answer != b"RETRY":
                return bool(answer == b"OK")
        raise StoreError(
            f"Memory {item_id} of agent {self.keys.agent!r} keeps changing; try again."
        )

    def annotate(self, item: Item) -> bool:
        """Store an item's entities and topics, if its text has not changed since it was read."""
        fields = item.fields()
        call = _ANNOTATE.call(
            {"item": self.keys.item(item.id)},
            {
                "rev": item.rev,
                "entities": fields.get("entities", "[]"),
                "topics": fields.get("topics", "[]"),
            },
        )
        return bool(run(self.client, call))

    def _read(self, item_id: int, row: dict[bytes, bytes]) -> Item | None:
        try:
            return Item.from_fields(item_id, row)
        except (KeyError, ValueError):
            log.warning("unreadable item agent=%s id=%d", self.keys.agent, item_id)
            return None

    def _keys(self, *names: str) -> dict[str, str]:
        return {name: getattr(self.keys, name) for name in names}


def written(answer: Any) -> Written:
    """Read what `write_call`'s script answered."""
    stored, duplicates, waiting, not_before = answer
    return Written(int(stored), int(duplicates), int(waiting), float(not_before))
