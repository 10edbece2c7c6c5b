"""Which roles the doctor misses, by what they leave on the server; and whose model differs."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from rq.utils import now as rq_now
from rq.utils import utcformat

from producer import Event, emit
from tests.acceptance.processes import free_ports
from tests.cli.command_line import Remq
from tests.conftest import wait_until
from worker.cli import health
from worker.connect import Client
from worker.group import Consumer
from worker.keys import Keys
from worker.queue import WORKER_TTL_S
from worker.settings import Settings
from worker.stores import config_store

NO_WRITER = "Events wait and no writer runs: start `remq writer`."
NO_WORKER = "Passes wait and no worker runs: start `remq worker`."
NO_RECALLER = "Recall requests wait and nobody takes them: start `remq recaller`."


def faults(remq: Remq) -> list[str]:
    """What the doctor says; its exit code agrees."""
    done = remq("doctor", "--json")
    told = json.loads(done.out)
    assert (done.code, told["ok"]) == ((1, False) if told["faults"] else (0, True))
    return list(told["faults"])


def join(client: Client) -> Consumer:
    """A writer that has read all there was, and waits for more."""
    writer = Consumer(client, Keys().events, 30)
    writer.join()
    writer.read(1, block=False)
    return writer


class TestWriter:
    def test_one_that_reads_is_alive(self, remq: Remq, client: Client) -> None:
        join(client)
        emit(client, Event("alice", "hello"))
        assert faults(remq) == []

    def test_the_name_of_a_killed_one_is_none(
        self, remq: Remq, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        join(client)
        emit(client, Event("alice", "hello"))
        monkeypatch.setattr(health, "WRITER_GONE_S", 0)
        assert faults(remq) == [NO_WRITER]

    def test_without_events_nobody_is_missed(
        self, remq: Remq, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        join(client)
        monkeypatch.setattr(health, "WRITER_GONE_S", 0)
        assert faults(remq) == []


class TestWriterBefore72:
    """Where a writer that waits for events looks as dead as one that was killed."""

    @pytest.fixture
    def old(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
        """A server of 6.2 or 7.0, where one is installed."""
        program = shutil.which("redis-server")
        told = subprocess.check_output([program, "--version"], text=True) if program else ""
        if not re.search(r"v=(6\.2|7\.0)\.", told):
            pytest.skip("no redis-server of 6.2 or 7.0 is installed")
        (port,) = free_ports(1)
        place = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path))
        command = [str(program), *place, "--save", "", "--appendonly", "yes"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            client: Client = redis.Redis(port=port)
            try:
                wait_until(lambda: answers(client))
                monkeypatch.setenv("REMQ_REDIS_URL", f"redis://127.0.0.1:{port}/0")
                yield client
            finally:
                client.close()
                process.kill()  # It refuses to end while it begins its file.

    def test_only_an_event_that_has_waited_long_tells(
        self, remq: Remq, old: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        join(old)
        emit(old, Event("alice", "hello"))
        monkeypatch.setattr(health, "WRITER_GONE_S", 0)
        assert faults(remq) == []
        monkeypatch.setenv("REMQ_RECLAIM_IDLE_S", "0")
        assert faults(remq) == [NO_WRITER]
        monkeypatch.setattr(health, "WRITER_GONE_S", 3600)
        assert faults(remq) == []


def answers(client: Client) -> bool:
    """Whether a server is up."""
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


class TestWorker:
    @pytest.fixture
    def waiting(self, client: Client) -> None:
        """A pass in the queue."""
        client.rpush("rq:queue:remq", "remq-token")

    @pytest.mark.usefixtures("waiting")
    @pytest.mark.parametrize("heartbeat", [None, "soon", "2020-01-01T00:00:00.000000Z"])
    def test_the_name_of_a_killed_one_is_none(
        self, remq: Remq, client: Client, heartbeat: str | None
    ) -> None:
        client.sadd("rq:workers:remq", "rq:worker:a")
        if heartbeat:
            client.hset("rq:worker:a", "last_heartbeat", heartbeat)
        assert faults(remq) == [NO_WORKER]

    @pytest.mark.usefixtures("waiting")
    def test_one_that_gave_a_sign_of_life_is_alive(self, remq: Remq, client: Client) -> None:
        client.sadd("rq:workers:remq", "rq:worker:a", "rq:worker:b")
        client.hset("rq:worker:b", "last_heartbeat", utcformat(rq_now()))
        assert WORKER_TTL_S > 0
        assert faults(remq) == []


class TestRecaller:
    def test_a_request_that_stays_is_told(
        self, remq: Remq, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(health, "RECALLER_GONE_S", 0)
        client.lpush("remq:recall", "a question")
        assert faults(remq) == [NO_RECALLER]

    def test_one_that_is_taken_meanwhile_is_not(
        self, remq: Remq, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client.lpush("remq:recall", "a question", "another")
        monkeypatch.setattr("worker.cli.health.time.sleep", lambda _: client.rpop("remq:recall"))
        assert faults(remq) == []


class TestModel:
    @pytest.fixture(autouse=True)
    def scheduler(self, client: Client) -> None:
        """One leads."""
        client.set("remq:leader", "token")

    def test_that_of_one_agent(
        self, remq: Remq, client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = config_store(client, settings)
        for agent in ("alice", "bob"):
            store.set({"enabled": "on", "model": "another"}, agent)
        store.set({"enabled": "off", "model": "a third"}, "carol")
        (told,) = faults(remq)
        assert told.startswith(
            "Consolidation was switched on for another (agents alice, bob), but this environment "
            "would ask offline:"
        )
        monkeypatch.setattr(health, "NAMED", 1)
        assert "(agents alice and 1 more)" in faults(remq)[0]

    def test_that_of_all_is_told_once(self, remq: Remq, client: Client, settings: Settings) -> None:
        store = config_store(client, settings)
        store.set({"enabled": "on", "model": "another"})
        store.set({"min_items": "4"}, "alice")
        (told,) = faults(remq)
        assert told.startswith("Consolidation was switched on for another, but")
