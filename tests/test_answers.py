"""What is taken of a model's answer, what is dropped, and what is an error."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import AnswerError, NoInsight
from worker.sleep.answers import MAX_ANSWER, read_connections, read_insight, read_metadata
from worker.sleep.model import Connection, Metadata

IDS = {3, 7, 12}
ROW = {"id": 3, "entities": ["Ana", "Zurich"], "topics": ["billing", "audit"]}
LINK = {"from_id": 3, "to_id": 7, "relationship": "waits for"}
ROW_READ = {3: Metadata(("Ana", "Zurich"), ("billing", "audit"))}
LINK_READ = (Connection(3, 7, "waits for"),)
ROWS, LINKS = json.dumps([ROW]), json.dumps([LINK])
SENTENCE = "Every move of billing waits for the audit."


# Where the list is.

ACCEPTED = {
    "plain": LINKS,
    "white space and BOM": "\ufeff\n " + LINKS + "\n",
    "fence": f"```json\n{LINKS}\n```",
    "fence without a language": f"```\n{LINKS}\n```",
    "fence at the end of prose": f"Here they are:\n```json\n{LINKS}\n```",
    "fence in the middle of prose": f"Here:\n```json\n{LINKS}\n```\nI hope this helps.",
    "fence never closed": f"```json\n{LINKS}",
    "prose around": f"Sure! {LINKS} Anything else?",
    "brackets in the prose": f"From [#3] to [#7] [see below]: {LINKS} [end]",
    "list in an object": json.dumps({"connections": [LINK]}),
    "list in an object of another name": json.dumps({"count": 1, "results": [LINK]}),
    "list in an object in prose": "So: " + json.dumps({"connections": [LINK]}),
    "list in a list": json.dumps([[LINK]]),
    "draft, then the answer": json.dumps([{**LINK, "to_id": 12}]) + "\nBetter:\n" + LINKS,
    "draft in a block": f"<think>{json.dumps([{**LINK, 'to_id': 12}])}</think>{LINKS}",
    "after a closing tag": f"{json.dumps([{**LINK, 'to_id': 12}])} hm</think>{LINKS}",
    "raw newline in a text": LINKS.replace("waits for", "waits\nfor"),
    "unknown fields": json.dumps([{**LINK, "confidence": 0.9}]),
    "wrong neighbours": json.dumps(["x", None, LINK, 3, {"from_id": 3}]),
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_list_is_found(text: str) -> None:
    assert read_connections(text, IDS, 5) == LINK_READ


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "```json\n[]\n```",
        "None found: []",
        '{"connections": []}',
        '{"connections": [], "note": "none"}',
    ],
)
def test_empty_list_is_an_answer(text: str) -> None:
    assert read_connections(text, IDS, 5) == ()
    assert read_metadata(text, IDS) == {}


REFUSED = {
    "empty": ("", "an empty answer"),
    "blank": (" \n ", "an empty answer"),
    "prose": ("There is nothing to connect.", "no JSON"),
    "bare object": (json.dumps(LINK), "a single object"),
    "bare object in a fence": (f"```json\n{json.dumps(LINK)}\n```", "a single object"),
    "object of objects": (json.dumps({"3": LINK}), "a single object"),
    "empty object": ("{}", "a single object"),
    "null": ("null", "neither a list"),
    "number": ("42", "neither a list"),
    "text": ('"none"', "neither a list"),
    "list of texts": ('["Ana", "Zurich"]', "something else"),
    "list of numbers": ("[3, 7]", "something else"),
    "objects without an id": ('[{"name": "Ana"}]', "something else"),
    "cut off": (LINKS[:-10], "no JSON"),
    "cut off after a row": (LINKS[:-1] + ', {"from', "a single object"),
    "cut off inside a row": ('[{"from_id": 3, "names": [{"name": "A"}], "to', "something else"),
    "single quotes": (LINKS.replace('"', "'"), "no JSON"),
    "block never closed": (f"<think>{LINKS}", "never came to an answer"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "deep and closed": ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    "deep objects": ('{"a":' * 100_000, "nested too deeply"),
    "huge": (" " * MAX_ANSWER + "[]", "more than 1,000,000 characters"),
    "huge number": ("[" + "9" * 5000 + "]", "no JSON"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_list_is_an_error(text: str, words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        read_connections(text, IDS, 5)


def test_bare_metadata_object_is_an_error() -> None:
    for row in (ROW, {**ROW, "topics": []}, {**ROW, "entities": [{"name": "Ana"}]}):
        with pytest.raises(AnswerError, match="a single object"):
            read_metadata(json.dumps(row), IDS)


def test_error_quotes_nothing_of_the_answer() -> None:
    with pytest.raises(AnswerError) as caught:
        read_metadata("Ana's salary is 90,000", IDS)
    assert "salary" not in str(caught.value)


# Ids.


@pytest.mark.parametrize("written", [12, 12.0, "12", "#12", " 12 ", "[#12]", "0012"])
def test_id_is_read_as_models_write_it(written: object) -> None:
    (link,) = read_connections(json.dumps([{**LINK, "to_id": written}]), IDS, 5)
    assert link.to_id == 12
    assert read_metadata(json.dumps([{**ROW, "id": written}]), IDS).keys() == {12}


@pytest.mark.parametrize(
    "written",
    [True, False, None, -1, -3, 999, 12.5, "12abc", "", "#", "1 2", "١٢", [12], {"id": 12}, 1e300],
)
def test_what_is_no_id_of_the_window_is_dropped(written: object) -> None:
    ids = {*IDS, 1, 0}
    rows = json.dumps([{**LINK, "to_id": written}, LINK])
    assert read_connections(rows, ids, 5) == LINK_READ
    assert read_metadata(json.dumps([{**ROW, "id": written}, ROW]), ids) == ROW_READ


@pytest.mark.parametrize("written", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_number_that_is_none_is_dropped(written: str) -> None:
    rows = LINKS.replace("7", written)
    assert read_connections(rows, IDS, 5) == ()


# Connections.


def test_self_link_is_rejected() -> None:
    rows = json.dumps([{**LINK, "to_id": "#3"}, LINK])
    assert read_connections(rows, IDS, 5) == LINK_READ


@pytest.mark.parametrize("relationship", ["", "  \n", None, 3, True, ["waits for"], "\u200b"])
def test_empty_relationship_is_rejected(relationship: object) -> None:
    rows = json.dumps([{**LINK, "relationship": relationship}, LINK])
    assert read_connections(rows, IDS, 5) == LINK_READ


def test_repeats_count_once_and_both_directions_are_two() -> None:
    back = {**LINK, "from_id": 7, "to_id": 3}
    other = {**LINK, "relationship": "explains"}
    spaced = {**LINK, "relationship": " waits \n for "}
    read = read_connections(json.dumps([LINK, spaced, back, LINK, other]), IDS, 5)
    assert read == (*LINK_READ, Connection(7, 3, "waits for"), Connection(3, 7, "explains"))


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (2, 2), (5, 5), (0, 0), (-1, 0)])
def test_caps_hold(limit: int, count: int) -> None:
    rows = [{**LINK, "relationship": f"reason {n}"} for n in range(20)]
    assert len(read_connections(json.dumps(rows), IDS, limit)) == count


def test_twenty_thousand_equal_rows_are_one() -> None:
    rows = json.dumps([LINK] * 20_000, separators=(",", ":")).replace("waits for", "x")
    assert read_connections(rows, IDS, 5) == (Connection(3, 7, "x"),)


def test_relationship_is_one_clean_line_of_at_most_120_characters() -> None:
    rows = json.dumps([{**LINK, "relationship": "waits\tfor\n\x00the \ud800 audit" + "x" * 200}])
    (link,) = read_connections(rows, IDS, 5)
    assert link.relationship.startswith("waits for the auditxxx")
    assert len(link.relationship) == 120
    assert link.relationship.endswith("…")


# Metadata.


def test_at_most_six_entities_and_four_topics() -> None:
    row = {"id": 3, "entities": list("abcdefgh"), "topics": list("stuvwxyz")}
    assert read_metadata(json.dumps([row]), IDS) == {3: Metadata(tuple("abcdef"), tuple("stuv"))}


def test_names_are_clean_short_and_different() -> None:
    names = [
        " Ana\n Lind ",
        "ana lind",
        "",
        None,
        True,
        2024,
        {"name": "Zurich"},
        {"x": 1},
        "\ud800",
    ]
    names.append("long" * 100)
    read = read_metadata(json.dumps([{**ROW, "entities": names}]), IDS)
    entities = read[3].entities
    assert entities[:3] == ("Ana Lind", "2024", "Zurich")
    assert len(entities) == 4
    assert len(entities[3]) == 64
    for name in entities:
        name.encode()


def test_lone_text_stands_for_a_list_of_one() -> None:
    read = read_metadata(json.dumps([{**ROW, "topics": "billing"}]), IDS)
    assert read[3].topics == ("billing",)


def test_row_without_names_says_nothing() -> None:
    assert read_metadata('[{"id": 3}, {"id": 7, "entities": [], "topics": null}]', IDS) == {}


def test_first_row_of_an_item_counts() -> None:
    rows = json.dumps([ROW, {**ROW, "topics": ["other"]}])
    assert read_metadata(rows, IDS) == ROW_READ


# Insights.

BARE = {
    "plain": SENTENCE,
    "white space": f"\n  {SENTENCE}\n",
    "lines": SENTENCE.replace(" ", "\n"),
    "quotation marks": f'"{SENTENCE}"',
    "curly quotation marks": f"“{SENTENCE}”",
    "corner brackets": f"「{SENTENCE}」",
    "fence": f"```\n{SENTENCE}\n```",
    "fence with a language": f"```text\n{SENTENCE}\n```",
    "fence after prose": f"Here is the sentence:\n\n```\n{SENTENCE}\n```",
    "label": f"Insight: {SENTENCE}",
    "bold label": f"**Insight:** {SENTENCE}",
    "heading": f"## Insight\n{SENTENCE}".replace("Insight\n", "Insight:\n"),
    "label in a sentence": f"Here is the insight: {SENTENCE}",
    "Chinese label": f"洞察：{SENTENCE}",
    "Chinese label, final": f"最终答案：{SENTENCE}",
    "preamble": f"Sure, here is what the memories show:\n{SENTENCE}",
    "bold": f"**{SENTENCE}**",
    "bullet": f"- {SENTENCE}",
    "quoted line": f"> {SENTENCE}",
    "label, quotes and bold": f'**Insight:** "*{SENTENCE}*"',
    "JSON text": json.dumps(SENTENCE),
    "JSON object": json.dumps({"insight": SENTENCE}),
    "JSON in a fence": f"```json\n{json.dumps({'insight': SENTENCE})}\n```",
    "closed block": f"<think>Ana waits, so…</think>\n\n{SENTENCE}",
    "closed block after it": f"{SENTENCE}\n<think>That is short enough.</think>",
    "two blocks": f"<think>a</think><reasoning>b</reasoning>{SENTENCE}",
    "block with attributes": f'<thinking type="deep">a\n\nb</thinking>{SENTENCE}',
    "block in capitals": f"<THINK>a</THINK>{SENTENCE}",
    "block in a block": f"<think>a<think>b</think>c</think>{SENTENCE}",
    "closing tag alone": f"Ana waits, so the answer is clear.\n</think>\n{SENTENCE}",
    "square tags": f"[THINK]a[/THINK]{SENTENCE}",
    "triangle tags": f"◁think▷a◁/think▷{SENTENCE}",
    "channels": "<|channel|>analysis<|message|>Ana waits<|end|><|start|>assistant"
    f"<|channel|>final<|message|>{SENTENCE}<|return|>",
    "header and a final line": f"Thinking process:\n1. Read.\n2. Choose.\nFinal answer: {SENTENCE}",
}


@pytest.mark.parametrize("text", BARE.values(), ids=BARE)
def test_insight_is_the_sentence_alone(text: str) -> None:
    assert read_insight(text) == SENTENCE


@pytest.mark.parametrize(
    "text",
    [
        "对账没有通过之前，迁移和切流都不会开始。",
        'Ana says "wait" before each deploy, and each wait saved a rollback.',
        "Reasoning about cost comes up before every decision on the new region.",
        "Let the audit finish first: three decisions were taken back for want of it.",
        "The user wants short reports, and reads long ones late.",
        "We should review each deploy before Friday, as the rollbacks show.",
        "2. Quartal: alle Umzüge warten auf das Audit.",
        "None of the deploys on a Friday went through.",
        "[eu-west-1] is left only when the audit allows it.",
        "C++ builds fail whenever <vector> is precompiled; see issue #12.",
    ],
)
def test_honest_sentence_stays_as_it_is(text: str) -> None:
    assert read_insight(text) == text


REASONING = {
    "block never closed": f"<think>Ana waits. {SENTENCE}",
    "second block never closed": f"<think>a</think>{SENTENCE}<think>but",
    "only a block": "<think>Ana waits for the audit.</think>",
    "channel without an answer": "<|channel|>analysis<|message|>Ana waits for the audit",
    "header": f"Thinking process:\n\nThe memories are about billing.\n\n{SENTENCE}",
    "header in bold": f"**Thinking Process:**\n{SENTENCE}",
    "header with an article": f"Here's a thinking process that leads to it:\n{SENTENCE}",
    "header in Chinese": f"思考过程：先看记忆。\n{SENTENCE}",
    "bold steps": f"1. **Analyze the request:** find a pattern\n2. **Answer**\n{SENTENCE}",
    "one bold step": f"1. **Analyze the memories:** they are about billing. {SENTENCE}",
    "bold bullets": f"* **Pattern:** billing waits\n{SENTENCE}",
    "numbered steps": "1. Billing moves after the audit.\n2. The audit is on Monday.",
    "talk": f"Okay, so the user has an audit. {SENTENCE}",
    "talk, let me": "Let me look at the memories. Billing moves after the audit.",
    "talk, we need": f"We need to write one sentence about it. {SENTENCE}",
    "talk about the user": "The user wants a single insight from these memories about billing.",
    "talk, later line": f"{SENTENCE}\nWait, I should keep the sentence shorter than that.",
    "talk in Chinese": "好的，让我先看看这些记忆，找出其中的规律。",
    "task in Chinese": "用户要求我写出这些记忆的共同规律，先看第一条。",
    "echo of the prompt": "A sentence of at most 280 characters: billing waits for the audit.",
    "final label, two paragraphs": f"Reasoning:\nIt is.\nFinal answer: {SENTENCE}\n\nIt is short.",
}


@pytest.mark.parametrize("text", REASONING.values(), ids=REASONING)
def test_reasoning_never_becomes_an_insight(text: str) -> None:
    with pytest.raises(AnswerError):
        read_insight(text)


NO_INSIGHT = {
    "empty": ("", "an empty answer"),
    "too short": ("Wait.", "shorter than 10 characters"),
    "nine characters": ("123456789", "shorter than 10 characters"),
    "only a fence": ("```\n```", "an answer without a sentence"),
    "refusal": ("I'm sorry, but I can't help with that.", "declined"),
    "refusal in Chinese": ("抱歉，我无法完成这个请求。", "declined"),
    "list": (LINKS, "JSON where a sentence belongs"),
    "object": (json.dumps(LINK), "JSON where a sentence belongs"),
    "broken object": ('{"insight": "Every move', "JSON where a sentence belongs"),
    "deep": ('["' + "[" * 100_000, "JSON where a sentence belongs"),
    "essay": (SENTENCE * 30, "an essay"),
    "huge": ("x" * (MAX_ANSWER + 1), "more than 1,000,000 characters"),
}


@pytest.mark.parametrize(("text", "words"), NO_INSIGHT.values(), ids=NO_INSIGHT)
def test_no_insight(text: str, words: str) -> None:
    with pytest.raises(AnswerError, match=words):
        read_insight(text)


@pytest.mark.parametrize("text", ["Wait.", "123456789"])
def test_a_few_characters_are_no_insight_and_no_failure(text: str) -> None:
    with pytest.raises(NoInsight, match="shorter than 10 characters"):
        read_insight(text)


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "None.",
        "**none**",
        "<think>They share nothing.</think>none",
        "无。",
        "There is no clear pattern in these memories.",
        "这些记忆中没有明显的规律可言。",
    ],
)
def test_word_that_there_is_none_is_no_failure(text: str) -> None:
    with pytest.raises(NoInsight, match="found no pattern"):
        read_insight(text)


def test_ten_characters_are_an_insight() -> None:
    assert read_insight("0123456789") == "0123456789"


def test_insight_has_no_control_characters() -> None:
    assert read_insight("Billing\u2028moves\x00after\ud800 the\u202eaudit.") == (
        "Billing moves after the audit."
    )


# Hostile sizes and shapes.


@pytest.mark.parametrize(
    "unit",
    ["<", "[", '{"a', "\n", "```\n", "<think>", "</think>", "1. **", "* ", "**", '"', "[[],", "- ",
     "Insight: ", "<think ", "￥ ", "\n1. a"],
)  # fmt: skip
@pytest.mark.timeout(5)
def test_hostile_answer_ends_soon(unit: str) -> None:
    text = (unit * MAX_ANSWER)[:MAX_ANSWER]
    for read in (read_insight, lambda said: str(read_connections(said, IDS, 5))):
        try:
            read(text)
        except AnswerError:
            continue


@given(st.text(max_size=300) | st.text('[]{}",:#<>/think`*123 \n', max_size=300))
def test_reader_raises_nothing_but_answer_errors(text: str) -> None:
    for wanted in ('[{"id": 3, "entities": [%s]}]', "%s"):
        answer = wanted.replace("%s", text)
        for read in (
            read_insight,
            lambda said: read_metadata(said, IDS),
            lambda said: read_connections(said, IDS, 2),
        ):
            try:
                read(answer)
            except AnswerError:
                continue


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "from_id", "to_id", "entities", "relationship"]), inner
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    for read in (
        lambda said: read_metadata(said, IDS),
        lambda said: read_connections(said, IDS, 2),
    ):
        try:
            found = read(json.dumps(value))
        except AnswerError:
            continue
        assert len(found) <= 3


def test_the_prompt_s_own_example_is_no_answer() -> None:
    metadata = '[{"id": 3, "entities": ["..."], "topics": ["...", "..."]}]'
    assert read_metadata(metadata, {3}).get(3, Metadata((), ())) == Metadata((), ())
    assert read_connections('[{"from_id": 3, "to_id": 7, "relationship": "..."}]', {3, 7}, 5) == ()
