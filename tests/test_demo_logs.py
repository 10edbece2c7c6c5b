"""The two sample logs of `remq demo`: well-formed, and a story a pass can find."""

import json
import re
from collections import Counter
from importlib.resources import files
from typing import Any

import pytest

Row = dict[str, Any]

REQUIRED = {"day", "time", "tier", "kind", "provenance", "text", "event_id"}
OPTIONAL = {"salience"}
KINDS = {"note", "fact", "preference", "decision", "skill"}
DURABLE_CLIP = 280
WINDOW_SIZE = 20
#: Rarer terms that tie the story together, apart from the noise around it.
THREADS = {"en": ("audit", "region", "residency"), "zh": ("对账", "迁移", "切流")}


def read(lang: str) -> list[Row]:
    text = files("worker.demo").joinpath(f"log.{lang}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def newest_distinct(rows: list[Row]) -> list[Row]:
    """Give what one pass would look at: the newest 20 texts, each once."""
    by_text: dict[str, Row] = {}
    for row in reversed(rows):
        by_text.setdefault(row["text"], row)
    return list(by_text.values())[:WINDOW_SIZE]


@pytest.fixture(params=["en", "zh"])
def lang(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rows(lang: str) -> list[Row]:
    return read(lang)


def test_about_forty_events_over_five_days(rows: list[Row]) -> None:
    assert 36 <= len(rows) <= 46
    assert {row["day"] for row in rows} == {1, 2, 3, 4, 5}


def test_every_event_has_the_fields_and_no_others(rows: list[Row]) -> None:
    for row in rows:
        assert row.keys() >= REQUIRED
        assert row.keys() <= REQUIRED | OPTIONAL


def test_every_value_is_one_the_contract_takes(rows: list[Row]) -> None:
    for row in rows:
        assert isinstance(row["day"], int)
        assert re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", row["time"])
        assert row["tier"] in {"episodic", "durable"}
        assert row["kind"] in KINDS
        assert re.fullmatch(r"(user|tool|mail):[a-z]+", row["provenance"])
        assert row["text"] == row["text"].strip() != ""
        assert 0 <= row.get("salience", 0.6) <= 1


def test_events_stand_in_the_order_of_time(rows: list[Row]) -> None:
    moments = [(row["day"], row["time"]) for row in rows]
    assert moments == sorted(moments)


def test_event_ids_count_up_and_name_the_language(lang: str, rows: list[Row]) -> None:
    expected = [f"demo-{lang}-{number:02d}" for number in range(1, len(rows) + 1)]
    assert [row["event_id"] for row in rows] == expected


def test_one_durable_text_is_long_enough_to_be_clipped(rows: list[Row]) -> None:
    long = [row for row in rows if len(row["text"]) > DURABLE_CLIP]
    assert [row["tier"] for row in long] == ["durable"]


def test_a_routine_line_repeats(rows: list[Row]) -> None:
    assert Counter(row["text"] for row in rows).most_common(1)[0][1] >= 3


def test_one_preference_is_about_language(rows: list[Row]) -> None:
    texts = [row["text"] for row in rows if row["kind"] == "preference"]
    assert any("English" in text or "中文" in text for text in texts)


def test_one_window_holds_most_of_the_story_among_noise(rows: list[Row]) -> None:
    window = newest_distinct(rows)
    durable = sum(row["tier"] == "durable" for row in rows)
    durable_seen = sum(row["tier"] == "durable" for row in window)
    assert durable_seen > durable / 2
    assert sum(row["kind"] == "note" for row in window) >= 5


def test_the_threads_run_over_several_days_of_one_window(lang: str, rows: list[Row]) -> None:
    for term in THREADS[lang]:
        hits = [row for row in newest_distinct(rows) if term in row["text"].lower()]
        assert len(hits) >= 3
        assert len({row["day"] for row in hits}) >= 3
        assert all(row["kind"] != "note" for row in hits)


def test_the_chinese_log_is_written_in_chinese() -> None:
    texts = [row["text"] for row in read("zh")]
    letters = re.findall(r"[^\W\d_]", "".join(texts))
    han = [letter for letter in letters if "\u4e00" <= letter <= "\u9fff"]
    assert len(han) > 0.8 * len(letters)
    for text in texts:
        assert re.search(r"[\u4e00-\u9fff]", text)
        assert text.endswith("。")


def test_the_chinese_log_is_a_story_of_its_own() -> None:
    people = [{row["provenance"] for row in read(lang)} for lang in ("en", "zh")]
    shared = people[0] & people[1]
    assert not [name for name in shared if not name.startswith("tool:")]
