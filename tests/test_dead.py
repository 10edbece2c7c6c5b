"""Dead letters: what was refused, why, and its way back."""

import json
import time

import pytest
import redis
from click.testing import CliRunner

from producer import Event
from tests.emitting import KEYS, add, letters, make_writer, store_all
from worker.cli.dead import dead
from worker.cli.session import exit_code
from worker.dead import CUT_TO, LONGEST_VALUE, PAGE, DeadLetters
from worker.errors import MemoryNotFound, RemqError
from worker.memory.scripts import run
from worker.settings import Settings
from worker.stores import agent_memory
from worker.writer import Tally


@pytest.fixture
def dead_letters(client: redis.Redis) -> DeadLetters:
    """The dead letters of the default prefix."""
    return DeadLetters(client, KEYS, 10_000)


def texts(client: redis.Redis, settings: Settings) -> list[str]:
    return [item.text for item in agent_memory(client, settings, "alice").all_items()]


class TestRecording:
    def test_a_letter_holds_entry_reason_and_fields(self, dead_letters: DeadLetters) -> None:
        dead_letters.add(b"5-1", {b"agent": b"alice", b"text": b"words"}, "salience is 2")
        (letter,) = dead_letters.list()
        assert letter.public() == {
            "id": "5-1", "reason": "salience is 2", "fields": {"agent": "alice", "text": "words"},
        }  # fmt: skip

    def test_its_repr_keeps_the_text_out_of_logs(self, dead_letters: DeadLetters) -> None:
        dead_letters.add(b"5-1", {b"text": b"secret words"}, "agent is missing")
        assert "secret" not in repr(list(dead_letters.list()))

    def test_recorded_twice_it_is_one(self, dead_letters: DeadLetters) -> None:
        for entry in (b"1-0", b"2-0", b"1-0"):
            dead_letters.add(entry, {b"text": b"x"}, "agent is missing")
        assert dead_letters.count() == 3
        assert [letter.id for letter in dead_letters.list()] == ["1-0", "2-0"]

    def test_a_value_no_event_could_have_is_cut(self, dead_letters: DeadLetters) -> None:
        longest = b"x" * LONGEST_VALUE
        dead_letters.add(b"1-0", {b"text": longest, b"kind": longest + b"x"}, "too long")
        (letter,) = dead_letters.list()
        assert letter.fields == {b"text": longest, b"kind": b"x" * CUT_TO + b"... (cut)"}

    def test_bytes_that_are_no_text_are_shown_as_escapes(self, dead_letters: DeadLetters) -> None:
        dead_letters.add(b"1-0", {b"text": b"caf\xe9", b"\xff": b"\x00"}, "not UTF-8")
        (letter,) = dead_letters.list()
        assert letter.public()["fields"] == {"text": "caf\\xe9", "\\xff": "\x00"}

    def test_an_event_s_own_fields_of_our_names_do_not_pose_as_ours(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        entry = add(client, tier="working", _reason="none at all", _entry="7-7")
        store_all(client, settings)
        (letter,) = letters(client)
        assert letter.id == entry.decode()
        assert letter.reason.startswith("tier 'working'")

    def test_one_that_was_cut_is_not_replayed(self, dead_letters: DeadLetters) -> None:
        dead_letters.add(b"1-0", {b"agent": b"alice", b"text": b"x" * 200_000}, "too long")
        (letter,) = dead_letters.list()
        with pytest.raises(RemqError, match="too long to be kept whole"):
            dead_letters.replay(letter)

    def test_their_number_is_bounded(self, client: redis.Redis) -> None:
        few = DeadLetters(client, KEYS, 200)
        for number in range(1000):
            few.add(b"%d-0" % number, {b"text": b"x"}, "refused")
        assert 200 <= few.count() < 400
        assert [letter.id for letter in few.list()][-1] == "999-0"

    def test_old_ones_are_forgotten(self, client: redis.Redis, dead_letters: DeadLetters) -> None:
        client.xadd(KEYS.dead, {"_entry": "1-0", "_reason": "old"}, id="1000-0")
        dead_letters.add(b"2-0", {b"text": b"x"}, "new")
        assert dead_letters.forget_older(time.time() - 60) == 1
        assert [letter.id for letter in dead_letters.list()] == ["2-0"]

    def test_they_are_read_page_by_page(self, dead_letters: DeadLetters) -> None:
        for number in range(PAGE * 2):
            dead_letters.add(b"%d-0" % number, {b"text": b"x"}, "refused")
        assert len(list(dead_letters.list())) == PAGE * 2

    def test_what_comes_up_while_they_are_read_is_left_for_the_next_time(
        self, dead_letters: DeadLetters
    ) -> None:
        for number in range(PAGE):
            dead_letters.add(b"%d-0" % number, {b"text": b"x"}, "refused")
        seen = 0
        for letter in dead_letters.list():
            seen += 1
            dead_letters.add(b"9" + letter.id.encode(), letter.fields, "again")
        assert seen == PAGE

    def test_none_at_all(self, dead_letters: DeadLetters) -> None:
        assert list(dead_letters.list()) == []
        dead_letters.drop({"1-0"})
        assert dead_letters.purge() == 0
        assert dead_letters.forget_older(time.time()) == 0


class TestReplay:
    def test_a_mended_rule_lets_it_in_once(
        self, client: redis.Redis, settings: Settings, dead_letters: DeadLetters
    ) -> None:
        """Here the agent's memory was spoilt until an operator mended it."""
        add(client, agent="bob")
        store_all(client, settings)
        spoilt = KEYS.agent("alice").items
        client.set(spoilt, "not what belongs here")
        entry = add(client, text="worth keeping")
        assert store_all(client, settings).refused == 1
        client.delete(spoilt)
        letter = dead_letters.find(entry.decode())
        for _ in range(2):
            dead_letters.replay(letter)
        dead_letters.drop({letter.id})
        assert store_all(client, settings) == Tally(stored=1, duplicates=1)
        assert texts(client, settings) == ["worth keeping"]
        assert dead_letters.count() == 0

    def test_it_keeps_its_event_id_and_its_time(
        self, client: redis.Redis, settings: Settings, dead_letters: DeadLetters
    ) -> None:
        own = {b"agent": b"alice", b"text": b"a", b"event_id": b"e1", b"ts": b"1500"}
        dead_letters.add(b"1000000-0", own, "refused")
        dead_letters.add(b"2000000-0", {b"agent": b"alice", b"text": b"b", b"ts": b""}, "refused")
        for letter in dead_letters.list():
            dead_letters.replay(letter)
        store_all(client, settings)
        first, second = agent_memory(client, settings, "alice").all_items()
        assert (first.event_id, first.ts) == ("e1", 1500.0)
        assert (second.event_id, second.ts) == ("2000000-0", 2000.0)

    def test_what_was_stored_after_all_is_not_stored_again(
        self, client: redis.Redis, settings: Settings, dead_letters: DeadLetters
    ) -> None:
        """A writer that died between storing and acknowledging, too often."""
        once = settings.model_copy(update={"reclaim_idle_s": 0, "max_deliveries": 1})
        writer = make_writer(client, once)
        entry = add(client, text="stored")
        ((_, fields),) = writer.consumer.read(10, block=False)
        event = Event.from_fields(fields, arrived=1.0, entry_id=entry.decode())
        memory = agent_memory(client, settings, "alice")
        run(client, memory.write_call([event], memory.reserve(1), 1.0))
        writer.reclaim()
        dead_letters.replay(dead_letters.find(entry.decode()))
        assert store_all(client, settings) == Tally(duplicates=1)
        assert texts(client, settings) == ["stored"]

    def test_refused_again_it_is_a_new_letter(
        self, client: redis.Redis, settings: Settings, dead_letters: DeadLetters
    ) -> None:
        add(client, salience="high")
        store_all(client, settings)
        (letter,) = dead_letters.list()
        again = dead_letters.replay(letter)
        dead_letters.drop({letter.id})
        store_all(client, settings)
        assert [one.id for one in dead_letters.list()] == [again]

    def test_dropping_removes_doubles_and_nothing_else(self, dead_letters: DeadLetters) -> None:
        for entry in (b"1-0", b"2-0", b"1-0", b"3-0"):
            dead_letters.add(entry, {b"text": b"x"}, "refused")
        dead_letters.drop({"1-0", "9-9"})
        assert [letter.id for letter in dead_letters.list()] == ["2-0", "3-0"]

    def test_an_unknown_letter_is_named(self, dead_letters: DeadLetters) -> None:
        with pytest.raises(MemoryNotFound, match=r"no dead letter 7-7; `remq dead list`"):
            dead_letters.find("7-7")


class TestCommands:
    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        done = CliRunner().invoke(dead, arguments, input=stdin)
        return done.exit_code, done.stdout

    def test_list(self, client: redis.Redis, settings: Settings) -> None:
        assert self.run("list") == (0, "No dead letters.\n")
        assert self.run("list", "--json") == (0, "")
        entry = add(client, text="账单", tier="[red]")
        store_all(client, settings)
        code, out = self.run("list", "--json")
        assert (code, json.loads(out)) == (
            0,
            {
                "id": entry.decode(),
                "reason": "tier is '[red]': it must be episodic or durable",
                "fields": {"agent": "alice", "text": "账单", "tier": "[red]"},
            },
        )
        code, out = self.run("list")
        assert "tier is '[red]'" in out

    def test_replay_one_and_all(self, client: redis.Redis, settings: Settings) -> None:
        for _ in range(3):
            add(client, tier="working")
        store_all(client, settings)
        first = letters(client)[0].id
        code, out = self.run("replay", first, "--json")
        assert (code, json.loads(out)["replayed"]) == (0, 1)
        assert list(json.loads(out)["entries"]) == [first]
        assert len(letters(client)) == 2
        assert self.run("replay", "--all") == (0, "Sent 2 again; the writer checks them anew.\n")
        assert letters(client) == []
        assert client.xlen(KEYS.events) == 3

    @pytest.mark.parametrize("arguments", [(), ("1-0", "--all")])
    def test_replay_wants_one_or_all(
        self, client: redis.Redis, settings: Settings, arguments: tuple[str, ...]
    ) -> None:
        assert self.run("replay", *arguments)[0] == 2

    def test_replay_of_an_unknown_one(
        self, client: redis.Redis, settings: Settings, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = exit_code(lambda: dead(["replay", "7-7"], standalone_mode=False))
        assert code == 1
        assert "There is no dead letter 7-7" in capsys.readouterr().err

    def test_purge_asks_first(self, client: redis.Redis, settings: Settings) -> None:
        add(client, tier="working")
        store_all(client, settings)
        assert self.run("purge", stdin="n\n")[0] == 1
        assert len(letters(client)) == 1
        code, out = self.run("purge", "--yes", "--json")
        assert (code, json.loads(out)) == (0, {"removed": 1})
        assert letters(client) == []
