"""The Procfile's processes, started by honcho against a real server."""

import json
import os
import shutil
import subprocess
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
    program = shutil.which("redis-server")
    if program is None:
        yield server
        return
    (port,) = free_ports(1)
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
    with (tmp_path / "redis.log").open("wb") as log:
        process = subprocess.Popen([program, *options], cwd=tmp_path, stdout=log)
    yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    process.wait(10)


def test_honcho_starts_everything(real_server: str, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = environment(real_server, REMQ_DASHBOARD_PORT=str(port), PATH=path)
    company = Company(tmp_path, environ)
    client = redis.Redis.from_url(real_server)
    try:
        wait_until(lambda: answers(client))
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


def answers(client: redis.Redis) -> bool:
    """Whether the server is up."""
    try:
        return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


def queues(port: int) -> list[str]:
    """The queues that rq-dashboard shows."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/0/data/queues.json", timeout=5
        ) as page:
            return [one["name"] for one in json.loads(page.read())["queues"]]
    except OSError:
        return []
