"""The lock files hold what pyproject.toml asks for, each package with its hashes."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
#: What the image installs, and what make installs.
IMAGE = "requirements.lock"
TESTS = "requirements-dev.lock"
EXTRAS = {IMAGE: ("embedded", "dashboard"), TESTS: ("embedded", "dashboard", "dev")}


def locked(lock: str) -> dict[str, str]:
    """Every package of a lock file and its version."""
    text = (ROOT / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def required(extras: tuple[str, ...]) -> list[Requirement]:
    """What pyproject.toml asks for, the needs of the build included."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project: dict[str, Any] = tomllib.loads(text)
    lines = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in extras:
        lines += project["project"]["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("lock", [IMAGE, TESTS])
def test_a_lock_holds_what_the_project_asks_for(lock: str) -> None:
    versions = locked(lock)
    wrong = []
    for wanted in required(EXTRAS[lock]):
        version = versions.get(canonicalize_name(wanted.name))
        if version is None or version not in wanted.specifier:
            wrong.append(f"{wanted} (locked: {version})")
    assert not wrong, f"{lock} does not fit pyproject.toml: run `make lock`"


@pytest.mark.parametrize("lock", [IMAGE, TESTS])
def test_every_locked_package_has_hashes(lock: str) -> None:
    entries = re.split(r"\n(?=[a-z])", (ROOT / lock).read_text(encoding="utf-8"))
    bare = [entry for entry in entries if "==" in entry and "--hash=sha256:" not in entry]
    assert not bare


def test_tests_run_on_the_versions_of_the_image() -> None:
    image, tests = locked(IMAGE), locked(TESTS)
    apart = {name: (version, tests.get(name)) for name, version in image.items()}
    apart = {name: pair for name, pair in apart.items() if pair[0] != pair[1]}
    assert not apart, "run `make lock`"
