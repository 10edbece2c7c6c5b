"""The index against the formula, after any history of changes."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from worker.memory.bm25 import Index

WORDS = ["a", "b", "c", "内", "内存"]
documents = st.lists(st.sampled_from(WORDS), max_size=8)
changes = st.lists(st.tuples(st.integers(1, 6), st.none() | documents), max_size=20)


@settings(max_examples=200, deadline=None)
@given(
    changes,
    st.lists(st.sampled_from([*WORDS, "nowhere"]), max_size=6),
    st.sampled_from([(1.5, 0.75), (1.2, 0.0), (0.0, 1.0), (2.0, 1.0)]),
)
def test_scores_are_the_formulas(
    history: list[tuple[int, list[str] | None]], query: list[str], constants: tuple[float, float]
) -> None:
    index = Index(*constants)
    kept: dict[int, list[str]] = {}
    for doc, words in history:
        if words is None:
            index.remove(doc)
            kept.pop(doc, None)
        else:
            index.put(doc, words)
            kept[doc] = words
    all_of_them = list(kept.values())
    expected = {
        doc: float(oracle.bm25(query, words, all_of_them, *constants))
        for doc, words in kept.items()
        if set(query) & set(words)
    }
    assert len(index) == len(kept)
    assert index.scores(query) == pytest.approx(expected, abs=1e-9)
    for doc, words in kept.items():
        shares = index.shares(doc, query)
        assert sum(shares.values()) == pytest.approx(expected.get(doc, 0.0), abs=1e-9)
        assert set(shares) == set(query) & set(words)


def filled(*texts: str) -> Index:
    """An index of texts, numbered from 1."""
    index = Index()
    for number, text in enumerate(texts, 1):
        index.put(number, text.split())
    return index


def test_a_score_worked_out_by_hand() -> None:
    """N = 2, df = 1, so the IDF is ln 2; tf = 2; length 3, mean 2, so the norm is 1.375."""
    scores = filled("x x y", "z").scores(["x"])
    assert scores == pytest.approx({1: math.log(2) * 5 / (2 + 1.5 * 1.375)})


def test_a_query_term_that_stands_twice_counts_twice() -> None:
    index = filled("x y", "y z", "z")
    once, twice = index.scores(["x", "y"]), index.scores(["x", "y", "x"])
    assert twice[1] - once[1] == pytest.approx(index.scores(["x"])[1])
    assert twice[2] == once[2]


def test_a_counted_query_is_the_same_as_its_terms() -> None:
    index = filled("x y", "y z", "z")
    assert index.scores({"x": 2, "y": 1}) == index.scores(["x", "y", "x"])
    assert index.shares(1, {"x": 2, "y": 1}) == index.shares(1, ["x", "y", "x"])


def test_a_term_in_every_document_still_counts() -> None:
    assert all(score > 0 for score in filled("x", "x y", "x z").scores(["x"]).values())


def test_a_document_without_the_terms_has_no_score() -> None:
    index = filled("x", "y")
    assert index.scores(["x"]).keys() == {1}
    assert index.scores(["nowhere"]) == index.scores([]) == {}


def test_a_replaced_document_is_found_by_its_new_terms_alone() -> None:
    index = filled("x y", "y")
    index.put(1, ["z"])
    assert index.scores(["x"]) == {}
    assert index.scores(["z"]) == filled("z", "y").scores(["z"])
    assert len(index) == 2


def test_what_is_removed_leaves_nothing_behind() -> None:
    index = filled("x y", "y")
    index.remove(1)
    index.remove(1)
    assert index.scores(["x"]) == {}
    assert index.scores(["y"])[2] == pytest.approx(math.log(1 + 0.5 / 1.5))
    index.remove(2)
    assert len(index) == 0
    assert index.scores(["x", "y"]) == {}
    assert index.shares(1, ["x"]) == {}


def test_a_document_without_terms_counts_among_the_documents() -> None:
    with_empty, without = filled("x", ""), filled("x")
    assert with_empty.scores(["x"])[1] > without.scores(["x"])[1]
    assert filled("").scores(["x"]) == {}


def test_shares_come_largest_first() -> None:
    shares = filled("rare common", "common", "common").shares(1, ["common", "rare"])
    assert list(shares) == ["rare", "common"]


def test_shares_do_not_depend_on_which_side_is_longer() -> None:
    index = filled("x y z", "y")
    long = ["x", *(f"w{number}" for number in range(50))]
    assert index.shares(1, long) == index.shares(1, ["x"])
