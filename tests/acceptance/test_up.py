"""`remq up`: everything on one machine, with its own server."""

import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest
import redis

from tests.acceptance.memories import NOTES
from tests.acceptance.processes import Company, Running, alive, command_line, descendants, remq
from tests.conftest import wait_until

pytestmark = pytest.mark.acceptance


@pytest.fixture
def data(company: Company, tmp_path: Path) -> Path:
    """The folder of the embedded server; the environment names no other server."""
    del company.environ["REMQ_REDIS_URL"]
    return tmp_path / "data"


def start(company: Company, data: Path) -> tuple[Running, str]:
    """Start everything; the URL it says to emit to."""
    up = company.start("up", "--data-dir", str(data))
    up.wait_for("recaller started")
    up.wait_for("scheduler started")
    said = re.search(r"Emit to (redis://\S+)", up.said)
    assert said is not None, up.said
    return up, said[1]


def test_everything_runs_stops_and_keeps_its_data(company: Company, data: Path) -> None:
    up, url = start(company, data)
    environ = {**company.environ, "REMQ_REDIS_URL": url}
    with redis.Redis.from_url(url) as client:
        for note in NOTES:
            client.xadd("remq:events", {"agent": "alice", "text": note})
        remq("consolidation", "enable", environ=environ)
        wait_until(lambda: client.xlen("remq:insights"))
    family = descendants(up.popen.pid)
    assert len(family) >= 5  # A server and four roles.
    assert stat.S_IMODE(data.stat().st_mode) == 0o700

    second = remq("up", "--data-dir", str(data), environ=company.environ)
    assert second.returncode == 1
    assert "A server already keeps its data in" in second.stderr

    assert up.stop() == 0
    assert not [pid for pid in family if alive(pid)]
    assert "Stopping." in up.said
    assert "Error" not in up.said

    again, url = start(company, data)
    environ["REMQ_REDIS_URL"] = url
    listed = remq("memory", "list", "--agent", "alice", "--json", environ=environ)
    kinds = [json.loads(line)["kind"] for line in listed.stdout.splitlines()]
    assert sorted(kinds) == ["insight", "note", "note", "note", "note"]
    found = remq("recall", "--agent", "alice", "Frankfurt", "--json", environ=environ)
    assert len(json.loads(found.stdout)["items"]) >= 3
    assert again.stop() == 0


def test_ctrl_c_stops_the_server_last(company: Company, data: Path) -> None:
    """In a terminal Ctrl-C reaches the whole group, the embedded server too."""
    up, _ = start(company, data)
    family = descendants(up.popen.pid)
    os.killpg(up.popen.pid, signal.SIGINT)
    assert up.popen.wait(10) == 0
    assert not [pid for pid in family if alive(pid)]
    assert "Error" not in up.said


def test_a_role_that_ends_stops_everything_and_says_so(company: Company, data: Path) -> None:
    up, _ = start(company, data)
    roles = descendants(up.popen.pid)
    (writer,) = [pid for pid in roles if command_line(pid).rstrip().endswith("worker writer")]
    os.kill(writer, signal.SIGKILL)
    assert up.popen.wait(10) == 1
    assert "The writer ended (exit code -9), so everything was stopped" in up.said
    assert not [pid for pid in roles if alive(pid)]


def test_a_file_of_that_name_beside_us_is_not_run(
    company: Company, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text("raise SystemExit('not ours')")
    company.folder_of_work = tmp_path
    up = company.launch("-P", "-m", "worker", "up", "--data-dir", str(data))
    up.wait_for("recaller started")
    assert up.stop() == 0
    assert "not ours" not in up.said
