"""Rank memories for a query: facts and insights in one order.

score = BM25(query, text) + salience + 0.1 * access_count + 1 / (1 + age_days / 30)
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from worker.memory.bm25 import Index
from worker.memory.item import DURABLE, Item
from worker.memory.text import ELLIPSIS, clip, terms

DAY_S = 86_400
#: Days after which a memory is half as fresh.
HALF_FRESH_DAYS = 30
ACCESS_WEIGHT = 0.1
#: Digits behind the point in which two scores must agree to be a tie: sums that are equal on paper
#: differ in the sixteenth.
TIE_DIGITS = 12
LABEL = "Relevant memories:"
#: Code points of a line that still says something when its text is cut.
LEAST_LINE = 60

#: White space of any kind and control characters, as they would break or disturb a line.
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that answers a query, and what its score is made of.

    `score` = `bm25` + the item's salience + `access` + `freshness`; `terms` is each term's share of
    `bm25`, the largest first. The item is as it was before this recall.
    """

    item: Item
    score: float
    bm25: float
    freshness: float
    access: float
    terms: Mapping[str, float]


def freshness(ts: float, now: float) -> float:
    """1 for now, one half after 30 days; a time to come counts as now."""
    return 1 / (1 + max(0.0, now - ts) / DAY_S / HALF_FRESH_DAYS)


class MemoryIndex:
    """One agent's memories, kept ready to be ranked.

    Knows no clock: `rank` is told the time. What has expired by then is dropped for good.
    """

    def __init__(self) -> None:
        self._items: dict[int, Item] = {}
        self._index = Index()
        #: A heap of (expires_at, id); entries may be out of date.
        self._expiring: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._items)

    def get(self, item_id: int) -> Item | None:
        """The item as it is known here; None if it is not."""
        return self._items.get(item_id)

    def put(self, item: Item) -> None:
        """Add an item, or replace it."""
        self._items[item.id] = item
        self._index.put(item.id, terms(item.text))
        if item.expires_at is not None:
            self._watch(item.expires_at, item.id)

    def remove(self, item_id: int) -> None:
        """Take an item out; nothing happens if it is not there."""
        self._items.pop(item_id, None)
        self._index.remove(item_id)

    def touch(self, item_id: int, access_count: int, at: float) -> None:
        """Set how often an item was recalled, and when last; nothing happens if it is not there."""
        item = self._items.get(item_id)
        if item is not None:
            self._items[item_id] = replace(item, access_count=access_count, last_access_ts=at)

    def rerate(self, item_id: int, salience: float) -> None:
        """Set an item's salience; nothing happens if it is not there."""
        item = self._items.get(item_id)
        if item is not None:
            self._items[item_id] = replace(item, salience=salience)

    def rank(self, query: str, k: int = 5, *, now: float) -> list[Hit]:
        """The best `k` items that share a term with the query, none for k of 0 or less.

        Expired items take no part, not even in the statistics. Ties: durable before episodic, then
        the item that was stored first.
        """
        self._drop_expired(now)
        wanted = Counter(terms(query))
        found = self._index.scores(wanted)
        places = (self._place(item_id, bm25, now) for item_id, bm25 in found.items())
        best = heapq.nsmallest(k, places) if k > 0 else []
        return [self._hit(item_id, found[item_id], wanted, now) for _, _, item_id in best]

    def _place(self, item_id: int, bm25: float, now: float) -> tuple[float, bool, int]:
        """Where an item stands in the ranking; the smallest comes first."""
        item = self._items[item_id]
        return -round(_score(item, bm25, now), TIE_DIGITS), item.tier != DURABLE, item_id

    def _hit(self, item_id: int, bm25: float, wanted: Mapping[str, int], now: float) -> Hit:
        item = self._items[item_id]
        return Hit(
            item,
            score=_score(item, bm25, now),
            bm25=bm25,
            freshness=freshness(item.ts, now),
            access=ACCESS_WEIGHT * item.access_count,
            terms=self._index.shares(item_id, wanted),
        )

    def _watch(self, expires_at: float, item_id: int) -> None:
        heapq.heappush(self._expiring, (expires_at, item_id))
        if len(self._expiring) > 2 * len(self._items) + 100:
            # Mostly items that were replaced or removed since: start afresh.
            items = self._items.values()
            self._expiring = [(it.expires_at, it.id) for it in items if it.expires_at is not None]
            heapq.heapify(self._expiring)

    def _drop_expired(self, now: float) -> None:
        while self._expiring and self._expiring[0][0] <= now:
            _, item_id = heapq.heappop(self._expiring)
            item = self._items.get(item_id)
            if item is not None and item.expires_at is not None and item.expires_at <= now:
                self.remove(item_id)


def _score(item: Item, bm25: float, now: float) -> float:
    return bm25 + item.salience + ACCESS_WEIGHT * item.access_count + freshness(item.ts, now)


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

    It stops at the first line that would exceed `max_chars` code points in all; a best hit that is
    too long by itself is cut, since half an answer beats none. A text's line breaks become spaces,
    so that a memory cannot pose as another.
    """
    block = LABEL
    for hit in hits:
        line = f"\n- ({hit.item.kind}) {_BREAKS.sub(' ', hit.item.text).strip()}"
        room = max_chars - len(block)
        if len(line) > room:
            if block == LABEL and room >= LEAST_LINE:
                block += clip(line, room - len(ELLIPSIS))
            break
        block += line
    return "" if block == LABEL else block
