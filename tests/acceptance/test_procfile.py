"""The Procfile's processes, started by honcho against a real server."""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from producer import Memory
from tests.acceptance.memories import NOTES
from tests.acceptance.processes import (
    ROOT,
    Company,
    RedisServer,
    alive,
    descendants,
    environment,
    free_ports,
    remq,
)
from tests.conftest import wait_until

pytestmark = pytest.mark.acceptance


@pytest.fixture
def real_server(server: str, tmp_path: Path) -> Iterator[str]:
    """The URL of a redis-server of this machine, or of the embedded server where there is none."""
    if RedisServer.program() is None:
        yield server
        return
    redis_server = RedisServer(tmp_path)
    redis_server.start()
    yield redis_server.url
    redis_server.end()


def test_honcho_starts_everything(real_server: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = environment(real_server, REMQ_DASHBOARD_PORT=str(port), PATH=path)
    company = Company(tmp_path, environ)
    client = redis.Redis.from_url(real_server)
    try:
        honcho = company.launch("-m", "honcho", "-f", str(ROOT / "Procfile"), "start")
        for started in ("writer started", "scheduler started", "Listening on", "recaller started"):
            honcho.wait_for(started)
        family = descendants(honcho.popen.pid)

        agent = Memory("alice", client)
        for note in NOTES:
            agent.episodic(note)
        wait_until(lambda: agent.recall("invoice export"))
        assert remq("consolidation", "enable", environ=environ).returncode == 0
        wait_until(lambda: client.xlen("remq:insights"))
        assert "insight" in [found.kind for found in agent.recall("Frankfurt audit", k=10)]
        wait_until(lambda: "remq" in queues(port))

        honcho.stop()
        assert not [pid for pid in family if alive(pid)]
        company.check_logs(*NOTES)
    finally:
        company.end()
        client.flushall()
        client.close()


def queues(port: int) -> list[str]:
    """The queues that rq-dashboard shows."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/0/data/queues.json", timeout=5
        ) as page:
            return [one["name"] for one in json.loads(page.read())["queues"]]
    except OSError:
        return []
