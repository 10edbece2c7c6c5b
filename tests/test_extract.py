"""Extract on write: entities and topics right after a write, never in its way."""

import json

import pytest
import redis
from redis.exceptions import ConnectionError as ServerGone

from producer import Event, emit
from tests.scripted import Scripted
from tests.stage import NOW, apply, remember
from worker import jobs
from worker.errors import AnswerError, ModelUnavailable
from worker.memory.store import AgentMemory
from worker.queue import EXTRACT, EXTRACT_TIMEOUT_S, enqueue_extraction, extract_queue
from worker.settings import Settings
from worker.sleep import extract
from worker.stores import config_store
from worker.writer import Writer


@pytest.fixture
def three(alice: AgentMemory) -> AgentMemory:
    """A memory of three items, 1 to 3."""
    for text in ("audit in May", "region is Frankfurt", "billing moves"):
        remember(alice, text)
    return alice


def annotate(memory: AgentMemory, model: Scripted, *ids: int, prompt_tokens: int = 8000) -> int:
    """Annotate items with a model."""
    return extract.annotate(memory, model, ids, deadline_s=5, prompt_tokens=prompt_tokens)


class TestAnnotate:
    """One question about the items just written."""

    def test_entities_and_topics_are_stored(self, three: AgentMemory) -> None:
        model = Scripted()
        assert annotate(three, model, 1, 3) == 2
        assert three.get(1).entities == three.get(3).entities == ("Frankfurt",)
        assert three.get(2).topics == ()
        assert (model.steps, model.deadlines) == (["metadata"], [5])

    def test_never_for_insights(self, three: AgentMemory) -> None:
        apply(three, insight="the audit, the region and billing are one plan")
        model = Scripted()
        assert annotate(three, model, 4) == 0
        assert model.asked == []
        annotate(three, model, 1, 4)
        assert [item.id for item in model.asked[0].items] == [1]

    def test_items_that_are_gone_are_passed_over(self, three: AgentMemory) -> None:
        model = Scripted()
        assert annotate(three, model, 8, 9) == 0
        assert model.asked == []

    def test_an_item_the_model_left_out_is_left_alone(self, three: AgentMemory) -> None:
        said = json.dumps([{"id": 1, "entities": [], "topics": ["audit"]}])
        assert annotate(three, Scripted(metadata=said), 1, 2) == 1
        assert three.get(2).topics == ()

    def test_an_item_whose_text_changed_meanwhile_is_left_alone(self, three: AgentMemory) -> None:
        change = {"text": "the region is Paris", "rev": 50}
        model = Scripted(meanwhile=lambda: three.client.hset(three.keys.item(2), mapping=change))
        assert annotate(three, model, 1, 2) == 1
        assert three.get(2).entities == ()

    def test_an_item_deleted_meanwhile_does_not_come_back(self, three: AgentMemory) -> None:
        assert annotate(three, Scripted(meanwhile=lambda: three.delete(2)), 1, 2) == 1
        assert three.ids() == [1, 3]

    def test_what_does_not_fit_into_the_prompt_is_left_to_the_pass(
        self, three: AgentMemory
    ) -> None:
        remember(three, "很长的记忆" * 60)
        model = Scripted()
        assert annotate(three, model, 1, 2, 3, 4, prompt_tokens=100) == 3
        assert [item.id for item in model.asked[0].items] == [1, 2, 3]
        assert annotate(three, model, 4, prompt_tokens=100) == 0

    def test_it_marks_nothing_as_consolidated(self, three: AgentMemory) -> None:
        annotate(three, Scripted(), 1, 2, 3)
        assert three.counts()["unconsolidated"] == 3
        assert three.get(1).last_consolidated_at is None

    @pytest.mark.parametrize("fault", [ModelUnavailable("down"), "no JSON at all"])
    def test_a_fault_of_the_model_changes_nothing(
        self, three: AgentMemory, fault: ModelUnavailable | str
    ) -> None:
        with pytest.raises((ModelUnavailable, AnswerError)):
            annotate(three, Scripted(metadata=fault), 1)
        assert three.get(1).entities == ()


