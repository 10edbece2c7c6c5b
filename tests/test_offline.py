"""What the offline stand-in says about natural logs, and that it claims no more than it counted."""

import json
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.errors import NoInsight
from worker.sleep import answers
from worker.sleep.model import Connection, Metadata, Question, Step, WindowItem
from worker.sleep.offline import NOTHING, OfflineModel

DAY = 86_400.0
MODEL = OfflineModel()

#: A payments team's agent over four days, oldest first: kind, day, text.
ENGLISH = [
    ("note", 1, "Ran the unit tests: 312 passed in 40 s."),
    ("fact", 1, "Legal says card data may leave the country only after a signed transfer review."),
    ("note", 1, "Read TCK-88: a button on the refund page is cut off in Firefox."),
    ("note", 1, "Ran the linter: no findings."),
    ("decision", 2, "The fraud model goes to the Oslo cluster once the transfer review is signed."),
    ("note", 2, "Ran the unit tests: 312 passed in 41 s."),
    ("note", 2, "Fetched the changelog of the payment gateway, tool ok."),
    ("preference", 2, "Mina wants every rollout behind a flag, and never on a Friday."),
    ("note", 3, "Tool call to search timed out; the second try was ok."),
    ("fact", 3, "The Oslo cluster has no replica yet; Jonas orders one this week."),
    ("note", 3, "Ran the unit tests: 313 passed in 40 s."),
    (
        "decision",
        3,
        "Until the transfer review is signed, scores are computed on hashed card data.",
    ),
    ("note", 4, "Read TCK-91: typo in the mail footer."),
    ("fact", 4, "Mina moved the transfer review to Thursday, since Jonas is away before."),
    ("note", 4, "Ran the linter: no findings, tool ok."),
]

#: An agent of a small bakery chain, oldest first.
CHINESE = [
    ("note", 1, "运行脚本核对库存，12 家门店全部正常。"),
    ("decision", 1, "陈颖决定中央厨房的冷链验收没通过之前，不开第十三家店。"),
    ("note", 1, "读取天气接口成功，明天有小雨。"),
    ("note", 1, "查看工单 A-102：城西店收银机打印不出小票。"),
    ("fact", 2, "冷链验收由市监局负责，最快下周三出结果。"),
    ("note", 2, "运行脚本核对库存，12 家门店全部正常。"),
    ("note", 2, "调用短信接口失败一次，重试成功。"),
    ("preference", 2, "陈颖不喜欢临时改菜单，新品一律提前三天通知门店。"),
    ("fact", 3, "上个月冷链温度超标两次，都发生在城西店卸货的时候。"),
    ("note", 3, "读取天气接口成功，明天晴。"),
    ("note", 3, "查看工单 A-107：外卖平台的图片过期。"),
    ("decision", 3, "中央厨房加装温度记录仪，费用从新店预算里出。"),
    ("note", 4, "运行脚本核对库存，12 家门店全部正常。"),
    ("fact", 4, "房东催签第十三家店的合同，陈颖说等冷链验收的结果。"),
    ("note", 4, "调用短信接口成功。"),
]


def window(rows: list[tuple[str, int, str]]) -> tuple[WindowItem, ...]:
    """Newest first; equal texts once, as a window has them."""
    items = {
        text: WindowItem(number, text, kind, 1_760_000_000.0 + day * DAY)
        for number, (kind, day, text) in enumerate(rows, 1)
    }
    return tuple(sorted(items.values(), key=lambda item: -item.id))


def notes(*texts: str) -> tuple[WindowItem, ...]:
    return window([("note", day, text) for day, text in enumerate(texts)])


def metadata(items: tuple[WindowItem, ...]) -> dict[int, Metadata]:
    text = MODEL.ask(Question(Step.METADATA, items), deadline_s=1).text
    return answers.read_metadata(text, {item.id for item in items})


def connections(items: tuple[WindowItem, ...], limit: int = 5) -> tuple[Connection, ...]:
    text = MODEL.ask(Question(Step.CONNECTIONS, items, limit=limit), deadline_s=1).text
    return answers.read_connections(text, {item.id for item in items}, limit)


