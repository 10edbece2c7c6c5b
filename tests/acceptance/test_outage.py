"""A server that goes away and comes back: every role waits for it, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from producer import Memory
from tests.acceptance.memories import NOTES
from tests.acceptance.processes import Company, RedisServer, environment, remq
from tests.conftest import wait_until

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(RedisServer.program() is None, reason="there is no redis-server"),
]

ROLES = ("writer", "scheduler", "worker", "recaller")


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server to kill."""
    running = RedisServer(tmp_path)
    running.start()
    yield running
    running.end()


def test_every_role_waits_for_a_server_that_comes_back(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    company = Company(tmp_path, environment(redis_server.url))
    agent = Memory("alice", redis_server.client)
    try:
        roles = {name: company.start(name) for name in ROLES}
        for name in ("writer", "scheduler", "recaller"):
            roles[name].wait_for(f"{name} started")
        roles["worker"].wait_for("Listening on")
        remq("consolidation", "enable", environ=company.environ)
        for note in NOTES[:2]:
            agent.episodic(note)
        wait_until(lambda: len(agent.recall("region Frankfurt audit billing", touch=False)) == 2)

        redis_server.popen.kill()
        redis_server.popen.wait(10)
        for name in ("writer", "scheduler", "recaller"):
            roles[name].wait_for("Waiting for it.")
        roles["worker"].wait_for("could not connect")
        redis_server.start()

        for note in NOTES[2:]:
            agent.episodic(note)
        wait_until(lambda: redis_server.client.xlen("remq:insights"))
        assert [role.stop() for role in roles.values()] == [0, 0, 0, 0]
        company.check_logs(*NOTES)
    finally:
        company.end()
