"""Rank memories for a query: facts and insights in one order.

score = BM25(query, text) + salience + 0.1 * access_count + 1 / (1 + age_days / 30)
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace

from worker.memory.bm25 import Index
from worker.memory.item import DURABLE, Item
from worker.memory.text import terms

DAY_S = 86_400
ACCESS_WEIGHT = 0.1
LABEL = "Relevant memories:"


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that answers a query, and what its score is made of."""

    item: Item
    score: float
    bm25: float
    freshness: float
    access: float
    terms: dict[str, float]


def freshness(ts: float, now: float) -> float:
    """1 for now, one half after 30 days; a time to come counts as now."""
    return 1 / (1 + max(0.0, now - ts) / DAY_S / 30)


class MemoryIndex:
    """One agent's memories, kept ready to be ranked."""

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}
        self._index = Index()
        self._expiring: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Add an item, or replace it."""
        self._items[item.id] = item
        self._index.put(item.id, terms(item.text))
        if item.expires_at is not None:
            heapq.heappush(self._expiring, (item.expires_at, item.id))

    def remove(self, item_id: int) -> None:
        """Take an item out; nothing happens if it is not there."""
        self._items.pop(item_id, None)
        self._index.remove(item_id)

    def touch(self, item_id: int, access_count: int, at: float) -> None:
        """Set how often an item was recalled, and when last."""
        self._change(item_id, access_count=access_count, last_access_ts=at)

    def rerate(self, item_id: int, salience: float) -> None:
        """Set an item's salience."""
        self._change(item_id, salience=salience)

    def rank(self, query: str, k: int = 5, *, now: float) -> list[Hit]:
        """The best `k` items that share a term with the query.

        Expired items take no part, not even in the statistics. Ties: durable before episodic, then
        the item that was stored first.
        """
        self._drop_expired(now)
        words = terms(query)
        hits = (
            self._hit(item_id, bm25, now) for item_id, bm25 in self._index.scores(words).items()
        )
        best = heapq.nsmallest(k, hits, key=_order) if k > 0 else []
        return [replace(hit, terms=self._index.shares(hit.item.id, words)) for hit in best]

    def _hit(self, item_id: int, bm25: float, now: float) -> Hit:
        item = self._items[item_id]
        access = ACCESS_WEIGHT * item.access_count
        fresh = freshness(item.ts, now)
        return Hit(item, bm25 + item.salience + access + fresh, bm25, fresh, access, {})

    def _change(self, item_id: int, **values: float) -> None:
        item = self._items.get(item_id)
        if item is not None:
            self._items[item_id] = replace(item, **values)  # type: ignore[arg-type]

    def _drop_expired(self, now: float) -> None:
        while self._expiring and self._expiring[0][0] <= now:
            _, item_id = heapq.heappop(self._expiring)
            item = self._items.get(item_id)
            if item is not None and item.expires_at is not None and item.expires_at <= now:
                self.remove(item_id)


def _order(hit: Hit) -> tuple[float, bool, int]:
    return (-hit.score, hit.item.tier != DURABLE, hit.item.id)


def public(hit: Hit, *, explain: bool = False) -> dict[str, object]:
    """The shape of a recalled item in JSON; `explain` adds what the score is made of."""
    names = ("id", "text", "tier", "kind", "provenance", "salience", "access_count", "ts")
    shown: dict[str, object] = {name: getattr(hit.item, name) for name in names}
    shown["score"] = hit.score
    if explain:
        shown.update(
            bm25=hit.bm25, freshness=hit.freshness, access=hit.access, terms=dict(hit.terms)
        )
    return shown


def context(hits: Iterable[Hit], max_chars: int = 800) -> str:
    """A labelled block for a system prompt, one `- (kind) text` line an item; empty for none.

    It stops before `max_chars`. A text's line breaks become spaces, so that a memory cannot pose as
    another.
    """
    block = LABEL
    for hit in hits:
        line = f"\n- ({hit.item.kind}) {' '.join(hit.item.text.split())}"
        if len(block) + len(line) > max_chars:
            break
        block += line
    return "" if block == LABEL else block