class TestJob:
    """What RQ runs: ids in, and never an exception for what a model said."""

    @pytest.fixture
    def model(self, monkeypatch: pytest.MonkeyPatch) -> Scripted:
        """The model of this environment."""
        model = Scripted()
        monkeypatch.setattr("worker.models.OfflineModel", lambda: model)
        monkeypatch.setenv("REMQ_LLM", "offline")
        return model

    def switch_on(self, client: redis.Redis, settings: Settings, **more: str) -> None:
        values = {"enabled": "on", "model": "scripted", "extract_on_write": "on", **more}
        config_store(client, settings).set(values)

    def test_off_by_default(self, three: AgentMemory, model: Scripted, settings: Settings) -> None:
        self.switch_on(three.client, settings, extract_on_write="off")
        assert jobs.extract_metadata("alice", "1", "2") == 0
        assert model.asked == []

    def test_on(self, three: AgentMemory, model: Scripted, settings: Settings) -> None:
        self.switch_on(three.client, settings)
        assert jobs.extract_metadata("alice", "1", "2") == 2
        assert model.deadlines[0] < EXTRACT_TIMEOUT_S

    def test_for_one_agent_alone(
        self, three: AgentMemory, model: Scripted, settings: Settings
    ) -> None:
        self.switch_on(three.client, settings)
        config_store(three.client, settings).set({"extract_on_write": "off"}, "alice")
        assert jobs.extract_metadata("alice", "1") == 0

    @pytest.mark.parametrize("wrong", [{"enabled": "off"}, {"model": "another"}])
    def test_not_while_off_and_not_by_another_model(
        self, three: AgentMemory, model: Scripted, settings: Settings, wrong: dict[str, str]
    ) -> None:
        self.switch_on(three.client, settings, **wrong)
        assert jobs.extract_metadata("alice", "1") == 0
        assert model.asked == []

    def test_a_model_that_fails_is_logged_without_a_text(
        self,
        three: AgentMemory,
        model: Scripted,
        settings: Settings,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        model.said = {**model.said, next(iter(model.said)): ModelUnavailable("503: it failed")}
        self.switch_on(three.client, settings)
        assert jobs.extract_metadata("alice", "1") == 0
        assert "extraction skipped agent=alice: 503: it failed" in caplog.text
        assert "audit" not in caplog.text

    def test_the_job_holds_ids_only(self, three: AgentMemory, settings: Settings) -> None:
        queue = extract_queue(three.client, settings)
        enqueue_extraction(queue, "alice", [1, 2])
        (job,) = queue.jobs
        assert (job.func_name, job.args) == (EXTRACT, ["alice", "1", "2"])


class TestWrite:
    """A write never waits for it, and never fails by it; off by default."""

    def writer(self, client: redis.Redis, settings: Settings, fault: Exception | None) -> Writer:
        self.asked: list[tuple[str, list[int]]] = []

        def ask(agent: str, ids: object) -> None:
            self.asked.append((agent, list(ids)))  # type: ignore[call-overload]
            if fault is not None:
                raise fault

        emit(client, Event("alice", "audit in May", event_id="e1", ts=NOW))
        return Writer(client, settings, config_store(client, settings), extract=ask)

    @pytest.mark.parametrize("fault", [None, ServerGone("the queue is gone"), ModelUnavailable("")])
    def test_the_event_is_stored_whatever_becomes_of_it(
        self, alice: AgentMemory, settings: Settings, fault: Exception | None
    ) -> None:
        store = config_store(alice.client, settings)
        store.set({"enabled": "on", "model": "offline", "extract_on_write": "on"})
        tally = self.writer(alice.client, settings, fault).run(burst=True)
        assert tally.stored == 1
        assert self.asked == [("alice", [1])]
        assert alice.client.xlen("remq:events") == 0

    @pytest.mark.parametrize("on", ["enabled", "extract_on_write", None])
    def test_nothing_is_asked_while_either_switch_is_off(
        self, alice: AgentMemory, settings: Settings, on: str | None
    ) -> None:
        if on is not None:
            config_store(alice.client, settings).set({on: "on"})
        assert self.writer(alice.client, settings, None).run(burst=True).stored == 1
        assert self.asked == []
