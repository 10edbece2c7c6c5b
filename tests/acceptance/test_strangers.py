"""Real workers among jobs that are not ours: nothing of those runs, and the next pass does."""

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import redis
from rq.registry import FailedJobRegistry
from rq.webhook import Webhook

from tests.acceptance.crashing import SECRET
from tests.acceptance.processes import Company, command_line, descendants, environment, remq
from tests.chat_server import ChatServer, Reply
from tests.conftest import wait_until
from tests.stage import remember
from tests.strangers import PLANT, QUEUE, REFUSED, UNREADABLE, fetch, payload, put
from worker.memory.store import AgentMemory
from worker.queue import CONSOLIDATE, FAILURE_TTL_S, enqueue_pass, pass_queue
from worker.runs import Runs
from worker.settings import Settings
from worker.stores import config_store

pytestmark = pytest.mark.acceptance

TEXT = "The vault's combination is kept in the blue binder"


def due_pass(memory: AgentMemory, settings: Settings, model: str = "offline") -> str:
    """An agent with memories, switched on, and a claimed run; its token."""
    for text in (TEXT, "Ana asked for the combination", "The binder moved to the archive"):
        remember(memory, text)
    config_store(memory.client, settings).set({"enabled": "on", "model": model})
    claim = Runs(memory.client, settings).claim("alice")
    assert claim.taken
    return claim.token


class _Hook(BaseHTTPRequestHandler):
    called = 0

    def do_GET(self) -> None:
        type(self).called += 1
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()


@pytest.fixture
def hook() -> Iterator[str]:
    """The address of a page that counts its visitors."""
    _Hook.called = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_worker_refuses_strangers_and_does_the_next_pass(
    alice: AgentMemory, settings: Settings, tmp_path: Path, hook: str, server: str, start: str
) -> None:
    client, planted = alice.client, tmp_path / "planted"
    # A spawned child takes half a second, so that worker meets fewer of them.
    refused = dict(list(REFUSED.items())[: 2 if start == "spawn" else None])
    for name, fields in (UNREADABLE | refused).items():
        put(client, name, fields)
    client.hset("rq:job:callbacks", "webhooks", webhooks(hook))
    client.set("rq:job:odd", "text")
    client.rpush(QUEUE, "missing", "no such job", b"\xff\xfe", "", "odd")
    token = due_pass(alice, settings)
    name = enqueue_pass(pass_queue(client, settings), settings, "alice", token)
    client.hset(f"rq:job:{name}", mapping={**REFUSED["callbacks"], "webhooks": webhooks(hook)})
    client.hset(f"rq:job:{name}", "data", payload(CONSOLIDATE, "alice", token))

    environ = environment(server, REMQ_WORKER_START=start, **{PLANT: str(planted)})
    done = remq("worker", "--burst", environ=environ)

    assert done.returncode == 0
    assert not planted.exists()
    assert _Hook.called == 0
    (report,) = Runs(client, settings).reports("alice")
    assert (report.run, report.steps) == (
        token,
        {"metadata": "ok", "connections": "ok", "insight": report.steps["insight"]},
    )
    assert client.llen(QUEUE) == 0
    for one in refused:
        sentence = f"Job {one} is not one of remq's; nothing of it was run."
        assert done.stderr.count(sentence) == 1
        assert failed_because(client, one) == sentence
        assert 0 < client.ttl(f"rq:job:{one}") <= FAILURE_TTL_S or one == "no-origin"


def webhooks(url: str) -> str:
    """What a stranger would like to have called, however the job ends."""
    hooks = [Webhook(url, "finished"), Webhook(url, "failed")]
    return json.dumps([one.to_dict() for one in hooks])


def failed_because(client: redis.Redis, name: str) -> str:
    """What RQ keeps of a job's failure."""
    result = fetch(client, name).latest_result()
    assert result is not None
    return str(result.exc_string)


def test_a_failed_pass_tells_no_memory_and_no_key(
    alice: AgentMemory, settings: Settings, company: Company
) -> None:
    client = alice.client
    token = due_pass(alice, settings)
    name = enqueue_pass(pass_queue(client, settings), settings, "alice", token)

    worker = company.launch(
        "-m", "tests.acceptance.crashing", "after insight", "fault", "worker", "--burst",
        OPENAI_API_KEY="sk-hidden",
    )  # fmt: skip

    assert worker.popen.wait(20) == 0
    assert failed_because(client, name).startswith("ValueError in crashing.py, line ")
    assert name in FailedJobRegistry("remq", connection=client)
    company.check_logs(TEXT, SECRET, "sk-hidden")
    kept = repr([dump(client, key) for key in client.scan_iter("rq:*")])
    assert "combination" not in kept + failed_because(client, name)
    assert "sk-hidden" not in kept


def dump(client: redis.Redis, key: bytes) -> object:
    """Everything a key of RQ's holds."""
    readers: dict[Any, Callable[[bytes], object]] = {
        b"hash": client.hgetall,
        b"stream": client.xrange,
        b"set": client.smembers,
        b"string": client.get,
    }
    kind = client.type(key)
    return client.zrange(key, 0, -1) if kind == b"zset" else readers[kind](key)


def test_an_abandoned_job_runs_no_callback_when_a_worker_cleans_up(
    client: redis.Redis, tmp_path: Path, server: str
) -> None:
    """RQ's cleaning of its registries, at every start of a worker, would run these too."""
    fields = {**REFUSED["callbacks"], "status": "started", "retries_left": 3}
    client.hset("rq:job:left", mapping={"origin": "remq", **fields})
    client.hset("rq:job:unreadable", mapping={"origin": "remq", "status": "started"})
    client.zadd("rq:wip:remq", {"left:1": 1, "unreadable:1": 1, "no such:1": 1})
    client.zadd("rq:ready:remq", {"unreadable": 1})

    planted = tmp_path / "planted"
    done = remq("worker", "--burst", environ=environment(server, **{PLANT: str(planted)}))

    assert done.returncode == 0
    assert not planted.exists()
    assert client.hget("rq:job:left", "status") == b"failed"


def test_a_spawned_child_has_no_password_on_its_command_line(
    alice: AgentMemory, settings: Settings, company: Company, server: str
) -> None:
    secret = "hunter2-of-the-queue"
    client = alice.client
    client.acl_setuser(
        "remq",
        enabled=True,
        passwords=[f"+{secret}"],
        keys=["*"],
        commands=["+@all"],
        channels=["*"],
    )
    url = server.replace("redis://", f"redis://remq:{secret}@")
    try:
        with ChatServer(lambda _: Reply(content="[]", delay_s=30)) as chat:
            model = f"gpt-5-mini at {chat.base_url}"
            token = due_pass(alice, settings, model)
            enqueue_pass(pass_queue(client, settings), settings, "alice", token)
            worker = company.start(
                "worker",
                REMQ_REDIS_URL=url,
                REMQ_WORKER_START="spawn",
                REMQ_LLM="openai",
                OPENAI_BASE_URL=chat.base_url,
            )
            wait_until(lambda: chat.requests)
            family = [worker.popen.pid, *descendants(worker.popen.pid)]
            lines = [command_line(pid) for pid in family]
            worker.kill()
    finally:
        client.acl_deluser("remq")
    assert any("worker.horse" in line for line in lines)
    assert not any(secret in line for line in lines)
    company.check_logs(secret)
