"""Recall as docs/data-model.md words it, the obvious way: all anew for each query, in decimals.

Shares nothing with the code it checks but the way a text is split into terms. With fifty digits two
scores that are equal on paper are equal here.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal, localcontext
from typing import NamedTuple, Protocol

from worker.memory.text import terms

DIGITS = 50
#: Rounding errors of the decimals themselves are far below.
SAME = Decimal("1e-30")


class Memory(Protocol):
    """What of a memory counts."""

    @property
    def id(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def tier(self) -> str: ...
    @property
    def salience(self) -> float: ...
    @property
    def access_count(self) -> int: ...
    @property
    def ts(self) -> float: ...
    @property
    def expires_at(self) -> float | None: ...


class Ranked(NamedTuple):
    """One place of the ranking."""

    id: int
    score: float
    bm25: float


def rank(memories: Iterable[Memory], query: str, now: float) -> list[Ranked]:
    """All matches, best first."""
    with localcontext(prec=DIGITS):
        alive = [one for one in memories if one.expires_at is None or one.expires_at > now]
        documents = [terms(one.text) for one in alive]
        words = terms(query)
        rows = []
        for one, document in zip(alive, documents, strict=True):
            if not set(words) & set(document):
                continue
            matched = bm25(words, document, documents)
            score = matched + exact(one.salience) + exact(one.access_count) / 10
            score += freshness(one.ts, now)
            rows.append((-score.quantize(SAME), one.tier == "episodic", one.id, matched))
        return [Ranked(item, float(-score), float(part)) for score, _, item, part in sorted(rows)]


def bm25(
    query: Sequence[str],
    document: Sequence[str],
    documents: Sequence[Sequence[str]],
    k1: float = 1.5,
    b: float = 0.75,
) -> Decimal:
    """BM25 of one document, with Lucene's IDF."""
    with localcontext(prec=DIGITS):
        n = len(documents)
        mean = Decimal(sum(map(len, documents))) / n
        total = Decimal(0)
        for term in query:
            tf = document.count(term)
            df = sum(term in other for other in documents)
            idf = (1 + (n - df + Decimal("0.5")) / (df + Decimal("0.5"))).ln()
            norm = 1 - exact(b) + exact(b) * len(document) / mean if mean else Decimal(1)
            total += idf * tf * (exact(k1) + 1) / (tf + exact(k1) * norm) if tf else 0
        return total


def freshness(ts: float, now: float) -> Decimal:
    """1 / (1 + age in days / 30), no age below 0."""
    days = max(Decimal(0), exact(now) - exact(ts)) / 86_400
    return 1 / (1 + days / 30)


def exact(number: float) -> Decimal:
    """The number as a person writes it: 0.1 is a tenth."""
    return Decimal(repr(number))
