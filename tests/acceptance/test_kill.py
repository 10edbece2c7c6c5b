"""kill -9 between any two steps: what was begun is done again, and its effects are there once."""

import signal
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from producer import Event, emit_many
from tests.acceptance.memories import check_once, send_notes, settled
from tests.acceptance.processes import Company, Running
from tests.chat_server import ChatServer, Reply, good_answer, prompt_of, step_of
from tests.conftest import wait_until
from worker.connect import Client
from worker.memory.store import AgentMemory
from worker.runs import Runs
from worker.settings import Settings
from worker.stores import agent_memory, config_store
from worker.writer import Writer

pytestmark = pytest.mark.acceptance

#: Everything a worker does for a pass, in its order; see crashing.py.
POINTS = [
    "before start",
    "after start",
    "after metadata",
    "after connections",
    "after insight",
    "before commit",
    "after commit",
    "before published",
    "after published",
]
LEASE_S = "3"


@pytest.fixture
def memories(
    client: Client, settings: Settings, request: pytest.FixtureRequest
) -> dict[str, AgentMemory]:
    """Agents with four stored notes each, all due."""
    agents: list[str] = request.param
    send_notes(client, agents)
    Writer(client, settings, config_store(client, settings)).run(burst=True)
    return {agent: agent_memory(client, settings, agent) for agent in agents}


def recover(company: Company, memories: dict[str, AgentMemory], runs: Runs, **environ: str) -> None:
    """Start a worker that is whole, and wait until it has done what the dead ones left."""
    company.start("worker", REMQ_LEASE_S=LEASE_S, **environ)
    wait_until(lambda: all(settled(memory, runs) for memory in memories.values()), 30)


@pytest.mark.parametrize("memories", [[f"agent-{n}" for n in range(len(POINTS))]], indirect=True)
def test_a_worker_killed_at_any_point_of_a_pass(
    company: Company, memories: dict[str, AgentMemory], settings: Settings, runs: Runs
) -> None:
    config_store(runs.client, settings).set({"enabled": "on", "model": "offline"})
    company.start("scheduler", REMQ_LEASE_S=LEASE_S)
    # Each takes one pass and dies of it; which agent's is left to chance.
    doomed = [
        company.launch(
            "-m", "tests.acceptance.crashing", point, "kill", "worker", REMQ_LEASE_S=LEASE_S
        )
        for point in POINTS
    ]
    wait_until(lambda: all(worker.popen.poll() is not None for worker in doomed), 60)
    assert [worker.popen.returncode for worker in doomed] == [-signal.SIGKILL] * len(POINTS)

    recover(company, memories, runs)

    for memory in memories.values():
        check_once(memory, runs, announced=2)
    # Only the one that died between the stream and the note of it may be there twice.
    assert runs.client.xlen("remq:insights") <= len(POINTS) + 1


TEAMS = {"red": "metadata", "green": "connections", "blue": "insight"}


@pytest.fixture
def stuck() -> Iterator[ChatServer]:
    """A model that never answers one step of each team, the first time it is asked."""
    hung: set[str] = set()

    def script(request: dict[str, Any]) -> str | Reply:
        (team,) = [name for name in TEAMS if f"({name})" in prompt_of(request)]
        if TEAMS[team] == step_of(request) and team not in hung:
            hung.add(team)
            return Reply(delay_s=600)
        return good_answer(request)

    with ChatServer(script) as server:
        yield server


@pytest.mark.parametrize("memories", [list(TEAMS)], indirect=True)
def test_a_worker_and_its_child_killed_while_the_model_thinks(
    company: Company,
    memories: dict[str, AgentMemory],
    settings: Settings,
    runs: Runs,
    stuck: ChatServer,
) -> None:
    config_store(runs.client, settings).set(
        {"enabled": "on", "model": f"gpt-5-mini at {stuck.base_url}"}
    )
    model = {"REMQ_LLM": "openai", "OPENAI_BASE_URL": stuck.base_url}
    company.start("scheduler", REMQ_LEASE_S="4")
    workers = [company.start("worker", REMQ_LEASE_S="4", **model) for _ in TEAMS]
    # One question of red, two of green, three of blue: then all three hang.
    wait_until(lambda: len(stuck.requests) == 6)
    for worker in workers:
        worker.kill()
    assert not any(runs.reports(agent) for agent in TEAMS)

    recover(company, memories, runs, **model)

    for memory in memories.values():
        check_once(memory, runs)
    assert len(stuck.requests) == 6 + 3 * len(TEAMS)


EVENTS = 6000
AGENTS = ("ann", "bob", "cem")


def test_writers_killed_under_load_lose_and_double_nothing(
    company: Company, client: Client, settings: Settings
) -> None:
    writers = [company.start("writer", REMQ_BATCH="50") for _ in range(2)]
    sending = Thread(target=send_many, args=(client,))
    sending.start()
    for share in (0.1, 0.3, 0.6):
        wait_until(lambda share=share: stored(client) >= share * EVENTS)  # type: ignore[misc]
        victim: Running = writers.pop(0)
        victim.kill()
        writers.append(company.start("writer", REMQ_BATCH="50"))
    sending.join()
    wait_until(lambda: client.xlen("remq:events") == 0, 30)

    for number, agent in enumerate(AGENTS):
        texts = [item.text for item in agent_memory(client, settings, agent).all_items()]
        assert sorted(texts) == sorted(f"event {n}" for n in range(number, EVENTS, len(AGENTS)))
    assert client.xpending("remq:events", "writers")["pending"] == 0
    assert client.xlen("remq:dead") == 0


def send_many(client: Client) -> None:
    """Events in batches, some of them twice, as after a lost answer."""
    events = [Event(AGENTS[n % len(AGENTS)], f"event {n}", event_id=f"e{n}") for n in range(EVENTS)]
    for start in range(0, EVENTS, 100):
        emit_many(client, events[start : start + 110])


def stored(client: Client) -> int:
    """How many memories there are."""
    return sum(client.zcard(f"remq:{{{agent}}}:items") for agent in AGENTS)
