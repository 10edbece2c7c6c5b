"""The files that start remq: docker-compose.yml, Procfile, Dockerfile."""

import re
import shlex
import shutil
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from worker.cli.root import COMMANDS
from worker.settings import Settings, variable

ROOT = Path(__file__).parents[1]
ROLES = {"writer", "scheduler", "worker", "recaller"}
DASHBOARD = "dashboard"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """docker-compose.yml, its merges done."""
    loaded: dict[str, Any] = yaml.safe_load(text("docker-compose.yml"))
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The services of docker-compose.yml."""
    loaded: dict[str, dict[str, Any]] = compose["services"]
    return loaded


@pytest.fixture(scope="module")
def processes() -> dict[str, list[str]]:
    """The Procfile: each process and the words of its command."""
    lines = [line for line in text("Procfile").splitlines() if line and not line.startswith("#")]
    pairs = [line.split(":", 1) for line in lines]
    return {name: shlex.split(command) for name, command in pairs}


def options(command: list[str]) -> dict[str, str]:
    """The options of a command that take a value, in pairs."""
    return dict(pairwise(command))


# The server


def test_the_server_keeps_what_it_was_given(services: dict[str, dict[str, Any]]) -> None:
    given = options(services["redis"]["command"])
    assert given["--appendonly"] == "yes"
    assert given["--appendfsync"] == "everysec"
    assert given["--maxmemory-policy"] == "noeviction"


def test_the_data_lie_in_a_volume_with_a_name(
    compose: dict[str, Any], services: dict[str, dict[str, Any]]
) -> None:
    [volume] = services["redis"]["volumes"]
    name, _, place = volume.partition(":")
    assert name in compose["volumes"]
    assert place == "/data"


def test_the_server_is_redis_8_of_one_minor_version(services: dict[str, dict[str, Any]]) -> None:
    assert re.fullmatch(r"redis:8\.\d+-alpine", services["redis"]["image"])


# The services


def test_every_role_is_there_and_is_a_command_of_remq(
    services: dict[str, dict[str, Any]],
) -> None:
    assert set(services) == ROLES | {"redis", DASHBOARD}
    assert set(COMMANDS) >= ROLES
    for role in ROLES:
        assert services[role]["command"] == [role]
        assert "entrypoint" not in services[role], f"{role} is started by the image's own"


def test_every_role_is_built_here_and_waits_for_the_server(
    services: dict[str, dict[str, Any]],
) -> None:
    assert "healthcheck" in services["redis"]
    for name in ROLES | {DASHBOARD}:
        service = services[name]
        assert service["build"] == "."
        assert service["depends_on"] == {"redis": {"condition": "service_healthy"}}


def test_every_service_may_be_scaled_comes_back_and_is_given_time_to_stop(
    services: dict[str, dict[str, Any]],
) -> None:
    for name, service in services.items():
        assert "container_name" not in service, f"{name} could not be scaled"
        assert service["restart"] == "unless-stopped", name
        assert "stop_grace_period" in service, name
        assert service["read_only"] is True, name


def test_a_worker_is_given_the_time_of_a_whole_pass(services: dict[str, dict[str, Any]]) -> None:
    minutes = re.fullmatch(r"(\d+)m", services["worker"]["stop_grace_period"])
    assert minutes
    assert int(minutes[1]) * 60 >= Settings.model_fields["lease_s"].default


def test_the_roles_use_the_server_of_this_file(services: dict[str, dict[str, Any]]) -> None:
    known = {variable(name) for name in Settings.model_fields}
    for role in ROLES:
        environment = services[role]["environment"]
        assert environment["REMQ_REDIS_URL"] == "redis://redis:6379/0"
        assert set(environment) <= known, "a setting that does not exist"


def test_published_ports_are_for_this_machine_alone(services: dict[str, dict[str, Any]]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published, "agents on this machine need a way in"
    for port in published:
        assert isinstance(port, str)
        assert port.startswith("127.0.0.1:")
        assert re.fullmatch(r"127\.0\.0\.1:(\d+|\$\{\w+:-\d+\}):\d+", port), port
    assert all(service.get("network_mode") is None for service in services.values())


def test_no_image_is_whatever_is_latest(services: dict[str, dict[str, Any]]) -> None:
    images = [service["image"] for service in services.values()]
    images += re.findall(r"^FROM (\S+)", text("Dockerfile"), re.MULTILINE)
    for image in images:
        name, _, tag = image.partition(":")
        assert re.search(r"\d+\.\d+", tag), f"{name} is not pinned to a minor version: {image}"


def test_our_image_bears_the_version_of_the_project(services: dict[str, dict[str, Any]]) -> None:
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    minor = ".".join(version.split(".")[:2])
    assert {services[name]["image"] for name in ROLES | {DASHBOARD}} == {f"remq:{minor}"}


def test_the_dashboard_reads_json_and_holds_no_key_of_a_model(
    services: dict[str, dict[str, Any]],
) -> None:
    dashboard = services[DASHBOARD]
    assert dashboard["entrypoint"] == ["rq-dashboard"]
    assert "--json" in dashboard["command"]
    assert set(dashboard["environment"]) == {"RQ_DASHBOARD_REDIS_URL"}
    assert not dashboard["env_file"]


def test_every_service_image_port_and_volume_is_explained(compose: dict[str, Any]) -> None:
    lines = text("docker-compose.yml").splitlines()
    named = {f"  {name}:" for name in [*compose["services"], *compose["volumes"]]}
    shapes = re.compile(r"\s+image: .+|\s+- \"127\.0\.0\.1:.+")
    places = [at for at, line in enumerate(lines) if line in named or shapes.fullmatch(line)]
    bare = [lines[at] for at in places if not explained(lines, at)]
    assert len(places) >= len(named)
    assert not bare, "a comment belongs above each"


def explained(lines: list[str], number: int) -> bool:
    """Whether a comment stands right above a line."""
    return lines[number - 1].lstrip().startswith("#")


def test_compose_itself_takes_the_file() -> None:
    docker = shutil.which("docker")
    if not docker or run(docker, "compose", "version").returncode:
        pytest.skip("docker compose is not on this machine")
    done = run(docker, "compose", "config", "--quiet")
    assert done.returncode == 0, done.stderr


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


# The Procfile


def test_the_procfile_starts_every_role(processes: dict[str, list[str]]) -> None:
    assert set(processes) == ROLES | {DASHBOARD}
    for role in ROLES:
        assert processes[role] == ["exec", "remq", role]


def test_the_procfile_s_dashboard_is_for_this_machine_and_hides_the_password(
    processes: dict[str, list[str]],
) -> None:
    command = processes[DASHBOARD]
    assert "--json" in command
    assert options(command)["--bind"] == "127.0.0.1"
    url, _, line = " ".join(command).partition(" ")
    assert url == "RQ_DASHBOARD_REDIS_URL=${REMQ_QUEUE_URL:-$REMQ_REDIS_URL}"
    assert "URL" not in line, "a URL may hold a password, and every user can read a command line"


def test_every_process_is_explained() -> None:
    lines = text("Procfile").splitlines()
    bare = [
        line
        for number, line in enumerate(lines)
        if re.match(r"\w+:", line) and not explained(lines, number)
    ]
    assert not bare, "a comment belongs above each"


# The image


def test_the_image_installs_the_lock_with_hashes_and_drops_root() -> None:
    lines = text("Dockerfile").splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert any("--require-hashes --requirement requirements.lock" in line for line in installs)
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
    assert lines.index("USER remq") < lines.index('ENTRYPOINT ["remq"]')
    assert 'ENTRYPOINT ["remq"]' in lines


def test_the_image_gets_only_what_it_needs() -> None:
    lines = text(".dockerignore").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything is left out, then a few let in"
    let_in = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert let_in == {
        "LICENSE",
        "README.md",
        "producer",
        "pyproject.toml",
        "requirements.lock",
        "worker",
    }
