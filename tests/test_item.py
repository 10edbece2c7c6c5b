"""An item: what goes into its hash comes out again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.memory.item import DURABLE, EPISODIC, INSIGHT, INSIGHT_SALIENCE, Item

ITEM = Item(
    id=7,
    text="账单迁到新区域\nafter the audit",
    tier=DURABLE,
    kind="decision",
    provenance="user:42",
    salience=0.1 + 0.2,
    ts=1_800_000_000.123456,
)


def stored(item: Item, **more: str) -> dict[bytes, bytes]:
    """An item's hash as the server hands it out."""
    row = {**item.fields(), "base": repr(item.salience), "bump": "0", **more}
    return {name.encode(): value.encode() for name, value in row.items()}


texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.floats(allow_nan=False, allow_infinity=False)
items = st.builds(
    Item,
    id=st.integers(1),
    text=texts,
    tier=st.sampled_from([DURABLE, EPISODIC]),
    kind=texts,
    provenance=texts,
    salience=numbers,
    ts=numbers,
    access_count=st.integers(0),
    last_access_ts=st.none() | numbers,
    expires_at=st.none() | numbers,
    entities=st.lists(texts).map(tuple),
    topics=st.lists(texts).map(tuple),
    last_consolidated_at=st.none() | numbers,
    event_id=texts,
    rev=st.integers(0),
    source_ids=st.lists(st.integers(1)).map(tuple),
)


@given(items)
def test_an_item_survives_its_hash(item: Item) -> None:
    assert Item.from_fields(item.id, stored(item)) == item


def test_the_hash_is_flat_text_and_leaves_out_what_is_not_there() -> None:
    assert ITEM.fields() == {
        "text": "账单迁到新区域\nafter the audit",
        "tier": "durable",
        "kind": "decision",
        "provenance": "user:42",
        "event_id": "",
        "salience": "0.30000000000000004",
        "ts": "1800000000.123456",
        "access_count": "0",
        "rev": "0",
    }


def test_names_are_json_that_a_person_can_read_and_sources_are_a_list_of_ids() -> None:
    item = Item(
        1, "t", DURABLE, INSIGHT, "consolidation:1", 0.8, 1.0,
        entities=("数据库", 'a "b"'), topics=("x",), source_ids=(3, 12),
    )  # fmt: skip
    row = item.fields()
    assert row["entities"] == '["数据库", "a \\"b\\""]'
    assert (row["topics"], row["source_ids"]) == ('["x"]', "3,12")


def test_fields_of_the_scripts_and_of_later_versions_are_ignored() -> None:
    assert Item.from_fields(7, stored(ITEM, base="0.1", bump="20", colour="red")) == ITEM


@pytest.mark.parametrize(
    "name",
    ["text", "tier", "kind", "provenance", "salience", "ts", "base", "bump", "access_count", "rev"],
)
def test_a_missing_field_is_a_key_error(name: str) -> None:
    row = stored(ITEM)
    del row[name.encode()]
    with pytest.raises(KeyError, match=name):
        Item.from_fields(7, row)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", b"\xff\xfe"),
        ("salience", b"high"),
        ("salience", b"nan"),
        ("ts", b"inf"),
        ("expires_at", b""),
        ("last_access_ts", b"-inf"),
        ("access_count", b"1.5"),
        ("access_count", b"1_000"),
        ("access_count", b"-1"),
        ("base", b"high"),
        ("bump", b""),
        ("bump", b"1_0"),
        ("rev", b"new"),
        ("entities", b"["),
        ("entities", b'"abc"'),
        ("entities", b"5"),
        ("topics", b"{}"),
        ("topics", b"[1]"),
        ("source_ids", b"1,x"),
    ],
)
def test_a_corrupt_field_is_a_value_error(name: str, value: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as refusal:
        Item.from_fields(7, {**stored(ITEM), name.encode(): value})
    assert ITEM.text not in str(refusal.value)


def test_the_public_shape_has_all_fields_of_an_item() -> None:
    assert ITEM.public() == {
        "id": 7,
        "text": ITEM.text,
        "tier": "durable",
        "kind": "decision",
        "provenance": "user:42",
        "salience": ITEM.salience,
        "access_count": 0,
        "last_access_ts": None,
        "expires_at": None,
        "ts": ITEM.ts,
        "entities": [],
        "topics": [],
        "last_consolidated_at": None,
    }


@pytest.mark.parametrize(("kind", "named"), [(INSIGHT, True), ("fact", False)])
def test_only_an_insight_shows_its_sources(kind: str, named: bool) -> None:
    item = Item(1, "t", DURABLE, kind, "p", INSIGHT_SALIENCE, 1.0, source_ids=(3, 5))
    shown: dict[str, Any] = json.loads(json.dumps(item.public()))
    assert ("source_ids" in shown) == named
    assert shown.get("source_ids", [3, 5]) == [3, 5]
