"""Importing producer is cheap: it loads what a connection needs only when one is made."""

import subprocess
import sys
from pathlib import Path

import producer

ROOT = Path(producer.__file__).parents[1]

LOADED = """
import sys
before = set(sys.modules)
import producer
print(*sorted(name.partition(".")[0] for name in set(sys.modules) - before))
"""


def loaded_by_import() -> set[str]:
    """Names of the packages a fresh interpreter loads for `import producer`."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_producer_loads_neither_redis_nor_anything_as_heavy() -> None:
    heavy = {"redis", "hiredis", "asyncio", "pydantic", "worker", "ssl", "logging", "uuid"}
    assert not loaded_by_import() & heavy


def test_importing_producer_loads_the_standard_library_alone() -> None:
    assert loaded_by_import() - sys.stdlib_module_names == {"producer"}


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
