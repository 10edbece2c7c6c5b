"""Read this first: the way of a memory from an event to an insight, a small step a test.

Everything here is real (a Valkey server, the scripts, the queue), only in one process: what the
roles do by themselves as `remq writer`, `scheduler`, `worker` and `recaller`, `Remq` does here when
it is told to. acceptance/ has the same way with the real processes.
"""

import json
from collections.abc import Iterator
from threading import Thread

import pytest

from producer import Memory
from tests.chat_server import ChatServer
from worker.config import ConfigStore
from worker.connect import Client
from worker.dead import DeadLetters
from worker.keys import Keys
from worker.memory.item import Item
from worker.models import choose_model
from worker.queue import pass_queue
from worker.recaller import Recaller
from worker.runs import Runs
from worker.scheduler import Scheduler, Tick
from worker.settings import Settings
from worker.sleep.report import Report
from worker.stores import agent_memory, config_store
from worker.writer import Tally, Writer

NOTES = [
    "Billing moves to the Frankfurt region once the audit has passed",
    "Ana asked who signs off the audit of the Frankfurt region",
    "The invoice export reads from the old billing region until the audit",
    "Ben tested the backup of the Frankfurt region and it restored",
]
QUESTION = "when can billing move to Frankfurt?"


class Remq:
    """The roles, each doing one round when it is told to."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.config: ConfigStore = config_store(client, settings)

    def write(self) -> Tally:
        """The writer: store what is on the stream."""
        return Writer(self.client, self.settings, self.config).run(burst=True)

    def schedule(self) -> Tick:
        """The scheduler: one look at who is due and idle."""
        queue = pass_queue(self.client, self.settings)
        return Scheduler(self.client, queue, self.settings, self.config).tick()

    def work(self) -> Report:
        """The worker: do the next pass in the queue; its report."""
        queue = pass_queue(self.client, self.settings)
        (job,) = queue.get_jobs()
        job.perform()
        self.client.delete(queue.key)
        return Runs(self.client, self.settings).reports("alice")[0]

    def sleep(self) -> Report:
        """Scheduler and worker, one after the other."""
        self.schedule()
        return self.work()

    def switch_on(self) -> None:
        """What `remq consolidation enable` does: it records the model that may read memories."""
        model = choose_model(self.settings).name
        self.config.set({"enabled": "on", "model": model})

    def items(self) -> list[Item]:
        """What is stored of alice."""
        return list(agent_memory(self.client, self.settings, "alice").all_items())


@pytest.fixture
def remq(client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Remq:
    """The roles on an empty server. A job builds its own settings from the environment."""
    monkeypatch.setenv("REMQ_LLM", settings.llm)
    monkeypatch.setenv("REMQ_QUIET_S", "0")
    return Remq(client, settings)


@pytest.fixture
def agent(client: Client) -> Memory:
    """The agent's side: all it needs is a name and a server."""
    return Memory("alice", client)


@pytest.fixture
def recaller(client: Client, settings: Settings) -> Iterator[None]:
    """A recaller that answers while the test runs."""
    role = Recaller(client, settings)
    thread = Thread(target=role.run)
    thread.start()
    yield
    role.stop()
    client.lpush("remq:recall", "{}")  # So that it need not wait for the next question.
    thread.join()


@pytest.fixture
def stored(agent: Memory, remq: Remq) -> Remq:
    """The notes have been sent and stored."""
    for note in NOTES:
        agent.episodic(note)
    remq.write()
    return remq


# An agent remembers.


def test_an_agent_sends_an_event_to_a_stream(agent: Memory, client: Client) -> None:
    event_id = agent.durable("Billing moves to Frankfurt", kind="decision", provenance="user:ana")
    ((_, fields),) = client.xrange("remq:events")
    assert fields == {
        b"agent": b"alice",
        b"text": b"Billing moves to Frankfurt",
        b"tier": b"durable",
        b"kind": b"decision",
        b"provenance": b"user:ana",
        b"event_id": event_id.encode(),
    }


def test_the_writer_stores_it_and_leaves_nothing_on_the_stream(
    agent: Memory, remq: Remq, client: Client
) -> None:
    agent.durable("Billing moves to Frankfurt", kind="decision", provenance="user:ana")
    assert remq.write().stored == 1
    (item,) = remq.items()
    assert (item.id, item.text, item.tier) == (1, "Billing moves to Frankfurt", "durable")
    assert (item.kind, item.provenance, item.salience) == ("decision", "user:ana", 1.0)
    assert client.xlen("remq:events") == 0


def test_a_shell_sends_an_event_with_one_command(remq: Remq, client: Client) -> None:
    shell = ["XADD", "remq:events", "*", "agent", "alice", "text", "Written by hand"]
    client.execute_command(*shell)
    remq.write()
    (item,) = remq.items()
    assert (item.text, item.tier, item.kind) == ("Written by hand", "episodic", "note")


def test_the_same_event_twice_is_one_memory(agent: Memory, remq: Remq) -> None:
    for _ in range(2):
        agent.episodic("Ana called", event_id="call-17")
    tally = remq.write()
    assert (tally.stored, tally.duplicates) == (1, 1)


def test_a_long_durable_text_is_clipped(agent: Memory, remq: Remq) -> None:
    agent.durable("x" * 300)
    remq.write()
    assert remq.items()[0].text == "x" * 280 + "…"


