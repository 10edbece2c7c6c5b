"""A company of processes on the test server, with a look at what they said afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.acceptance.processes import Company, environment


@pytest.fixture
def environ(server: str) -> dict[str, str]:
    """The environment of processes that use the test server."""
    return environment(server)


@pytest.fixture
def company(client: redis.Redis, environ: dict[str, str], tmp_path: Path) -> Iterator[Company]:
    """Processes on an empty test server. None of them may leave a stack trace."""
    group = Company(tmp_path, environ)
    try:
        yield group
    finally:
        group.end()
        for name, said in group.logs().items():
            print(f"--- {name}\n{said}")  # noqa: T201 - shown when the test fails
    group.check_logs()
