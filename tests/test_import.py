"""What is imported is cheap: a connection's needs when one is made, a role's where it runs."""

import subprocess
import sys
from pathlib import Path

import pytest

import producer

ROOT = Path(producer.__file__).parents[1]

LOADED = """
import sys
before = set(sys.modules)
import {module}
print(*sorted(name.partition(".")[0] for name in set(sys.modules) - before))
"""


def loaded_by_import(module: str = "producer") -> set[str]:
    """Names of the packages a fresh interpreter loads for a module."""
    code = LOADED.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_producer_loads_neither_redis_nor_anything_as_heavy() -> None:
    heavy = {"redis", "hiredis", "asyncio", "pydantic", "worker", "ssl", "logging", "uuid"}
    assert not loaded_by_import() & heavy


def test_importing_producer_loads_the_standard_library_alone() -> None:
    assert loaded_by_import() - sys.stdlib_module_names == {"producer"}


@pytest.mark.parametrize("module", ["worker.cli.memory", "worker.cli.recall"])
def test_a_command_that_reads_memories_loads_neither_the_queue_nor_a_model(module: str) -> None:
    assert not loaded_by_import(module) & {"rq", "openai", "rjieba"}


def test_the_public_face_is_small_and_sorted() -> None:
    assert producer.__all__ == sorted(producer.__all__)
    assert set(producer.__all__) == {
        "Event",
        "EventError",
        "Memory",
        "RecallError",
        "Recalled",
        "emit",
        "emit_many",
    }
    assert all(hasattr(producer, name) for name in producer.__all__)
