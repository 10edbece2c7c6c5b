"""The pass, rule by rule: what it asks, what it does with the answers, what it says of itself."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chat_server import ChatServer, Reply, refusal
from tests.scripted import INSIGHT, Scripted, rows, run_pass, tagged
from tests.stage import DAY, NOW, recent_insights, remember, started
from worker.errors import AnswerError, ModelUnavailable, NoInsight
from worker.jobs import run_claimed
from worker.memory.store import AgentMemory
from worker.runs import Runs
from worker.settings import Settings
from worker.sleep.llm import OpenAIModel
from worker.sleep.model import Question

REPORT_KEYS = {
    "agent", "run", "started_at", "duration_s", "model", "items_reviewed", "connections_made",
    "insights_written", "salience_rerated", "skipped_reason", "steps", "insight_id", "llm_calls",
    "prompt_tokens", "completion_tokens", "risk",
}  # fmt: skip
DOWN = ModelUnavailable("no answer within 60 s")
BROKEN = AnswerError("no JSON in the answer, or it is malformed")


@pytest.fixture
def four(alice: AgentMemory) -> AgentMemory:
    """A memory of four items, 1 to 4, the newest last."""
    for text in ("audit in May", "region is Frankfurt", "billing moves", "invoices fail"):
        remember(alice, text)
    return alice


def waiting(memory: AgentMemory) -> list[int]:
    """The ids that wait for a pass."""
    return sorted(int(member) for member in memory.client.zrange(memory.keys.unconsolidated, 0, -1))


class TestWindow:
    """At most 20, newest first, never insights, never expired, never consolidated."""

    def test_the_newest_twenty_newest_first(self, alice: AgentMemory) -> None:
        for number in range(23):
            remember(alice, f"text {number}")
        model = Scripted()
        report = run_pass(alice, model)
        assert [item.id for item in model.asked[0].items] == list(range(23, 3, -1))
        assert report.items_reviewed == 20
        assert waiting(alice) == [1, 2, 3]

    def test_window_size_is_a_setting(self, four: AgentMemory) -> None:
        model = Scripted()
        run_pass(four, model, config={"window_size": 3})
        assert [item.id for item in model.asked[0].items] == [4, 3, 2]

    def test_a_window_smaller_than_min_items_is_still_a_window(self, four: AgentMemory) -> None:
        assert run_pass(four, Scripted(), config={"window_size": 2}).items_reviewed == 2

    def test_an_expired_item_is_never_shown(self, four: AgentMemory) -> None:
        remember(four, "gone by now", expires_at=NOW)
        model = Scripted()
        run_pass(four, model)
        assert [item.id for item in model.asked[0].items] == [4, 3, 2, 1]

    def test_an_insight_is_never_shown(self, four: AgentMemory) -> None:
        run_pass(four, Scripted())
        for text in ("one", "two", "three"):
            remember(four, text)
        model = Scripted(insight="another pattern, of the second window")
        run_pass(four, model)
        assert [item.text for item in model.asked[0].items] == ["three", "two", "one"]

    def test_identical_texts_count_once_and_copies_are_marked_with_it(
        self, alice: AgentMemory
    ) -> None:
        for text in ("same", "b", "same", "c", "same"):
            remember(alice, text)
        model = Scripted()
        report = run_pass(alice, model)
        assert [item.id for item in model.asked[0].items] == [5, 4, 2]
        assert report.items_reviewed == 3
        assert waiting(alice) == []
        assert alice.get(1).topics == ("billing", "audit")

    @pytest.mark.parametrize(
        ("texts", "n"), [([], 0), (["a"], 1), (["a", "b"], 2), (["a"] * 5 + ["b"], 2)]
    )
    def test_too_few_unconsolidated_no_call(
        self, alice: AgentMemory, texts: list[str], n: int
    ) -> None:
        for text in texts:
            remember(alice, text)
        model = Scripted()
        report = run_pass(alice, model)
        assert report.skipped_reason == f"too few unconsolidated ({n} < 3)"
        assert (model.asked, report.llm_calls, report.items_reviewed) == ([], 0, 0)
        assert len(waiting(alice)) == len(texts)

    def test_min_items_is_a_setting(self, four: AgentMemory) -> None:
        report = run_pass(four, Scripted(), config={"min_items": 5})
        assert report.skipped_reason == "too few unconsolidated (4 < 5)"
        report = run_pass(four, Scripted(), config={"min_items": 4})
        assert report.items_reviewed == 4

    def test_running_again_at_once_finds_nothing_to_do(self, four: AgentMemory) -> None:
        run_pass(four, Scripted())
        model = Scripted()
        report = run_pass(four, model)
        assert report.skipped_reason == "too few unconsolidated (0 < 3)"
        assert model.asked == []

    def test_an_item_can_become_eligible_again(self, four: AgentMemory) -> None:
        run_pass(four, Scripted())
        model = Scripted(insight="a second look shows another pattern")
        report = run_pass(four, model, now=NOW + DAY, again_before=NOW + 1)
        assert report.items_reviewed == 4
        assert four.get(1).last_consolidated_at == NOW + DAY

    def test_an_item_that_does_not_fit_into_the_prompt_waits(self, four: AgentMemory) -> None:
        remember(four, "很长的记忆" * 60)
        model = Scripted()
        report = run_pass(four, model, prompt_tokens=100)
        assert [item.id for item in model.asked[0].items] == [4, 3, 2, 1]
        assert report.items_reviewed == 4
        assert waiting(four) == [5]

    def test_where_nothing_fits_no_call_is_made_and_all_wait(self, four: AgentMemory) -> None:
        model = Scripted()
        report = run_pass(four, model, prompt_tokens=1)
        assert report.skipped_reason == "no memory fits into a prompt of 1 tokens"
        assert (model.asked, waiting(four)) == ([], [1, 2, 3, 4])


class TestSteps:
    """Three questions, each asked once."""

    def test_metadata_connections_insight_in_this_order(self, four: AgentMemory) -> None:
        model = Scripted()
        report = run_pass(four, model)
        assert model.steps == ["metadata", "connections", "insight"]
        assert report.llm_calls == 3

    def test_entities_and_topics_are_stored_and_shown_to_the_later_steps(
        self, four: AgentMemory
    ) -> None:
        model = Scripted()
        run_pass(four, model)
        assert four.get(1).entities == ("Frankfurt",)
        assert [len(question.items[0].topics) for question in model.asked] == [0, 2, 2]

    def test_extract_metadata_off_asks_no_such_question(self, four: AgentMemory) -> None:
        model = Scripted()
        report = run_pass(four, model, config={"extract_metadata": False})
        assert model.steps == ["connections", "insight"]
        assert report.steps["metadata"] == "skipped: off"
        assert report.skipped_reason is None

    def test_at_most_five_connections(self, four: AgentMemory) -> None:
        found = rows(*((1, 2, f"relation {number}") for number in range(9)))
        model = Scripted(connections=found)
        assert run_pass(four, model).connections_made == 5
        assert model.asked[1].limit == 5

    def test_max_connections_is_a_setting(self, four: AgentMemory) -> None:
        found = rows((1, 2, "blocks"), (2, 3, "explains"))
        model = Scripted(connections=found)
        report = run_pass(four, model, config={"max_connections": 1})
        assert (report.connections_made, model.asked[1].limit) == (1, 1)

    @pytest.mark.parametrize("cap", [0, -1, -1000])
    def test_a_cap_of_0_or_less_means_none_and_no_call(self, four: AgentMemory, cap: int) -> None:
        model = Scripted(connections=rows((1, 2, "blocks")))
        report = run_pass(four, model, config={"max_connections": cap})
        assert model.steps == ["metadata", "insight"]
        assert (report.connections_made, report.steps["connections"]) == (0, "skipped: off")
        assert report.skipped_reason is None

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param((1, 99, "blocks"), id="an id outside the window"),
            pytest.param((99, 1, "blocks"), id="an id outside the window, from"),
            pytest.param((2, 2, "blocks"), id="a link to itself"),
            pytest.param((1, 2, ""), id="an empty relationship"),
            pytest.param((1, 2, " \n"), id="a blank relationship"),
        ],
    )
    def test_rejected_connections_leave_the_others(
        self, four: AgentMemory, wrong: tuple[int, int, str]
    ) -> None:
        report = run_pass(four, Scripted(connections=rows(wrong, (3, 4, "explains"))))
        assert report.connections_made == 1
        assert [link.field for link in four.links(3)] == ["3:4:explains"]
        assert report.steps["connections"] == "ok"

    def test_a_consolidated_item_is_outside_the_window(self, four: AgentMemory) -> None:
        run_pass(four, Scripted())
        for text in ("five", "six", "seven"):
            remember(four, text)
        later = Scripted(connections=rows((1, 6, "blocks")), insight="a later pattern, of others")
        assert run_pass(four, later).connections_made == 0

    def test_from_to_relationship_is_unique_across_passes(self, four: AgentMemory) -> None:
        twice = rows((1, 2, "blocks"), (1, 2, "blocks"), (2, 1, "blocks"))
        assert run_pass(four, Scripted(connections=twice)).connections_made == 2
        again = Scripted(connections=twice, insight="a second look shows another pattern")
        report = run_pass(four, again, now=NOW + DAY, again_before=NOW + 1)
        assert report.connections_made == 0
        assert four.counts()["connections"] == 2

    def test_the_connections_are_shown_to_the_insight(self, four: AgentMemory) -> None:
        model = Scripted(connections=rows((1, 2, "blocks")))
        run_pass(four, model)
        assert [link.relationship for link in model.asked[2].connections] == ["blocks"]


class TestInsight:
    """One or two sentences, durable, of salience 0.8, sourced."""

    def test_it_is_stored_durable_with_kind_salience_and_provenance(
        self, four: AgentMemory
    ) -> None:
        report = run_pass(four, Scripted(), now=NOW + 0.5)
        (insight,) = recent_insights(four, 5)
        assert (report.insights_written, report.insight_id) == (1, insight.id)
        assert (insight.text, insight.tier, insight.kind) == (INSIGHT, "durable", "insight")
        assert insight.salience == 0.8
        assert insight.provenance == f"consolidation:{int(NOW)}"

    def test_each_connection_of_the_pass_points_back_to_it(self, four: AgentMemory) -> None:
        model = Scripted(connections=rows((1, 2, "blocks"), (3, 4, "explains")))
        report = run_pass(four, model)
        assert four.links(1)[0].insight_id == four.links(3)[0].insight_id == report.insight_id

    def test_its_sources_are_the_whole_window(self, alice: AgentMemory) -> None:
        for text in ("same", "b", "c", "same"):
            remember(alice, text)
        run_pass(alice, Scripted())
        assert recent_insights(alice, 1)[0].source_ids == (1, 2, 3, 4)

    def test_it_inherits_the_earliest_expiry_of_its_sources(self, four: AgentMemory) -> None:
        remember(four, "until Friday", expires_at=NOW + 500)
        remember(four, "until Monday", expires_at=NOW + 900)
        run_pass(four, Scripted())
        assert recent_insights(four, 1)[0].expires_at == NOW + 500

    def test_a_long_one_is_clipped(self, four: AgentMemory) -> None:
        run_pass(four, Scripted(insight="the audit and the move " * 20))
        assert len(recent_insights(four, 1)[0].text) == 281

    @pytest.mark.parametrize("short", ["short", "9 letters", "一二三四五六七八九"])
    def test_an_answer_shorter_than_10_characters_is_no_insight(
        self, four: AgentMemory, short: str
    ) -> None:
        report = run_pass(four, Scripted(insight=short))
        assert (report.insights_written, report.insight_id) == (0, None)
        assert report.steps["insight"] == "skipped: shorter than 10 characters"
        assert four.counts()["insights"] == 0

    def test_ten_characters_are_enough(self, four: AgentMemory) -> None:
        assert run_pass(four, Scripted(insight="十个字的洞察也算数了")).insights_written == 1

    @pytest.mark.parametrize(
        "said",
        [
            "<think>The user wants a pattern over these memories.",
            "Thinking process:\n1. **Read** the memories\n2. **Find** a pattern",
            "1. **Analyze** the memories\n2. **Draft** a sentence",
        ],
    )
    def test_reasoning_never_becomes_an_insight(self, four: AgentMemory, said: str) -> None:
        report = run_pass(four, Scripted(insight=said))
        assert report.insights_written == 0
        assert report.steps["insight"].startswith("skipped: ")

    def test_the_sentence_after_the_reasoning_does(self, four: AgentMemory) -> None:
        run_pass(four, Scripted(insight=f"<think>Let me see.</think>\n{INSIGHT}"))
        assert recent_insights(four, 1)[0].text == INSIGHT

    @pytest.mark.parametrize("text", [INSIGHT, "the audit and the move belong together; " * 10])
    def test_the_same_insight_is_not_stored_twice(self, four: AgentMemory, text: str) -> None:
        run_pass(four, Scripted(insight=text))
        for more in ("five", "six", "seven"):
            remember(four, more)
        report = run_pass(four, Scripted(insight=text))
        assert report.steps["insight"] == "skipped: the same insight is already stored"
        assert four.counts()["insights"] == 1

    @pytest.mark.parametrize(
        "said", [NoInsight("nothing recurs in this window"), INSIGHT], ids=["offline", "same"]
    )
    def test_that_there_is_no_new_insight_is_an_answer_too(
        self, four: AgentMemory, said: NoInsight | str
    ) -> None:
        run_pass(four, Scripted())
        for more in ("five", "six", "seven"):
            remember(four, more)
        only_insight = {"extract_metadata": False, "max_connections": 0}
        report = run_pass(four, Scripted(insight=said), config=only_insight)
        assert (report.items_reviewed, report.insights_written) == (3, 0)
        assert waiting(four) == []


class TestRerating:
    """+0.1 a connection, +0.05 for a recall, at most 1.0, never lowered."""

    def test_by_connections_and_recalls(self, four: AgentMemory) -> None:
        four.touch([1], NOW)
        model = Scripted(connections=rows((1, 2, "blocks"), (2, 3, "explains")))
        report = run_pass(four, model)
        assert [four.get(n).salience for n in (1, 2, 3, 4)] == [0.75, 0.8, 0.7, 0.6]
        assert report.salience_rerated == 3

    def test_rerate_salience_off(self, four: AgentMemory) -> None:
        four.touch([1], NOW)
        model = Scripted(connections=rows((1, 2, "blocks")))
        report = run_pass(four, model, config={"rerate_salience": False})
        assert (report.connections_made, report.salience_rerated) == (1, 0)
        assert {four.get(n).salience for n in (1, 2, 3, 4)} == {0.6}

    def test_a_recall_while_the_model_thinks_counts_and_hinders_nothing(
        self, four: AgentMemory
    ) -> None:
        model = Scripted(meanwhile=lambda: four.touch([1], NOW))
        report = run_pass(four, model)
        assert (report.salience_rerated, len(model.asked)) == (1, 3)
        assert four.get(1).salience == 0.65


class TestHonestFailure:
    """A step that fails is skipped and named; the pass goes on with what it has."""

    @pytest.mark.parametrize("step", ["metadata", "connections", "insight"])
    @pytest.mark.parametrize("fault", [DOWN, BROKEN, "not JSON" * 200, "", "{}"])
    def test_one_failed_step_is_named_and_the_others_stand(
        self, four: AgentMemory, step: str, fault: ModelUnavailable | AnswerError | str
    ) -> None:
        said: dict[str, Any] = {"connections": rows((1, 2, "blocks")), step: fault}
        report = run_pass(four, Scripted(**said))
        failed = {name for name, state in report.steps.items() if state != "ok"}
        assert failed == {step}
        assert report.skipped_reason == f"{step}: {report.steps[step].removeprefix('skipped: ')}"
        assert report.connections_made == (0 if step == "connections" else 1)
        assert report.insights_written == (0 if step == "insight" else 1)
        assert report.llm_calls == 3
        assert waiting(four) == []

    def test_a_bare_object_where_a_list_belongs_is_an_error(self, four: AgentMemory) -> None:
        link = json.dumps({"from_id": 1, "to_id": 2, "relationship": "blocks"})
        report = run_pass(four, Scripted(connections=link))
        assert report.steps["connections"].startswith("skipped: ")

    def test_fences_prose_and_a_list_inside_an_object_are_read(self, four: AgentMemory) -> None:
        wrapped = json.dumps({"connections": json.loads(rows((1, 2, "blocks")))})
        said = f"Here they are:\n```json\n{wrapped}\n```\nI hope this helps."
        assert run_pass(four, Scripted(connections=said)).connections_made == 1

    def test_connections_survive_a_failed_insight(self, four: AgentMemory) -> None:
        report = run_pass(four, Scripted(connections=rows((1, 2, "blocks")), insight=DOWN))
        assert report.connections_made == four.counts()["connections"] == 1
        assert four.links(1)[0].insight_id is None

    def test_several_failures_are_all_named(self, four: AgentMemory) -> None:
        report = run_pass(four, Scripted(metadata=DOWN, insight=BROKEN))
        assert report.skipped_reason == f"metadata: {DOWN}; insight: {BROKEN}"

    def test_every_call_failing_marks_nothing(self, four: AgentMemory) -> None:
        model = Scripted(metadata=DOWN, connections=BROKEN, insight="")
        token = started(Runs(four.client, Settings()), "alice")
        watched = (four.keys.items, four.keys.unconsolidated, four.keys.rev, four.keys.item(1))
        before = {key: four.client.dump(key) for key in watched}
        report = run_pass(four, model, token=token)
        assert {key: four.client.dump(key) for key in watched} == before
        assert (report.llm_calls, report.items_reviewed) == (3, 4)
        assert report.connections_made == report.insights_written == report.salience_rerated == 0
        assert report.skipped_reason == f"metadata: {DOWN}; connections: {BROKEN}; insight: " + (
            report.steps["insight"].removeprefix("skipped: ")
        )

    def test_the_only_call_failing_marks_nothing(self, four: AgentMemory) -> None:
        off = {"extract_metadata": False, "max_connections": 0}
        run_pass(four, Scripted(insight=DOWN), config=off)
        assert waiting(four) == [1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("minutes", "seconds"), [(30, 300), (5, 300), (2, 120)], ids=["30 min", "5 min", "2 min"]
    )
    def test_after_a_failed_pass_the_next_try_comes_after_min_interval_300(
        self, four: AgentMemory, runs: Runs, minutes: float, seconds: float
    ) -> None:
        model = Scripted(metadata=DOWN, connections=DOWN, insight=DOWN)
        run_pass(four, model, config={"interval_minutes": minutes})
        assert runs.record("alice").not_before == NOW + seconds
        assert runs.due(NOW + seconds, 9) == [("alice", NOW + seconds)]

    def test_what_failed_is_taken_up_by_the_next_pass(self, four: AgentMemory) -> None:
        run_pass(four, Scripted(metadata=DOWN, connections=DOWN, insight=DOWN))
        assert run_pass(four, Scripted(), now=NOW + 300).insights_written == 1

    @pytest.mark.parametrize("minutes", [30, 10])
    def test_after_a_pass_the_next_comes_after_the_interval(
        self, four: AgentMemory, runs: Runs, minutes: float
    ) -> None:
        run_pass(four, Scripted(), config={"interval_minutes": minutes})
        assert runs.record("alice").not_before == NOW + minutes * 60

    def test_too_few_is_no_failed_pass(self, alice: AgentMemory, runs: Runs) -> None:
        run_pass(alice, Scripted())
        assert runs.record("alice").not_before == NOW + 1800

    def test_one_failed_step_is_no_failed_pass(self, four: AgentMemory, runs: Runs) -> None:
        run_pass(four, Scripted(insight=DOWN))
        assert runs.record("alice").not_before == NOW + 1800

    def test_a_failure_is_logged_without_a_text(
        self, four: AgentMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        report = run_pass(four, Scripted(connections="invoices fail, says the model"))
        assert f"agent=alice run={report.run} step=connections" in caplog.text
        assert "invoices" not in caplog.text


class TestTime:
    """A pass ends by its own hand, before the queue ends it."""

    def clocked(self, four: AgentMemory, thinking_s: float, **options: Any) -> Scripted:
        """A pass whose model takes so long for each answer; the model."""
        at = [NOW]

        def think(question: Question) -> str:
            at[0] += thinking_s
            return {"metadata": tagged(question), "connections": "[]"}.get(question.step, INSIGHT)

        model = Scripted(metadata=think, connections=think, insight=think)
        self.report = run_pass(four, model, clock=lambda: at[0], **options)
        return model

    def test_each_call_gets_the_call_limit_or_what_is_left_of_the_pass(
        self, four: AgentMemory
    ) -> None:
        model = self.clocked(four, 40.0, deadline_s=100.0, call_timeout_s=60.0)
        assert model.deadlines == [60.0, 60.0, 20.0]
        assert self.report.duration_s == 120.0

    @pytest.mark.parametrize("thinking_s", [50.0, 60.0])
    def test_out_of_time_no_call_is_made_and_none_is_counted(
        self, four: AgentMemory, thinking_s: float
    ) -> None:
        model = self.clocked(four, thinking_s, deadline_s=100.0)
        assert model.steps == ["metadata", "connections"]
        assert (self.report.llm_calls, self.report.prompt_tokens) == (2, 200)
        assert self.report.steps["insight"] == (
            "skipped: the pass ran out of time before it was asked"
        )
        assert waiting(four) == []

    def test_a_failed_attempt_is_a_call(self, four: AgentMemory) -> None:
        report = run_pass(four, Scripted(metadata=DOWN, connections=BROKEN))
        assert (report.llm_calls, report.prompt_tokens, report.completion_tokens) == (3, 100, 10)


class TestWindowHitMeanwhile:
    """The model has read what must not speak: the pass is refused whole and tried again."""

    def test_a_deleted_item_and_the_new_window(self, four: AgentMemory) -> None:
        model = Scripted(
            connections=rows((1, 2, "blocks"), (3, 4, "explains")),
            meanwhile=lambda: four.delete(2),
        )
        report = run_pass(four, model)
        assert [len(question.items) for question in model.asked] == [4, 4, 4, 3, 3, 3]
        assert (report.items_reviewed, report.connections_made) == (3, 1)
        assert recent_insights(four, 9)[0].source_ids == (1, 3, 4)
        assert four.counts()["insights"] == 1
        assert (report.llm_calls, report.prompt_tokens) == (6, 600)

    def test_a_replaced_text(self, four: AgentMemory) -> None:
        new = {"text": "the region is Paris", "rev": 50}
        model = Scripted(meanwhile=lambda: four.client.hset(four.keys.item(2), mapping=new))
        report = run_pass(four, model)
        assert [question.items[2].text for question in model.asked[::3]] == [
            "region is Frankfurt",
            "the region is Paris",
        ]
        assert report.insights_written == 1

    def test_an_item_that_expires_meanwhile(self, four: AgentMemory) -> None:
        remember(four, "until now", expires_at=NOW + 1)
        at = [NOW]
        model = Scripted(meanwhile=lambda: at.__setitem__(0, NOW + 1))
        report = run_pass(four, model, clock=lambda: at[0])
        assert [len(question.items) for question in model.asked[::3]] == [5, 4]
        assert recent_insights(four, 1)[0].expires_at is None
        assert report.items_reviewed == 4

    def test_too_few_left_after_it(self, alice: AgentMemory) -> None:
        for text in ("a", "b", "c"):
            remember(alice, text)
        report = run_pass(alice, Scripted(meanwhile=lambda: alice.delete(2)))
        assert report.skipped_reason == "too few unconsolidated (2 < 3)"
        assert (report.items_reviewed, report.llm_calls, report.steps) == (0, 3, {})
        assert waiting(alice) == [1, 3]

    def test_all_calls_failing_at_the_second_try_marks_nothing(self, four: AgentMemory) -> None:
        def only_once(question: Question) -> str | ModelUnavailable:
            return tagged(question) if len(question.items) == 4 else DOWN

        model = Scripted(
            metadata=only_once, connections=DOWN, insight=DOWN, meanwhile=lambda: four.delete(2)
        )
        report = run_pass(four, model)
        assert report.items_reviewed == 3
        assert waiting(four) == [1, 3, 4]

    def test_a_window_that_keeps_changing_is_left_for_later(
        self, four: AgentMemory, runs: Runs
    ) -> None:
        numbers = iter(range(5, 99))

        def hit(question: Question) -> str:
            four.client.hset(four.keys.item(1), "rev", next(numbers))
            return tagged(question)

        report = run_pass(four, Scripted(metadata=hit))
        assert report.skipped_reason == "the window kept changing"
        assert (report.llm_calls, report.insights_written) == (9, 0)
        assert waiting(four) == [1, 2, 3, 4]
        assert runs.record("alice").not_before == NOW + 300

    def test_a_new_item_meanwhile_is_no_change(self, four: AgentMemory) -> None:
        model = Scripted(meanwhile=lambda: remember(four, "a fifth"))
        report = run_pass(four, model)
        assert (report.items_reviewed, len(model.asked)) == (4, 3)
        assert waiting(four) == [5]


class TestTakenOver:
    """A pass whose lease ran out, and whose run another has taken."""

    def take_over(self, four: AgentMemory) -> None:
        four.client.hset(four.keys.run, "lease_until", "1")
        self.other = started(Runs(four.client, Settings()), "alice")

    @pytest.mark.parametrize("said", [INSIGHT, DOWN], ids=["answered", "failed"])
    def test_the_late_one_changes_nothing(
        self, four: AgentMemory, runs: Runs, said: ModelUnavailable | str
    ) -> None:
        failed: dict[str, Any] = {}
        if said is DOWN:
            failed = {"metadata": DOWN, "connections": DOWN}
        model = Scripted(insight=said, meanwhile=lambda: self.take_over(four), **failed)
        report = run_pass(four, model)
        assert report.skipped_reason == "another run has taken over; nothing was changed"
        assert (waiting(four), four.counts()["insights"]) == ([1, 2, 3, 4], 0)
        assert runs.reports("alice") == []
        assert (runs.record("alice").token, runs.record("alice").state) == (self.other, "running")


class TestReport:
    """What every pass says of itself."""

    def test_the_shape_is_the_contracts(self, four: AgentMemory) -> None:
        shown = run_pass(four, Scripted(connections=rows((1, 2, "blocks")))).public()
        assert set(shown) == REPORT_KEYS
        assert shown["steps"] == {"metadata": "ok", "connections": "ok", "insight": "ok"}
        assert (shown["agent"], shown["model"], shown["risk"]) == ("alice", "scripted", "read")
        assert (shown["started_at"], shown["duration_s"]) == (NOW, 0.0)
        assert (shown["items_reviewed"], shown["connections_made"]) == (4, 1)
        assert (shown["insights_written"], shown["insight_id"]) == (1, 5)
        assert (shown["salience_rerated"], shown["skipped_reason"]) == (2, None)
        assert (shown["llm_calls"], shown["prompt_tokens"], shown["completion_tokens"]) == (
            3,
            300,
            30,
        )
        assert json.loads(json.dumps(shown)) == shown

    def test_the_shape_of_a_pass_that_asked_nothing_is_the_same(self, alice: AgentMemory) -> None:
        shown = run_pass(alice, Scripted()).public()
        assert set(shown) == REPORT_KEYS
        assert shown["steps"] == dict.fromkeys(
            ("metadata", "connections", "insight"), "skipped: not asked"
        )
        assert shown["insight_id"] is None

    def test_every_report_stands_in_the_ledger(self, four: AgentMemory, runs: Runs) -> None:
        told = [
            run_pass(four, Scripted(metadata=DOWN, connections=DOWN, insight=DOWN)),
            run_pass(four, Scripted(insight=DOWN)),
            run_pass(four, Scripted()),
        ]
        assert runs.reports("alice", count=9) == told[::-1]

    def test_no_text_of_a_memory_stands_in_it(self, four: AgentMemory) -> None:
        shown = run_pass(four, Scripted(connections="invoices fail", insight="short")).public()
        assert "invoices" not in json.dumps(shown)

    def test_progress_is_told_step_by_step(self, four: AgentMemory) -> None:
        heard: list[tuple[str, str]] = []
        model = Scripted(connections=BROKEN)
        run_pass(four, model, progress=lambda step, state: heard.append((step, state)))
        assert heard == [
            ("metadata", "asking"),
            ("metadata", "ok"),
            ("connections", "asking"),
            ("connections", f"skipped: {BROKEN}"),
            ("insight", "asking"),
            ("insight", "ok"),
        ]


class TestCost:
    """What a pass asks of the server, without the model's share."""

    def test_a_pass_takes_six_round_trips_and_its_job_ten(
        self, four: AgentMemory, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_pass(four, Scripted())  # The server knows the scripts from here on.
        for text in ("five", "six", "seven"):
            remember(four, text)
        model = Scripted(
            connections=rows((6, 7, "explains")), insight="a later pattern of the others"
        )
        monkeypatch.setattr("worker.jobs.permitted_model", lambda *_: model)
        token = Runs(four.client, settings).claim("alice", force=True).token
        trips = count_trips(four, monkeypatch)
        report = run_claimed(four.client, settings, "alice", token)
        assert report is not None
        assert (report.connections_made, report.insights_written) == (1, 1)
        assert (len(trips), len(trips[4:])) == (10, 6), trips


def count_trips(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each round trip of a memory's client from here on."""
    trips: list[str] = []
    client = memory.client
    execute, pipeline = client.execute_command, client.pipeline

    def execute_command(*args: object, **options: object) -> object:
        trips.append(str(args[0]))
        return execute(*args, **options)

    def counted_pipeline(*args: object, **options: object) -> object:
        trips.append("pipeline")
        return pipeline(*args, **options)

    monkeypatch.setattr(client, "execute_command", execute_command)
    monkeypatch.setattr(client, "pipeline", counted_pipeline)
    return trips


class TestOverHttp:
    """The same through the openai package and a real server."""

    @pytest.fixture
    def chat(self) -> Iterator[ChatServer]:
        with ChatServer() as server:
            yield server

    def model(self, chat: ChatServer) -> OpenAIModel:
        return OpenAIModel(api_key="k", base_url=chat.base_url, model="m")

    def test_a_whole_pass(self, four: AgentMemory, chat: ChatServer) -> None:
        report = run_pass(four, self.model(chat))
        assert chat.steps == ["metadata", "connections", "insight"]
        assert report.model == f"m at {chat.base_url}"
        assert (report.connections_made, report.insights_written) == (3, 1)
        assert (report.prompt_tokens, report.completion_tokens) == (300, 60)
        assert report.skipped_reason is None

    def test_a_server_that_fails_is_named_and_marks_nothing(
        self, four: AgentMemory, chat: ChatServer
    ) -> None:
        chat.script = lambda _: refusal(503, "overloaded")
        report = run_pass(four, self.model(chat))
        assert report.skipped_reason is not None
        assert report.skipped_reason.count("503") == 3
        assert waiting(four) == [1, 2, 3, 4]

    def test_html_and_a_cut_answer_skip_their_steps(
        self, four: AgentMemory, chat: ChatServer
    ) -> None:
        chat.script = {
            "metadata": Reply(body="<!doctype html>", content_type="text/html"),
            "connections": Reply(content="[", finish_reason="length"),
            "insight": INSIGHT,
        }
        report = run_pass(four, self.model(chat))
        assert report.insights_written == 1
        assert "web page" in report.steps["metadata"]
        assert "cut off" in report.steps["connections"]
