"""`remq emit`: one event, or a file of them; sent again, nothing is doubled."""

import codecs
import json
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from producer import emit_many
from tests.cli.command_line import sentence
from tests.commandline import Run
from tests.emitting import KEYS, letters, store_all
from worker.cli.emit import BATCH, LINE_BYTES, TOLD
from worker.cli.session import Session
from worker.memory.item import Item
from worker.settings import Settings
from worker.stores import agent_memory


@pytest.fixture
def remq(
    client: redis.Redis,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command line against the empty server."""
    return Run(monkeypatch, capsys)


def lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def sent(client: redis.Redis) -> list[dict[str, str]]:
    """The entries on the stream, without their event ids."""
    rows: Any = client.xrange(KEYS.events)
    return [
        {name.decode(): value.decode() for name, value in row.items() if name != b"event_id"}
        for _, row in rows
    ]


def items(client: redis.Redis, settings: Settings, agent: str = "alice") -> list[Item]:
    found = agent_memory(client, settings, agent).all_items()
    return sorted(found, key=lambda item: item.id)


class TestOne:
    def test_a_sentence_of_its_own(self, client: redis.Redis, remq: Run) -> None:
        done = remq("emit", "--agent", "alice", "Paris office moves in May")
        rows: Any = client.xrange(KEYS.events)
        ((entry, _),) = rows
        assert (done.code, done.err) == (0, "")
        assert done.out == f"Sent as {entry.decode()}.\n"
        assert sent(client) == [
            {"agent": "alice", "text": "Paris office moves in May", "tier": "episodic",
             "kind": "note", "provenance": "agent"}
        ]  # fmt: skip

    def test_every_field(self, client: redis.Redis, remq: Run, settings: Settings) -> None:
        done = remq(
            "emit", "--agent", "小红", "--tier", "durable", "--kind", "decision",
            "--provenance", "user:42", "--salience", "0.5", "--ts", "2026-07-01T09:30:00Z",
            "--expires-at", "99999999999", "--event-id", "e1", "--json", "账单迁移",
        )  # fmt: skip
        assert done.json == {"taken": 1, "refused": 0, "entry": done.json["entry"]}
        store_all(client, settings)
        (item,) = items(client, settings, "小红")
        assert (item.text, item.tier, item.kind) == ("账单迁移", "durable", "decision")
        assert (item.provenance, item.salience, item.event_id) == ("user:42", 0.5, "e1")
        assert (item.ts, item.expires_at) == (1_782_898_200.0, 99_999_999_999.0)

    def test_the_same_command_again_is_another_event(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        for _ in range(2):
            remq("emit", "--agent", "alice", "coffee")
        assert store_all(client, settings).stored == 2

    def test_without_an_agent_it_is_wrong_usage(self, client: redis.Redis, remq: Run) -> None:
        done = remq("emit", "words")
        assert (done.code, done.out) == (2, "")
        assert "Say whose memory it is: --agent NAME." in done.err
        assert sent(client) == []

    @pytest.mark.parametrize("option", ["--salience=7", "--tier=working", "--ts=yesterday"])
    def test_a_refused_event_is_not_sent(self, client: redis.Redis, remq: Run, option: str) -> None:
        done = remq("emit", "--agent", "alice", option, "secret words")
        assert "secret" not in sentence(done)
        assert sent(client) == []


class TestLines:
    def test_each_line_is_an_event(self, client: redis.Redis, remq: Run) -> None:
        done = remq(
            "emit", "-", stdin=lines(
                {"agent": "alice", "text": "one", "tier": "durable", "salience": 1, "ts": 7},
                {"agent": "bob", "text": "账单 🦊", "kind": "fact", "expires_at": None},
            ),
        )  # fmt: skip
        assert (done.code, done.out, done.err) == (0, "2 taken, 0 refused.\n", "")
        assert sent(client) == [
            {"agent": "alice", "text": "one", "tier": "durable", "kind": "note",
             "provenance": "agent", "salience": "1.0", "ts": "7.0"},
            {"agent": "bob", "text": "账单 🦊", "tier": "episodic", "kind": "fact",
             "provenance": "agent"},
        ]  # fmt: skip

    def test_the_shape_for_programs(self, remq: Run) -> None:
        done = remq(
            "emit", "-", "--agent", "alice", "--json",
            stdin=lines({"text": "one", "mood": "blue", "colour": "red"}, {"text": ""}) + b"nope\n",
        )  # fmt: skip
        assert (done.code, done.err) == (1, "")
        assert json.loads(done.out) == {
            "taken": 1,
            "refused": 2,
            "unknown_fields": 2,
            "refusals": [
                {"line": 2,
                 "reason": "text is empty: every event says what is to be remembered"},
                {"line": 3, "reason": "is no JSON"},
            ],
        }  # fmt: skip

    def test_unknown_fields_are_left_out_and_told(self, client: redis.Redis, remq: Run) -> None:
        done = remq("emit", "-", "--agent", "alice", stdin=lines({"text": "one", "mood": "blue"}))
        assert (done.code, done.out) == (0, "1 taken, 0 refused, 1 unknown fields left out.\n")
        assert "mood" not in sent(client)[0]

    def test_agent_fills_in_a_missing_one_and_no_other(
        self, client: redis.Redis, remq: Run
    ) -> None:
        rows = ({"text": "a"}, {"text": "b", "agent": "bob"}, {"text": "c", "agent": None})
        assert remq("emit", "-", "--agent", "alice", stdin=lines(*rows)).code == 0
        assert [row["agent"] for row in sent(client)] == ["alice", "bob", "alice"]

    def test_more_than_one_round_trip(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        count = BATCH * 2 + 7
        rows = [{"text": f"{number}"} for number in range(count)]
        done = remq("emit", "-", "--agent", "alice", "--json", stdin=lines(*rows))
        assert done.json["taken"] == count
        store_all(client, settings)
        stored = agent_memory(client, settings, "alice")
        assert [int(item.text) for item in items(client, settings)] == list(range(count))
        assert len(stored.ids()) == count

    @pytest.mark.parametrize("stdin", [b"", b"\n\n", codecs.BOM_UTF8])
    def test_nothing_at_all(self, client: redis.Redis, remq: Run, stdin: bytes) -> None:
        done = remq("emit", "-", stdin=stdin)
        assert (done.code, done.out, done.err) == (0, "0 taken, 0 refused.\n", "")

    @pytest.mark.parametrize("option", ["--tier=durable", "--event-id=e1", "--expires-at=9"])
    def test_the_fields_of_one_event_are_wrong_usage(self, remq: Run, option: str) -> None:
        done = remq("emit", "-", option, stdin=lines({"agent": "alice", "text": "one"}))
        assert done.code == 2
        assert f"leave out {option.partition('=')[0]}." in done.err

    def test_an_agent_no_event_can_have_is_said_once(self, client: redis.Redis, remq: Run) -> None:
        done = remq("emit", "-", "--agent", "al ice", stdin=lines({"text": "a"}, {"text": "b"}))
        assert sentence(done).startswith("Error: Agent holds white space")
        assert sent(client) == []


class TestOnce:
    ROWS = lines({"text": "same"}, {"text": "same"}, {"text": "other", "event_id": ""})

    def test_the_same_file_again_stores_nothing_new(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        for _ in range(3):
            assert remq("emit", "-", "--agent", "alice", stdin=self.ROWS).code == 0
        tally = store_all(client, settings)
        assert (tally.stored, tally.duplicates) == (3, 6)
        assert [item.text for item in items(client, settings)] == ["same", "same", "other"]

    @pytest.mark.parametrize(
        "changed",
        [
            ROWS.replace(b"\n", b"\r\n"),
            codecs.BOM_UTF8 + ROWS,
            ROWS.removesuffix(b"\n"),
            ROWS.replace(b'{"text"', b'  {"text"'),
        ],
        ids=["crlf", "byte order mark", "no last line end", "indented"],
    )
    def test_also_when_an_editor_saved_it_differently(
        self, client: redis.Redis, remq: Run, settings: Settings, changed: bytes
    ) -> None:
        for stdin in (self.ROWS, changed):
            assert remq("emit", "-", "--agent", "alice", stdin=stdin).code == 0
        assert store_all(client, settings).stored == 3

    def test_a_line_s_own_event_id_stands(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        rows = ({"text": "first", "event_id": "e1"}, {"text": "second", "event_id": "e1"})
        remq("emit", "-", "--agent", "alice", stdin=lines(*rows))
        store_all(client, settings)
        assert [(item.event_id, item.text) for item in items(client, settings)] == [("e1", "first")]

    def test_one_file_may_be_sent_for_two_agents(
        self, client: redis.Redis, remq: Run, settings: Settings
    ) -> None:
        for agent in ("alice", "bob"):
            remq("emit", "-", "--agent", agent, stdin=self.ROWS)
        assert store_all(client, settings).stored == 6


class TestRefusedLines:
    def refusals(self, remq: Run, stdin: bytes) -> dict[int, str]:
        done = remq("emit", "-", "--agent", "alice", "--json", stdin=stdin)
        told = json.loads(done.out)
        assert done.code == (1 if told["refused"] else 0)
        return {one["line"]: one["reason"] for one in told["refusals"]}

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            (b"words", "is no JSON"),
            (b'{"text": "a"', "is no JSON"),
            (b"[1]", "is no JSON object"),
            (b'"text"', "is no JSON object"),
            (b"null", "is no JSON object"),
            (b"[" * 100_000, "is no JSON"),
            (b'{"text": ' + b"9" * 5000 + b"}", "is no JSON"),
            (b'{"text": "caf\xe9"}', "is not valid UTF-8"),
            (b'\xff\xfe{\x00"\x00', "is not valid UTF-8"),
            (b"{}", "text is missing: every event says what is to be remembered"),
            (b'{"text": 7}', "text is of type int: it must be a string"),
            (b'{"text": ["a"]}', "text is of type list: it must be a string"),
            (b'{"text": "a", "agent": {}}', "agent is of type dict: it must be a string"),
            (b'{"text": "a", "event_id": 7}', "event_id is of type int: it must be a string"),
            (b'{"text": "a", "salience": NaN}', "salience is nan: it must be a number from 0 to 1"),
            (b'{"text": "a", "salience": true}',
             "salience is True: it must be a number from 0 to 1"),
            (b'{"text": "\\ud800"}', "text holds half of a surrogate pair, which UTF-8 cannot "
                                     "write: send whole characters"),
        ],
        ids=range(17),
    )  # fmt: skip
    def test_by_number_and_reason_between_good_ones(
        self, client: redis.Redis, remq: Run, line: bytes, reason: str
    ) -> None:
        good = lines({"text": "good"})
        assert self.refusals(remq, good + line + b"\n" + good) == {2: reason}
        assert [row["text"] for row in sent(client)] == ["good", "good"]

    def test_blank_lines_count_as_lines_and_are_no_events(self, remq: Run) -> None:
        stdin = b"\n   \n" + lines({"text": "a"}) + b"\r\nnope\n\n"
        assert self.refusals(remq, stdin) == {5: "is no JSON"}

    def test_a_huge_line_is_passed_over_without_being_read_whole(
        self, client: redis.Redis, remq: Run
    ) -> None:
        huge = b'{"text": "' + b"x" * (LINE_BYTES * 3) + b'"}\n'
        good = lines({"text": "good"})
        assert self.refusals(remq, huge + good + huge.strip()) == {
            1: "is longer than an event can be", 3: "is longer than an event can be",
        }  # fmt: skip
        assert [row["text"] for row in sent(client)] == ["good"]

    def test_the_longest_text_fits_however_it_is_written(
        self, client: redis.Redis, remq: Run
    ) -> None:
        text = "\x01" * 65_536
        assert self.refusals(remq, json.dumps({"text": text}).encode()) == {}
        assert sent(client)[0]["text"] == text

    def test_no_reason_quotes_the_text(self, remq: Run) -> None:
        rows = lines(*({"text": "secret words", name: "?"} for name in ("tier", "salience", "ts")))
        found = self.refusals(remq, rows + b'{"text": "secret words"\n')
        assert len(found) == 4
        assert "secret" not in repr(found)

    def test_many_are_told_up_to_a_point_and_counted_beyond(self, remq: Run) -> None:
        stdin = b"nope\n" * (TOLD + 5)
        done = remq("emit", "-", "--agent", "alice", stdin=stdin)
        assert (done.code, done.out) == (1, "0 taken, 25 refused.\n")
        told = done.err.splitlines()
        assert told[0] == "line 1: is no JSON"
        assert told[-2:] == [f"line {TOLD}: is no JSON", "and 5 more"]

    def test_square_brackets_are_no_markup(self, remq: Run) -> None:
        done = remq("emit", "-", "--agent", "a", stdin=lines({"text": "x", "tier": "[red]x[/red]"}))
        assert "line 1: tier is '[red]x[/red]'" in done.err


class TestServerFaults:
    def test_what_was_taken_before_is_said(
        self, client: redis.Redis, remq: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batches: list[int] = []

        def failing(client: Any, events: Any, *, prefix: str) -> Any:
            batches.append(len(events))
            if len(batches) == 2:
                raise redis.ConnectionError("gone")
            return emit_many(client, events, prefix=prefix)

        monkeypatch.setattr("worker.cli.emit.emit_many", failing)
        stdin = lines(*({"text": f"{number}"} for number in range(BATCH + 1)))
        done = remq("emit", "-", "--agent", "alice", stdin=stdin)
        assert (done.code, done.out) == (1, "")
        assert done.err.splitlines()[0] == (
            f"{BATCH} were taken before; sent again, they are stored once."
        )
        assert "cannot be reached" in done.err.splitlines()[1]

    @pytest.mark.parametrize("arguments", [("emit", "--agent", "a", "x"), ("emit", "-")])
    def test_no_server(
        self, remq: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
    ) -> None:
        nobody = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
        monkeypatch.setattr(Session, "client", nobody)
        done = remq(*arguments, stdin=lines({"agent": "a", "text": "x"}))
        assert done.code == 1
        assert "cannot be reached: is the server running there?" in done.err
        assert "Traceback" not in done.err


def test_nothing_refused_here_reaches_the_dead_letters(
    client: redis.Redis, remq: Run, settings: Settings
) -> None:
    """What the command takes, the writer takes, but for what has expired on the way."""
    rows = [
        {"text": "x" * 65_536}, {"text": "界" * 21_845}, {"text": " a "}, {"text": "\x00"},
        {"text": "a", "salience": 0}, {"text": "a", "salience": "1e-9"}, {"text": "a", "ts": 0},
        {"text": "a", "kind": "x" * 32}, {"text": "a", "provenance": "界" * 256},
        {"text": "a", "event_id": "界" * 128}, {"text": "a", "agent": "🦊" * 128},
        {"text": "a", "ts": "1970-01-01T00:00:00Z"}, {"text": "a", "expires_at": 99_999_999_999},
    ]  # fmt: skip
    assert remq("emit", "-", "--agent", "alice", stdin=lines(*rows)).code == 0
    assert store_all(client, settings).stored == len(rows)
    assert letters(client) == []
