"""The four roles as processes: the whole way of an event, and how each of them stops."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.memories import NOTES, check_once, send_notes
from tests.acceptance.processes import Company, Running, remq
from tests.chat_server import ChatServer, Reply, good_answer
from tests.conftest import wait_until
from worker.connect import Client
from worker.runs import Runs
from worker.settings import Settings
from worker.stores import agent_memory

pytestmark = pytest.mark.acceptance

ROLES = ("writer", "scheduler", "worker", "recaller")


def test_an_event_is_stored_recalled_slept_on_and_recalled_as_an_insight(
    company: Company, client: Client, settings: Settings, runs: Runs
) -> None:
    with ChatServer() as model:
        company.environ |= {"REMQ_LLM": "openai", "OPENAI_BASE_URL": model.base_url}
        for role in ROLES:
            company.start(role)

        for note in NOTES:  # What an agent in any language does:
            client.xadd("remq:events", {"agent": "alice", "text": f"{note} (alice)"})
        wait_until(lambda: len(ask(client, "invoice export")["items"]) == 1)

        enabled = remq("consolidation", "enable", "--json", environ=company.environ)
        assert json.loads(enabled.stdout)["model"] == f"gpt-5-mini at {model.base_url}"
        wait_until(lambda: client.xlen("remq:insights"))
        wait_until(lambda: not runs.record("alice").unpublished)
        assert model.steps == ["metadata", "connections", "insight"]

    ((_, told),) = client.xrange("remq:insights")
    assert told[b"agent"] == b"alice"
    found = ask(client, "billing and the audit")["items"]
    assert told[b"text"].decode() in [item["text"] for item in found if item["kind"] == "insight"]
    check_once(agent_memory(client, settings, "alice"), runs)
    company.check_logs(*NOTES, told[b"text"].decode())


def ask(client: Client, query: str) -> dict[str, Any]:
    """Recall over the list protocol, without counting it."""
    name = f"remq:reply:{threading.get_ident()}"
    asked = {"id": "1", "agent": "alice", "query": query, "reply_to": name, "touch": False}
    client.lpush("remq:recall", json.dumps(asked))
    taken = client.blpop([name], 9)
    assert taken is not None
    answer: dict[str, Any] = json.loads(taken[1])
    assert answer["ok"], answer
    return answer


def test_a_pass_is_run_through_the_queue_and_reported(company: Company, client: Client) -> None:
    company.start("writer")
    company.start("worker")
    send_notes(client, ["alice"])
    wait_until(lambda: client.zcard("remq:{alice}:items") == len(NOTES))
    remq("consolidation", "enable", environ=company.environ)
    done = remq("consolidation", "run", "--agent", "alice", "--json", environ=company.environ)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["items_reviewed"], report["insights_written"]) == (4, 1)


# Stopping: SIGTERM, exit code 0, nothing torn.


@pytest.mark.parametrize(
    ("role", "started"),
    [
        ("writer", "writer started"),
        ("scheduler", "scheduler started"),
        ("worker", "Listening on remq"),
        ("recaller", "recaller started"),
    ],
)
def test_an_idle_role_stops_when_told(
    company: Company, client: Client, role: str, started: str
) -> None:
    client.hset("remq:config", mapping={"enabled": "1", "model": "offline"})
    running = company.start(role)
    running.wait_for(started)
    if role == "scheduler":
        wait_until(lambda: client.exists("remq:leader"))
    assert running.stop() == 0
    assert not client.exists("remq:leader")
    if role == "writer":
        assert client.xinfo_consumers("remq:events", "writers") == []
    if role == "worker":
        assert client.smembers("rq:workers") == set()


def test_a_busy_writer_stops_with_nothing_torn(
    company: Company, client: Client, settings: Settings
) -> None:
    writer = company.start("writer", REMQ_BATCH="10")
    writer.wait_for("writer started")
    agents = [f"agent-{number}" for number in range(500)]
    send_notes(client, agents)
    wait_until(lambda: client.xlen("remq:events") < len(NOTES) * len(agents))
    assert writer.stop() == 0
    left = client.xlen("remq:events")
    assert client.xpending("remq:events", "writers")["pending"] == 0
    remq("writer", "--burst", environ=company.environ)
    stored = sum(len(agent_memory(client, settings, agent).ids()) for agent in agents)
    assert stored == len(NOTES) * len(agents)
    assert left > 0


def test_a_worker_finishes_the_pass_in_hand(
    company: Company, client: Client, settings: Settings, runs: Runs
) -> None:
    check_worker(company, client, runs, Running.stop)
    check_once(agent_memory(client, settings, "alice"), runs)


def test_a_pass_outlives_its_worker(
    company: Company, client: Client, settings: Settings, runs: Runs
) -> None:
    """kill -9 of the worker alone: its child goes on, and is not taken for dead."""

    def kill(worker: Running) -> int:
        worker.popen.kill()
        return worker.popen.wait(10)

    check_worker(company, client, runs, kill)
    check_once(agent_memory(client, settings, "alice"), runs)


def check_worker(
    company: Company, client: Client, runs: Runs, stop: Callable[[Running], int]
) -> None:
    """Stop a worker while the model thinks, then let the model answer."""
    go = threading.Event()

    def slow(request: dict[str, Any]) -> str | Reply:
        go.wait(20)
        return good_answer(request)

    with ChatServer(slow) as model:
        company.environ |= {"REMQ_LLM": "openai", "OPENAI_BASE_URL": model.base_url}
        send_notes(client, ["alice"])
        remq("writer", "--burst", environ=company.environ)
        remq("consolidation", "enable", environ=company.environ)
        worker = company.start("worker")
        remq("consolidation", "run", "--agent", "alice", "--no-wait", environ=company.environ)
        wait_until(lambda: model.requests or runs.record("alice").state == "running")
        ending = threading.Timer(0.2, go.set)
        ending.start()
        stop(worker)
        ending.join()
        wait_until(lambda: runs.reports("alice"))
        wait_until(lambda: not runs.record("alice").unpublished)