def test_a_wrong_event_is_a_dead_letter_and_its_neighbours_are_stored(
    agent: Memory, remq: Remq, client: Client
) -> None:
    agent.episodic("before")
    client.xadd("remq:events", {"agent": "alice", "text": "hm", "salience": "very"})
    agent.episodic("after")
    tally = remq.write()
    assert (tally.stored, tally.refused) == (2, 1)
    (letter,) = DeadLetters(client, Keys(), 100).list()
    assert "salience" in letter.reason


def test_working_notes_never_leave_the_agent(agent: Memory, client: Client) -> None:
    agent.note_working("half a thought")
    assert list(agent.working) == ["half a thought"]
    agent.end_cycle()
    assert list(agent.working) == []
    assert client.xlen("remq:events") == 0


# It recalls.


@pytest.mark.usefixtures("stored", "recaller")
def test_one_recall_finds_what_matters(agent: Memory) -> None:
    first, *_ = agent.recall(QUESTION)
    assert first.text == NOTES[0]
    assert agent.recall(QUESTION)[0].access_count == first.access_count + 1


@pytest.mark.usefixtures("stored", "recaller")
def test_a_recall_becomes_a_block_for_the_system_prompt(agent: Memory) -> None:
    assert agent.recall_context("backup") == (
        "Relevant memories:\n- (note) Ben tested the backup of the Frankfurt region and it restored"
    )
    assert agent.recall_context("bicycles") == ""


@pytest.mark.usefixtures("stored", "recaller")
def test_any_language_recalls_over_two_lists(client: Client) -> None:
    asked = {"id": "1", "agent": "alice", "query": "backup", "reply_to": "remq:reply:me"}
    client.lpush("remq:recall", json.dumps(asked))
    taken = client.blpop(["remq:reply:me"], 5)
    assert taken is not None
    answer = json.loads(taken[1])
    assert (answer["id"], answer["ok"]) == ("1", True)
    assert [item["text"] for item in answer["items"]] == [NOTES[3]]


# It sleeps.


def test_nothing_is_slept_on_until_an_operator_switches_it_on(stored: Remq) -> None:
    assert not stored.schedule().enabled
    stored.switch_on()
    tick = stored.schedule()
    assert [run["agent"] for run in tick.enqueued] == ["alice"]


def test_a_busy_agent_is_left_in_peace(stored: Remq, client: Client) -> None:
    stored.switch_on()
    stored.settings = stored.settings.model_copy(update={"agent_queues": "list:jobs"})
    client.rpush("jobs", "answer Ana")
    (put_off,) = stored.schedule().deferred
    assert put_off["reason"] == "list:jobs has 1 entry waiting"
    client.delete("jobs")


def test_a_pass_reviews_connects_and_distils(stored: Remq) -> None:
    stored.switch_on()
    report = stored.sleep()
    assert report.model == "offline"
    assert report.steps == {"metadata": "ok", "connections": "ok", "insight": "ok"}
    assert (report.items_reviewed, report.insights_written) == (4, 1)
    assert report.connections_made >= 1
    insight = insight_of(stored)
    assert (insight.tier, insight.salience) == ("durable", 0.8)
    assert insight.provenance.startswith("consolidation:")
    assert sorted(insight.source_ids) == [1, 2, 3, 4]


def insight_of(remq: Remq) -> Item:
    """The one insight that is stored."""
    (insight,) = [item for item in remq.items() if item.kind == "insight"]
    return insight


@pytest.mark.usefixtures("recaller")
def test_the_insight_is_recalled_like_any_fact(agent: Memory, stored: Remq) -> None:
    stored.switch_on()
    stored.sleep()
    kinds = [found.kind for found in agent.recall(QUESTION)]
    assert "insight" in kinds
    assert "note" in kinds


def test_other_agents_can_follow_new_insights(stored: Remq, client: Client) -> None:
    stored.switch_on()
    report = stored.sleep()
    ((_, fields),) = client.xrange("remq:insights")
    assert fields[b"agent"] == b"alice"
    assert fields[b"run"] == report.run.encode()
    assert fields[b"text"].decode() == insight_of(stored).text


def test_what_was_slept_on_is_not_looked_at_again(stored: Remq) -> None:
    stored.switch_on()
    stored.sleep()
    assert stored.schedule().enqueued == []


# With a model.


def test_a_model_is_asked_three_questions_about_the_same_window(
    stored: Remq, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer() as model:
        use(stored, model, monkeypatch)
        report = stored.sleep()
        assert model.steps == ["metadata", "connections", "insight"]
    assert report.model == f"gpt-5-mini at {model.base_url}"
    assert (report.connections_made, report.insights_written, report.llm_calls) == (3, 1, 3)
    assert insight_of(stored).text.startswith("The billing move and the audit are one plan")


def test_a_step_that_fails_is_named_and_the_others_count(
    stored: Remq, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = '[{"from_id": 1, "to_id": 2, "relationship": "waits for"}]'
    with ChatServer({"metadata": "no idea", "connections": links, "insight": ""}) as model:
        use(stored, model, monkeypatch)
        report = stored.sleep()
    assert report.steps["metadata"].startswith("skipped: ")
    assert report.steps["insight"].startswith("skipped: ")
    assert (report.connections_made, report.insights_written) == (1, 0)
    assert "metadata: " in (report.skipped_reason or "")


def use(remq: Remq, model: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the pass on for a model behind a URL; the job reads the same from its environment."""
    monkeypatch.setenv("REMQ_LLM", "openai")
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    changed = {"llm": "openai", "openai_base_url": model.base_url}
    remq.settings = remq.settings.model_copy(update=changed)
    remq.switch_on()