def insight(items: tuple[WindowItem, ...]) -> str:
    return answers.read_insight(MODEL.ask(Question(Step.INSIGHT, items), deadline_s=1).text)


def test_it_says_what_it_is_and_costs_nothing() -> None:
    answer = MODEL.ask(Question(Step.METADATA, window(ENGLISH)), deadline_s=1)
    assert MODEL.name == "offline"
    assert (answer.prompt_tokens, answer.completion_tokens) == (0, 0)


# The insight.


def test_english_insight_names_what_the_decisions_share() -> None:
    assert insight(window(ENGLISH)) == (
        "Several memories from different days, decisions and facts among them, keep coming back "
        "to the transfer review, each from another side: card data, the Oslo cluster and Jonas."
    )


def test_chinese_insight_names_what_the_decisions_share() -> None:
    assert insight(window(CHINESE)) == (
        "不同日子的多条记忆（其中有决定和事实）都绕不开冷链验收，分别牵涉陈颖和中央厨房。"
    )


NOISE = {"ran", "tool", "ok", "tests", "linter", "passed", "运行", "脚本", "库存", "成功", "接口"}


@pytest.mark.parametrize("rows", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_routine_does_not_become_the_insight(rows: list[tuple[str, int, str]]) -> None:
    said = insight(window(rows))
    assert not NOISE & set(re.findall(r"\w+", said.casefold()))
    assert not any(word in said for word in NOISE if not word.isascii())
    assert len(said) <= 280


def test_decision_outweighs_a_note_that_recurs_as_often() -> None:
    rows = [("note", 1, "Lunch at the harbour"), ("note", 2, "A walk by the harbour")]
    rows += [("decision", 1, "Rent a second kiln"), ("decision", 2, "Fire glazes in the kiln")]
    assert "the kiln" in insight(window(rows)).partition(".")[0]


def test_two_memories_are_not_several() -> None:
    items = notes("The audit is on Monday", "Billing waits for the audit", "Rain")
    assert insight(items) == "Separate memories from different days return to the audit."


def test_one_day_is_not_called_several() -> None:
    rows = [("note", 1, "The audit is on Monday"), ("note", 1, "Billing waits for the audit")]
    assert insight(window(rows)) == "Separate memories return to the audit."


@pytest.mark.parametrize(
    "texts",
    [
        ("Apples are red", "The sky is blue", "Water is wet"),
        ("今天天气很好", "我们去爬山吧", "晚饭吃火锅"),
        ("...", "🎉", "42"),
        ("The the the", "and the", "of the"),
    ],
)
def test_nothing_recurs(texts: tuple[str, ...]) -> None:
    with pytest.raises(NoInsight, match=NOTHING):
        insight(notes(*texts))


def test_language_is_that_of_most_memories() -> None:
    mixed = ["Redis 的持久化改成每秒落盘", "Redis 的持久化要再压测", "Deploy waits for Redis"]
    assert insight(notes(*mixed)).startswith("不同日子的多条记忆都绕不开 Redis")
    assert insight(notes(*mixed[:1], "Redis wants AOF on", mixed[2])).startswith("Several memories")


def test_long_terms_keep_the_insight_within_its_clip() -> None:
    long = ["w" * 60 + c for c in "abcdef"]
    items = notes(*(f"the {long[0]} and the {one} with the {one}" for one in long[1:] * 2))
    assert len(insight(items)) <= 280


# Metadata.


def test_entities_are_names_identifiers_and_quoted_terms() -> None:
    found = metadata(
        notes(
            'Ana moved OPS-412 from Dublin to eu-central-2, after "cold start" hit TiDB.',
            "In the report by Karin Lindqvist the EU is not Zurich. Ana agreed.",
            "Dr. Vogel opened src/billing/main.go with getUserById on v4.8.1.",
        )
    )
    assert found[1].entities == ("Ana", "OPS-412", "Dublin", "eu-central-2", "TiDB", "cold start")
    assert found[2].entities == ("Karin Lindqvist", "EU", "Zurich", "Ana")
    assert found[3].entities == ("Vogel", "src/billing/main.go", "getUserById", "v4.8.1")


def test_chinese_entities() -> None:
    found = metadata(
        notes("张曼婷把《结算手册》发给了沈敏", "PTS-86 从 MySQL 迁到 TiDB，机房在新加坡")
    )
    assert set(found[1].entities) == {"张曼婷", "沈敏", "结算手册"}
    assert set(found[2].entities) == {"PTS-86", "MySQL", "TiDB", "新加坡"}


@pytest.mark.parametrize("rows", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_caps_hold_and_topics_are_words_of_the_memory(rows: list[tuple[str, int, str]]) -> None:
    items = window(rows)
    found = metadata(items)
    assert found.keys() == {item.id for item in items}
    for item in items:
        assert len(found[item.id].entities) <= 6
        assert 2 <= len(found[item.id].topics) <= 4
        for topic in found[item.id].topics:
            assert len(topic) > 1
            parts = re.findall(r"[a-z0-9-]+|[^\sa-z0-9-]+", topic.casefold())
            assert all(part.rstrip("s") in item.text.casefold() for part in parts)


def test_what_recurs_comes_first_among_topics() -> None:
    found = metadata(window(ENGLISH))
    assert "transfer review" in found[5].topics[:2]
    assert "冷链验收" in metadata(window(CHINESE))[2].topics[:2]


def test_one_memory_alone_has_metadata() -> None:
    (found,) = metadata(notes("The retry queue of the payment gateway was full")).values()
    assert found.topics[:2] == ("retry queue", "payment gateway")


# Connections.


def test_connections_name_what_two_memories_share() -> None:
    found = connections(window(ENGLISH))
    assert Connection(10, 5, "both concern the Oslo cluster") in found
    assert all(link.relationship.startswith("both concern ") for link in found)
    assert all(link.from_id > link.to_id for link in found)


def test_chinese_connections() -> None:
    found = connections(window(CHINESE))
    assert any("中央厨房" in link.relationship for link in found)
    assert all(link.relationship.startswith("都涉及") for link in found)


def test_routine_is_not_connected() -> None:
    routine = {n for n, (_, _, text) in enumerate(ENGLISH, 1) if text.startswith(("Ran", "Tool"))}
    assert not routine & {end for link in connections(window(ENGLISH)) for end in _ends(link)}
    copies = notes("Deployed build 41 to staging", "Deployed build 42 to staging")
    assert connections(copies) == ()


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_limit_holds(limit: int) -> None:
    text = MODEL.ask(Question(Step.CONNECTIONS, window(ENGLISH), limit=limit), deadline_s=1).text
    assert len(json.loads(text)) == min(limit, 5)


def test_no_memory_is_in_every_connection() -> None:
    ends = [end for link in connections(window(CHINESE)) for end in _ends(link)]
    assert max(ends.count(end) for end in ends) <= 2


def _ends(link: Connection) -> tuple[int, int]:
    return link.from_id, link.to_id


# Honesty and sameness.

_WORDS = st.sampled_from(
    ["audit", "Ana", "审计", "结算", "老周", "TTL", "v4.8.1", "三天", "42", "the", "of", "。", "."]
)
_TEXTS = st.lists(_WORDS, min_size=1, max_size=12).map(" ".join) | st.text(max_size=40)
_NUMBER = re.compile(
    r"\d+|\b(?:one|two|three|four|five|first|second|both|dozen)\b|[一二三四五六七八九十两几]"
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["note", "decision", "skill"]), _TEXTS), max_size=8))
def test_no_number_that_is_in_no_source(rows: list[tuple[str, str]]) -> None:
    items = window([(kind, day, text) for day, (kind, text) in enumerate(rows)])
    metadata(items)
    connections(items)
    try:
        said = insight(items)
    except NoInsight:
        return
    sources = " ".join(item.text for item in items).casefold()
    assert all(number in sources for number in _NUMBER.findall(said.casefold()))
    assert len(said) <= 280


SCRIPT = """
from tests.test_offline import CHINESE, ENGLISH, connections, insight, metadata, window
for rows in (ENGLISH, CHINESE):
    items = window(rows)
    print(insight(items), connections(items), metadata(items))
"""


def test_answers_do_not_depend_on_the_order_of_hashes() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
