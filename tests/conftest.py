"""A real server for every test that needs one, and a look for stray keys after each."""

import re
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from worker import embedded
from worker.keys import Keys
from worker.memory.store import AgentMemory
from worker.runs import Runs
from worker.settings import Settings
from worker.stores import agent_memory

#: Every key remq or RQ may leave behind; anything else is a bug.
KNOWN_KEYS = re.compile(
    r"remq:(events|dead|agents|due|config|overrides|leader|insights|recall|reply:.+)"
    r"|remq:\{[^{}\s]+\}:(item:\d+|links:\d+|ids|rev|epoch|items|unconsolidated|expiring"
    r"|provenance|insights|seen|connections|changes|run|passes|config)"
    r"|rq:.+"
)


def wait_until(true: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Wait for a condition, looking often; fail when it does not come."""
    limit = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < limit, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of an embedded Valkey."""
    with embedded.server() as url:
        yield url


@pytest.fixture
def client(server: str) -> Iterator[redis.Redis]:
    """An empty server; afterwards it may hold known keys only."""
    client = redis.Redis.from_url(server, socket_timeout=10)
    client.flushall()
    yield client
    stray = [key for key in client.scan_iter() if not KNOWN_KEYS.fullmatch(key.decode())]
    client.flushall()
    client.close()
    assert not stray, f"stray keys: {stray}"


@pytest.fixture
def settings(server: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings for the embedded server, free of this machine's environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "REMQ_QUEUE_URL", "REMQ_AGENT_QUEUES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REMQ_REDIS_URL", server)
    return Settings(redis_url=server, quiet_s=0, reclaim_idle_s=0.05, llm="offline")


@pytest.fixture
def keys() -> Keys:
    """The keys under the default prefix."""
    return Keys()


@pytest.fixture
def alice(client: redis.Redis, settings: Settings) -> AgentMemory:
    """The memory of an agent."""
    return agent_memory(client, settings, "alice")


@pytest.fixture
def runs(client: redis.Redis, settings: Settings) -> Runs:
    """The runs of all agents."""
    return Runs(client, settings)
