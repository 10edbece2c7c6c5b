"""An incremental BM25 index over documents of terms. Knows nothing of memories or Redis.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
IDF that Lucene uses, which is never negative, not even for a term in every document:

    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))
    score  = sum over query terms of idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean))
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

#: A query's terms, as they stand or counted. A term that stands twice counts twice.
Query = Sequence[str] | Mapping[str, int]


class Index:
    """Documents by number. Changing one costs what it holds, however many there are."""

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        self.k1 = k1
        self.b = b
        #: Term → document → how often it stands there.
        self._postings: dict[str, dict[int, int]] = {}
        #: Document → its different terms.
        self._terms: dict[int, tuple[str, ...]] = {}
        self._lengths: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def put(self, doc: int, terms: Sequence[str]) -> None:
        """Add a document, or replace it."""
        self.remove(doc)
        counts = Counter(terms)
        for term, count in counts.items():
            self._postings.setdefault(term, {})[doc] = count
        self._terms[doc] = tuple(counts)
        self._lengths[doc] = len(terms)
        self._total += len(terms)

    def remove(self, doc: int) -> None:
        """Take a document out; nothing happens if it is not there."""
        for term in self._terms.pop(doc, ()):
            posting = self._postings[term]
            del posting[doc]
            if not posting:
                del self._postings[term]
        self._total -= self._lengths.pop(doc, 0)

    def scores(self, query: Query) -> dict[int, float]:
        """The score of every document that shares a term with the query."""
        scores: dict[int, float] = {}
        base, slope = self._saturation()
        lengths = self._lengths
        for term, times in _counted(query).items():
            posting = self._postings.get(term)
            if posting is None:
                continue
            weight = times * self._weight(posting)
            for doc, tf in posting.items():
                share = weight * tf / (tf + base + slope * lengths[doc])
                scores[doc] = scores.get(doc, 0.0) + share
        return scores

    def shares(self, doc: int, query: Query) -> dict[str, float]:
        """What each term that both hold adds to a document's score, the largest share first.

        Looks at the terms of the shorter side only, so that a huge query costs no more.
        """
        counted = _counted(query)
        own = self._terms.get(doc, ())
        base, slope = self._saturation()
        shares: dict[str, float] = {}
        for term in counted if len(counted) < len(own) else own:
            posting = self._postings.get(term, {})
            if term in counted and doc in posting:
                tf = posting[doc]
                saturated = tf / (tf + base + slope * self._lengths[doc])
                shares[term] = counted[term] * self._weight(posting) * saturated
        return dict(sorted(shares.items(), key=lambda share: (-share[1], share[0])))

    def _weight(self, posting: Mapping[int, int]) -> float:
        """A term's part of the formula that is the same for all documents."""
        df = len(posting)
        return math.log(1 + (len(self) - df + 0.5) / (df + 0.5)) * (self.k1 + 1)

    def _saturation(self) -> tuple[float, float]:
        """What stands beside tf in the divisor: a part for all, and one for each term of length."""
        slope = self.k1 * self.b * len(self) / self._total if self._total else 0.0
        return self.k1 * (1 - self.b), slope


def _counted(query: Query) -> Mapping[str, int]:
    return query if isinstance(query, Mapping) else Counter(query)
