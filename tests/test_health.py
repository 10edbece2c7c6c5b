"""What a start against a server says: too old is fatal, what may lose memories is a warning."""

from typing import Any

import pytest
from redis.exceptions import ConnectionError as ServerConnectionError
from redis.exceptions import NoPermissionError

from worker.connect import Client
from worker.health import server_faults

GOOD = {
    "redis_version": "7.2.4",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "maxmemory": 0,
    "used_memory": 10,
}


class Server:
    """A server that answers INFO, and nothing else."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def info(self) -> Any:
        """Say what it was told to say."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def faults(**changes: object) -> list[str]:
    """What is said of a good server with some changes."""
    return [fault.text for fault in server_faults(Server({**GOOD, **changes}))]


def test_a_good_server_has_no_faults(client: Client) -> None:
    assert faults() == []
    assert server_faults(client) == []


@pytest.mark.parametrize("version", ["6.0.16", "5.0.7", "6.1"])
def test_an_old_server_is_refused(version: str) -> None:
    (fault,) = server_faults(Server({**GOOD, "redis_version": version}))
    assert fault.fatal
    assert "older than Redis 6.2" in fault.text


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "8.0-rc1", "255.255.255"])
def test_a_new_server_is_taken(version: str) -> None:
    assert faults(redis_version=version) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "may evict memories (maxmemory-policy allkeys-lru)"),
        ({"aof_enabled": 0}, "keeps no append-only file"),
        ({"maxmemory": 100, "used_memory": 95}, "memory is 95 % full"),
    ],
)
def test_what_may_lose_memories_is_a_warning(changes: dict[str, object], says: str) -> None:
    (fault,) = server_faults(Server({**GOOD, **changes}))
    assert not fault.fatal
    assert says in fault.text


def test_a_server_that_hides_itself_is_told() -> None:
    (fault,) = server_faults(Server(NoPermissionError("no")))
    assert not fault.fatal
    assert "INFO" in fault.text


def test_a_server_without_a_version_is_taken() -> None:
    assert server_faults(Server({**GOOD, "redis_version": None})) == []


def test_a_server_that_is_gone_is_no_warning() -> None:
    with pytest.raises(ServerConnectionError):
        server_faults(Server(ServerConnectionError("gone")))


def test_the_first_node_speaks_for_a_cluster() -> None:
    assert server_faults(Server({"10.0.0.1:6379": GOOD, "10.0.0.2:6379": GOOD})) == []
