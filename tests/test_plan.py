"""The plan: everything a pass will change, as one value. No server, no model."""

import json

import pytest

from tests.stage import NOW
from worker.memory.item import Item
from worker.sleep.model import Connection, Metadata
from worker.sleep.plan import Member, Plan, draw_up
from worker.sleep.seats import Seat


def seat(number: int, *copies: int, expires_at: float | None = None) -> Seat:
    """A seat of a memory and its copies; `rev` is ten times the id."""

    def item(one: int) -> Item:
        return Item(
            one, f"text {number}", "episodic", "note", "agent", 0.6, NOW,
            expires_at=expires_at, rev=one * 10,
        )  # fmt: skip

    return Seat(item(number), tuple(map(item, copies)))


def plan(
    *window: Seat,
    metadata: dict[int, Metadata] | None = None,
    connections: tuple[Connection, ...] = (),
    insight: str | None = None,
    clip_at: int = 280,
) -> Plan:
    """A plan at the time NOW + 0.75."""
    return draw_up(
        window,
        now=NOW + 0.75,
        metadata=metadata or {},
        connections=connections,
        insight=insight,
        clip_at=clip_at,
    )


def test_every_memory_is_marked_at_the_revision_it_was_read() -> None:
    assert plan(seat(2), seat(1)).members == (Member(2, 20), Member(1, 10))


def test_copies_are_marked_with_the_memory_and_get_its_metadata() -> None:
    found = Metadata(("Frankfurt",), ("billing",))
    assert plan(seat(3, 2, 1), metadata={3: found}).members == (
        Member(3, 30, found),
        Member(2, 20, found),
        Member(1, 10, found),
    )


def test_without_an_insight_there_is_none() -> None:
    assert plan(seat(1)).insight is None


def test_an_insight_knows_its_whole_window_copies_too() -> None:
    drawn = plan(seat(5, 2), seat(4), seat(3), insight="a pattern of all")
    assert drawn.insight is not None
    assert drawn.insight.source_ids == (2, 3, 4, 5)


def test_the_provenance_is_the_second_of_the_pass() -> None:
    drawn = plan(seat(1), insight="a pattern of all").insight
    assert drawn is not None
    assert drawn.provenance == f"consolidation:{int(NOW)}"


def test_an_insight_inherits_the_earliest_expiry_of_its_sources() -> None:
    window = (seat(1), seat(2, expires_at=NOW + 90), seat(3, expires_at=NOW + 50))
    drawn = plan(*window, insight="a pattern of all").insight
    assert drawn is not None
    assert drawn.expires_at == NOW + 50


def test_an_insight_of_lasting_memories_lasts() -> None:
    drawn = plan(seat(1), insight="a pattern of all").insight
    assert drawn is not None
    assert drawn.expires_at is None


@pytest.mark.parametrize(("length", "stored"), [(280, 280), (281, 281), (300, 281)])
def test_a_long_insight_is_clipped_as_every_durable_text(length: int, stored: int) -> None:
    drawn = plan(seat(1), insight="洞" * length).insight
    assert drawn is not None
    assert len(drawn.text) == stored
    assert drawn.text.endswith("…") == (length > 280)


def test_an_insight_has_those_names_of_its_window_that_it_names() -> None:
    metadata = {
        1: Metadata(("Frankfurt", "Ana"), ("Billing", "move")),
        2: Metadata(("Frankfurt",), ("audit",)),
    }
    text = "The billing move to frankfurt waits."
    drawn = plan(seat(2), seat(1), metadata=metadata, insight=text).insight
    assert drawn is not None
    assert (drawn.entities, drawn.topics) == (("Frankfurt",), ("Billing", "move"))


def test_the_arguments_are_flat_in_the_order_that_commit_lua_reads() -> None:
    drawn = plan(
        seat(2),
        seat(1, expires_at=NOW + 5),
        metadata={2: Metadata(("法兰克福",), ())},
        connections=(Connection(1, 2, "blocks"),),
        insight="a pattern of all",
    )
    assert drawn.arguments(7) == [
        *(2, 20, '["法兰克福"]', "[]"),
        *(1, 10, "", ""),
        *(1, 2, "blocks"),
        *(7, "a pattern of all", f"consolidation:{int(NOW)}", "0.8", repr(NOW + 5)),
        *("1,2", "[]", "[]"),
    ]


def test_without_an_insight_the_arguments_end_with_the_connections() -> None:
    drawn = plan(seat(1), connections=(Connection(1, 2, "blocks"),))
    assert drawn.arguments(None)[-3:] == [1, 2, "blocks"]


def test_the_insight_as_an_item_is_durable_with_salience_four_fifths() -> None:
    drawn = plan(seat(1, expires_at=NOW + 5), insight="a pattern of all").insight
    assert drawn is not None
    item = drawn.item(7, NOW)
    assert (item.id, item.tier, item.kind, item.salience) == (7, "durable", "insight", 0.8)
    assert (item.ts, item.expires_at, item.source_ids) == (NOW, NOW + 5, (1,))


def test_a_plan_is_a_value() -> None:
    one, other = (plan(seat(1), insight="a pattern of all") for _ in range(2))
    assert one == other
    assert json.dumps(one.arguments(1)) == json.dumps(other.arguments(1))
