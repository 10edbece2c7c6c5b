"""The window: which memories a pass looks at."""

import pytest

from tests.stage import DAY, NOW, apply, remember
from worker.memory.item import Item
from worker.memory.store import AgentMemory
from worker.sleep import window
from worker.sleep.seats import COPIES_MAX, Seat


def item(number: int, text: str | None = None, **fields: object) -> Item:
    """A memory that is newer the higher its number."""
    shown: dict[str, object] = {"tier": "episodic", "kind": "note", "provenance": "agent"}
    shown |= {"salience": 0.6, "ts": NOW - DAY + number, **fields}
    return Item(number, text or f"text {number}", **shown)  # type: ignore[arg-type]


def ids(seats: tuple[Seat, ...]) -> list[int]:
    """The ids of those that speak."""
    return [seat.item.id for seat in seats]


def test_newest_first(alice: AgentMemory) -> None:
    for number in (2, 3, 1):
        remember(alice, f"text {number}", ts=NOW - DAY + number)
    assert [seat.item.text for seat in window.read(alice, 20, now=NOW).seats] == [
        "text 3",
        "text 2",
        "text 1",
    ]


def test_of_one_time_the_later_stored_comes_first(alice: AgentMemory) -> None:
    for number in range(12):
        remember(alice, f"text {number}", ts=NOW)
    assert ids(window.read(alice, 20, now=NOW).seats) == list(range(12, 0, -1))


def test_at_most_as_many_as_asked_for(alice: AgentMemory) -> None:
    for number in range(25):
        remember(alice, f"text {number}")
    assert ids(window.read(alice, 20, now=NOW).seats) == list(range(25, 5, -1))


def test_episodic_and_durable_alike(alice: AgentMemory) -> None:
    remember(alice, "a", tier="episodic")
    remember(alice, "b", tier="durable")
    assert ids(window.read(alice, 20, now=NOW).seats) == [2, 1]


def test_never_an_insight(alice: AgentMemory) -> None:
    for text in ("a", "b", "c"):
        remember(alice, text)
    apply(alice, insight="a, b and c belong together")
    remember(alice, "d")
    assert [seat.item.text for seat in window.read(alice, 20, now=NOW).seats] == ["d"]
    again = window.read(alice, 20, now=NOW, before=NOW + 1).seats
    assert [seat.item.text for seat in again] == ["d", "c", "b", "a"]


def test_never_an_insight_even_if_it_waits() -> None:
    assert window.seats([item(1, kind="insight")], 20, now=NOW) == ()


@pytest.mark.parametrize(("expires_at", "seated"), [(NOW - 1, []), (NOW, []), (NOW + 1, [1])])
def test_never_what_has_expired(expires_at: float, seated: list[int]) -> None:
    assert ids(window.seats([item(1, expires_at=expires_at)], 20, now=NOW)) == seated


def test_an_expired_copy_neither_speaks_nor_goes_along() -> None:
    found = window.seats([item(2, "same", expires_at=NOW), item(1, "same")], 20, now=NOW)
    assert [(seat.item.id, seat.copies) for seat in found] == [(1, ())]


def test_never_what_was_consolidated(alice: AgentMemory) -> None:
    for text in ("a", "b"):
        remember(alice, text)
    apply(alice)
    remember(alice, "c")
    assert [seat.item.text for seat in window.read(alice, 20, now=NOW).seats] == ["c"]


def test_what_was_last_consolidated_before_a_given_time_is_eligible_again(
    alice: AgentMemory,
) -> None:
    remember(alice, "a")
    apply(alice, now=NOW)
    remember(alice, "b")
    assert ids(window.read(alice, 20, now=NOW, before=NOW).seats) == [2]
    assert ids(window.read(alice, 20, now=NOW, before=NOW + 1).seats) == [2, 1]


def test_identical_texts_count_once_and_the_newest_speaks() -> None:
    found = window.seats([item(4, "same"), item(3), item(2, "same"), item(1, "same")], 20, now=NOW)
    assert [(seat.item.id, [one.id for one in seat.copies]) for seat in found] == [
        (4, [2, 1]),
        (3, []),
    ]


def test_texts_that_differ_in_a_space_are_two() -> None:
    assert len(window.seats([item(2, "same"), item(1, "same ")], 20, now=NOW)) == 2


def test_copies_are_found_beyond_the_size_of_the_window() -> None:
    found = window.seats([item(4, "same"), item(3), item(2), item(1, "same")], 2, now=NOW)
    assert [(seat.item.id, [one.id for one in seat.copies]) for seat in found] == [
        (4, [1]),
        (3, []),
    ]


def test_a_memory_takes_one_seat_however_many_wait(alice: AgentMemory) -> None:
    for number in range(250):
        remember(alice, "same" if number % 2 else f"text {number}")
    found = window.read(alice, 3, now=NOW).seats
    members = [one.id for seat in found for one in seat.all]
    assert len(members) == len(set(members)) == 2 + 125


def test_an_empty_memory_has_no_window(alice: AgentMemory) -> None:
    assert window.read(alice, 20, now=NOW).seats == ()
    assert window.read(alice, 20, now=NOW, before=NOW).seats == ()


def test_the_insights_there_are_come_along_but_not_those_that_have_expired(
    alice: AgentMemory,
) -> None:
    remember(alice, "a")
    apply(alice, insight="a lasting pattern")
    remember(alice, "b", expires_at=NOW + 5)
    apply(alice, insight="a pattern for now")
    both = frozenset({"a lasting pattern", "a pattern for now"})
    assert window.read(alice, 20, now=NOW).insights == both
    assert window.read(alice, 20, now=NOW + 5).insights == {"a lasting pattern"}


def test_an_item_that_is_gone_but_still_listed_is_passed_over(alice: AgentMemory) -> None:
    remember(alice, "a")
    alice.client.zadd(alice.keys.unconsolidated, {"99": NOW})
    assert ids(window.read(alice, 20, now=NOW).seats) == [1]


def test_a_model_sees_text_kind_time_and_what_was_found_before() -> None:
    one = item(3, kind="decision", entities=("Frankfurt",), topics=("billing",))
    shown = Seat(one).shown()
    assert (shown.id, shown.text, shown.kind, shown.ts) == (3, "text 3", "decision", one.ts)
    assert (shown.entities, shown.topics) == (("Frankfurt",), ("billing",))


def test_a_window_expires_with_its_first_memory_or_copy() -> None:
    lasting, brief = item(1), item(2, expires_at=NOW + 5)
    assert not window.expired([Seat(lasting), Seat(brief)], NOW)
    assert window.expired([Seat(lasting), Seat(brief)], NOW + 5)
    assert window.expired([Seat(lasting, (brief,))], NOW + 5)


@pytest.mark.parametrize("flood", ["equal", "expired"])
def test_a_flood_does_not_hide_the_older_ones(
    alice: AgentMemory, flood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "SCAN_PAGE", 10)
    for number in range(5):
        remember(alice, f"older {number}", ts=NOW - 2 * DAY + number)
    for number in range(35):
        expires = NOW - 1 if flood == "expired" else None
        text = "again" if flood == "equal" else f"gone {number}"
        remember(alice, text, ts=NOW - DAY + number, expires_at=expires)
    texts = {seat.item.text for seat in window.read(alice, 20, now=NOW).seats}
    assert {f"older {number}" for number in range(5)} <= texts


def test_the_copies_of_one_window_are_bounded() -> None:
    found = window.seats([item(number, "same") for number in range(2000, 0, -1)], 20, now=NOW)
    assert len(found[0].copies) == COPIES_MAX
