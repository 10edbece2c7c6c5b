"""What an operator does: switch, run, forget, look after dead letters and health."""

import io
import json
from typing import Any

import pytest

from producer import Event, emit
from tests.cli.command_line import Remq, sentence
from worker.cli import consolidation
from worker.connect import Client
from worker.dead import DeadLetters
from worker.keys import Keys
from worker.memory.store import AgentMemory
from worker.queue import enqueue_pass
from worker.runs import Runs
from worker.settings import Settings
from worker.stores import config_store

# The sleep pass.


def test_the_switch_holds_for_all_or_for_one(remq: Remq, client: Client) -> None:
    assert remq("consolidation", "enable", "--agent", "alice", "--json").json["agent"] == "alice"
    store = config_store(client, Settings())
    assert (store.for_agent("alice").enabled, store.for_agent("bob").enabled) == (True, False)
    assert remq("consolidation", "disable", "--agent", "alice", "--json").json["enabled"] is False
    assert not store.for_agent("alice").enabled
    told = remq("consolidation", "set", "extract_metadata", "off", "--json").json
    assert told == {"name": "extract_metadata", "value": False, "agent": None}


@pytest.mark.usefixtures("stored")
def test_a_busy_agent_is_not_disturbed_unless_forced(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    remq("consolidation", "enable")
    monkeypatch.setenv("REMQ_AGENT_QUEUES", "list:remq:recall")
    client.rpush("remq:recall", "work")
    run = ("consolidation", "run", "--agent", "alice", "--here", "--json")
    assert "list:remq:recall has 1 entry waiting" in sentence(remq(*run))
    assert remq(*run, "--force").json["items_reviewed"] == 3


@pytest.mark.usefixtures("stored")
def test_a_pass_that_runs_already_is_not_begun_twice(remq: Remq, runs: Runs) -> None:
    remq("consolidation", "enable")
    claim = runs.claim("alice", force=True)
    runs.start("alice", claim.token)
    said = sentence(remq("consolidation", "run", "--agent", "alice", "--here"))
    assert "running already" in said


@pytest.mark.usefixtures("stored")
def test_a_pass_may_be_left_to_a_worker(remq: Remq, client: Client) -> None:
    remq("consolidation", "enable")
    told = remq("consolidation", "run", "--agent", "alice", "--no-wait", "--json").json
    assert told == {"agent": "alice", "run": told["run"], "queued": True}
    assert client.lrange("rq:queue:remq", 0, -1) == [f"remq-{told['run']}".encode()]


@pytest.mark.usefixtures("stored")
def test_without_a_worker_the_pass_stays_queued(
    remq: Remq, monkeypatch: pytest.MonkeyPatch
) -> None:
    remq("consolidation", "enable")
    monkeypatch.setattr(consolidation, "NO_WORKER_S", 0)
    said = sentence(remq("consolidation", "run", "--agent", "alice", "--json"))
    assert "No worker has taken the pass yet: is `remq worker` running? It stays queued." in said


@pytest.mark.usefixtures("stored")
def test_a_job_that_is_lost_is_no_stack_trace(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    remq("consolidation", "enable")

    def enqueue_and_lose(*arguments: Any, **options: Any) -> str:
        name = enqueue_pass(*arguments, **options)
        client.delete(f"rq:job:{name}")
        return name

    monkeypatch.setattr(consolidation, "enqueue_pass", enqueue_and_lose)
    assert "The pass was not done" in sentence(remq("consolidation", "run", "--agent", "alice"))


def test_a_tick_tells_whom_it_enqueued(remq: Remq, stored: AgentMemory) -> None:
    assert remq("scheduler", "--once").out.startswith("Consolidation is off for every agent")
    remq("consolidation", "enable")
    stored.client.zadd("remq:due", {"alice": 1})
    (run,) = remq("scheduler", "--once", "--json").json["enqueued"]
    assert run["agent"] == "alice"
    assert remq("scheduler", "--once").out == "No agent is due.\n"


def test_a_tick_tells_whom_it_put_off_and_why(
    remq: Remq, stored: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    remq("consolidation", "enable")
    stored.client.zadd("remq:due", {"alice": 1})
    monkeypatch.setenv("REMQ_AGENT_QUEUES", "list:remq:recall")
    stored.client.rpush("remq:recall", "work")
    tick = remq("scheduler", "--once", "--json").json
    assert tick["enqueued"] == []
    assert tick["deferred"][0]["reason"] == "list:remq:recall has 1 entry waiting"


def test_switching_all_off_names_the_agents_that_stay_on(remq: Remq, stored: AgentMemory) -> None:
    remq("consolidation", "enable", "--agent", "alice")
    done = remq("consolidation", "disable")
    assert done.out == "Consolidation is off for all agents.\n"
    assert "Agent alice has settings of its own: on, with offline." in done.err
    assert stored.client.hget("remq:{alice}:config", "enabled") == b"1"


# Forgetting.


@pytest.mark.usefixtures("stored")
def test_a_prefix_that_names_several_is_shown_before_anything_goes(
    remq: Remq, stored: AgentMemory
) -> None:
    forget = ("memory", "forget", "--agent", "alice", "--provenance", "user:4")
    said = sentence(remq(*forget))
    assert "names 3 provenances: user:40 (1), user:41 (1), user:42 (1)" in said
    assert remq(*forget, "--dry-run", "--json").json["removed"] == 3
    assert len(stored.ids()) == 3
    told = remq(*forget, "--yes", "--json").json
    assert (told["removed"], len(told["provenances"])) == (3, 3)
    assert stored.ids() == []


@pytest.mark.usefixtures("stored")
def test_exactly_one_provenance_may_be_named(remq: Remq) -> None:
    told = remq("memory", "forget", "--agent", "alice", "--exact", "user:41", "--json").json
    assert (told["removed"], told["ids"], told["provenances"]) == (1, [2], {"user:41": 1})


@pytest.mark.parametrize("words", [["purge"], ["decay"], ["purge", "--dry-run"]], ids=" ".join)
@pytest.mark.usefixtures("stored")
def test_every_removal_tells_how_many(remq: Remq, words: list[str]) -> None:
    assert remq("memory", *words, "--agent", "alice", "--json").json["removed"] == 0


@pytest.mark.usefixtures("stored")
def test_one_memory_is_deleted(remq: Remq) -> None:
    told = remq("memory", "delete", "2", "--agent", "alice", "--json").json
    assert told["removed"] == 1
    assert remq("memory", "stats", "--agent", "alice", "--json").json["items"] == 2


# Dead letters.


@pytest.fixture
def letters(client: Client) -> DeadLetters:
    """Two refused events."""
    dead = DeadLetters(client, Keys(), 100)
    dead.add(b"1-0", {b"agent": b"alice"}, "text is missing")
    dead.add(b"2-0", {b"agent": b"bob", b"text": b"\xff"}, "text is not UTF-8")
    return dead


@pytest.mark.usefixtures("letters")
def test_dead_letters_are_listed_with_their_reason(remq: Remq) -> None:
    first, second = remq("dead", "list", "--json").lines
    assert first == {"id": "1-0", "reason": "text is missing", "fields": {"agent": "alice"}}
    assert second["fields"] == {"agent": "bob", "text": "\\xff"}
    assert "text is missing" in remq("dead", "list").out


def test_dead_letters_are_sent_again(remq: Remq, letters: DeadLetters, client: Client) -> None:
    assert remq("dead", "replay", "1-0", "--json").json["replayed"] == 1
    ((_, fields),) = client.xrange("remq:events")
    assert (fields[b"agent"], fields[b"event_id"]) == (b"alice", b"1-0")
    assert [letter.id for letter in letters.list()] == ["2-0"]
    assert remq("dead", "replay", "--all", "--json").json["replayed"] == 1


def test_dead_letters_are_purged_only_when_meant(
    remq: Remq, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    asked = remq("dead", "purge", "--json")
    assert (asked.code, asked.out) == (1, "")
    assert letters.count() == 2
    assert remq("dead", "purge", "--yes", "--json").json == {"removed": 2}


# Health.


def test_status_in_one_look(remq: Remq, stored: AgentMemory) -> None:
    emit(stored.client, Event("alice", "hello"))
    found = remq("status", "--json").json
    assert (found["agents"], found["events_waiting"], found["consolidation"]) == (1, 1, "off")
    assert found["faults"] == []
    ((entry, _),) = stored.client.xrange("remq:events")
    assert found["oldest_event"] == int(entry.partition(b"-")[0]) / 1000
    assert remq("status").out.startswith("server")


def test_status_without_events(remq: Remq, client: Client) -> None:
    assert client.ping()
    assert remq("status", "--json").json["oldest_event"] is None
    assert "oldest_event        none\n" in remq("status").out


def test_the_doctor_says_what_to_start(remq: Remq, stored: AgentMemory) -> None:
    assert remq("doctor").out == "Nothing is wrong.\n"
    assert remq("doctor", "--json").json == {"ok": True, "faults": []}
    emit(stored.client, Event("alice", "hello"))
    remq("consolidation", "enable")
    done = remq("doctor", "--json")
    assert done.code == 1
    told = json.loads(done.out)
    assert not told["ok"]
    assert "Events wait and no writer runs: start `remq writer`." in told["faults"]
    assert "Consolidation is on and no scheduler runs: start `remq scheduler`." in told["faults"]
    remq("consolidation", "run", "--agent", "alice", "--no-wait")
    assert "Passes wait and no worker runs: start `remq worker`." in remq("doctor").out


def test_the_doctor_sees_a_server_that_may_lose_memories(remq: Remq, client: Client) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        done = remq("doctor")
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    assert done.code == 1
    assert "The server may evict memories (maxmemory-policy allkeys-lru)" in done.out


@pytest.mark.usefixtures("client")
def test_the_doctor_sees_another_model(remq: Remq, monkeypatch: pytest.MonkeyPatch) -> None:
    remq("consolidation", "enable")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert "Consolidation was switched on for offline" in remq("doctor").out
