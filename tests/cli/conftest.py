"""The command line against the test server, and three memories."""

import logging
import signal
from collections.abc import Iterator

import pytest

from tests.cli.command_line import Remq
from tests.stage import remember
from worker.memory.store import AgentMemory
from worker.settings import Settings

TEXTS = [
    "Billing moves to the Frankfurt region once the audit has passed",
    "Ana asked who signs off the audit of the Frankfurt region",
    "The invoice export reads from the old billing region until the audit",
]


@pytest.fixture
def remq(
    settings: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Remq]:
    """The command line against the test server; roles' signals and logs are put back."""
    assert settings
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    root = logging.getLogger()
    written = list(root.handlers)
    loggers = [root, *map(logging.getLogger, ("remq", "rq.worker", "rq.job"))]
    levels = [logger.level for logger in loggers]
    monkeypatch.setenv("REMQ_QUIET_S", "0")
    yield Remq(capsys)
    root.handlers[:] = written
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def stored(alice: AgentMemory) -> AgentMemory:
    """Three memories of alice."""
    for number, text in enumerate(TEXTS):
        remember(alice, text, provenance=f"user:4{number}")
    alice.client.zadd("remq:agents", {"alice": 1})
    return alice
