"""An incremental BM25 index over documents of terms. Knows nothing of memories or Redis.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
IDF that Lucene uses, which is never negative:

    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))
    score  = sum over query terms of idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / mean))
"""

import math
from collections import Counter
from collections.abc import Sequence


class Index:
    """Documents by number. A term that stands twice in a query counts twice."""

    def __init__(self, k1: float = 1.5, b: float = 0.75) -> None:
        self.k1 = k1
        self.b = b
        self._postings: dict[str, dict[int, int]] = {}
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

    def scores(self, query_terms: Sequence[str]) -> dict[int, float]:
        """The score of every document that shares a term with the query."""
        scores: dict[int, float] = {}
        for term, times in Counter(query_terms).items():
            for doc, count in self._postings.get(term, {}).items():
                scores[doc] = scores.get(doc, 0.0) + times * self._share(term, doc, count)
        return scores

    def shares(self, doc: int, query_terms: Sequence[str]) -> dict[str, float]:
        """What each query term adds to a document's score."""
        counts = {term: self._postings.get(term, {}).get(doc, 0) for term in query_terms}
        times = Counter(query_terms)
        return {
            term: times[term] * self._share(term, doc, count)
            for term, count in counts.items()
            if count
        }

    def _share(self, term: str, doc: int, count: int) -> float:
        df = len(self._postings[term])
        idf = math.log(1 + (len(self) - df + 0.5) / (df + 0.5))
        norm = 1 - self.b + self.b * self._lengths[doc] * len(self) / self._total
        return idf * count * (self.k1 + 1) / (count + self.k1 * norm)
