"""What an agent does with producer: emit events, ask a recaller."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import fakeredis
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as ServerConnectionError

from producer import Event, EventError, Memory, Recalled, RecallError, emit, emit_many, keys
from producer.connect import connect

ITEM = {
    "id": 7,
    "text": "Billing moves to the new region",
    "tier": "durable",
    "kind": "decision",
    "provenance": "user:42",
    "salience": 1.0,
    "access_count": 2,
    "ts": 1_767_225_600.0,
    "score": 3.25,
}
CONTEXT = "- (decision) Billing moves to the new region"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment of the tests holds is not theirs."""
    monkeypatch.delenv("REMQ_REDIS_URL", raising=False)
    monkeypatch.delenv("REMQ_PREFIX", raising=False)


@pytest.fixture
def fake() -> Iterator[fakeredis.FakeServer]:
    """A server on which nothing but events may be left."""
    fake = fakeredis.FakeServer()
    yield fake
    left = [key for key in all_keys(fake) if not key.endswith(b":events")]
    assert left == []


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def redis(fake: fakeredis.FakeServer, request: pytest.FixtureRequest) -> Redis:
    return fakeredis.FakeRedis(server=fake, decode_responses=request.param)


def all_keys(fake: fakeredis.FakeServer) -> list[Any]:
    return list(fakeredis.FakeRedis(server=fake).keys("*"))


def entries(client: Any, prefix: str = "remq") -> list[Any]:
    """The rows of the stream, as this client reads them."""
    return list(client.xrange(keys.events(prefix)))


def stored(fake: fakeredis.FakeServer, prefix: str = "remq") -> list[Event]:
    """What a writer would find on the stream."""
    rows = entries(fakeredis.FakeRedis(server=fake), prefix)
    return [Event.from_fields(fields) for _, fields in rows]


class Recaller:
    """Plays `remq recaller`: takes requests off the list and answers what it is told to."""

    def __init__(
        self,
        fake: fakeredis.FakeServer,
        reply: Callable[[dict[str, Any]], str | bytes],
        prefix: str = "remq",
    ) -> None:
        self.client = fakeredis.FakeRedis(server=fake)
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self.prefix = prefix
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while (taken := self.client.brpop([keys.recall(self.prefix)], timeout=5)) is not None:
            if taken[1] == b"stop":
                return
            request = json.loads(taken[1])
            self.requests.append(request)
            self.client.rpush(request["reply_to"], self.reply(request))
            self.client.expire(request["reply_to"], 30)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.lpush(keys.recall(self.prefix), "stop")
        self.thread.join()


def found(*items: dict[str, Any], context: str = CONTEXT) -> Callable[[dict[str, Any]], str]:
    return lambda request: json.dumps(
        {"id": request["id"], "ok": True, "items": items, "context": context}
    )


class TestKeys:
    def test_names_under_the_default_prefix(self) -> None:
        assert keys.events() == "remq:events"
        assert keys.recall() == "remq:recall"
        assert keys.reply("remq", "x") == "remq:reply:x"
        assert keys.reply_prefix() == "remq:reply:"

    def test_names_of_a_tenant(self) -> None:
        assert keys.events("acme") == "acme:events"
        assert keys.recall("acme") == "acme:recall"
        assert keys.reply("acme", "x") == "acme:reply:x"


class TestEmit:
    def test_the_event_lands_on_the_stream(self, fake: fakeredis.FakeServer, redis: Redis) -> None:
        event = Event("alice", "Billing moves", event_id="mine")
        entry_id = emit(redis, event)
        assert stored(fake) == [event]
        assert [row[0] for row in entries(redis)] == [entry_id]

    def test_an_event_without_an_id_gets_one(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        event = Event("alice", "Billing moves")
        emit(redis, event)
        emit(redis, event)
        ids = {one.event_id for one in stored(fake)}
        assert len(ids) == 2
        assert all(one is not None and len(one) == 32 for one in ids)
        assert event.event_id is None

    def test_the_id_is_set_before_the_first_try(self) -> None:
        class LosesEveryAnswer(fakeredis.FakeRedis):
            """Sends a command twice, as redis-py does after a time-out."""

            def execute_command(self, *args: Any, **options: Any) -> Any:
                send: Any = super().execute_command
                send(*args, **options)
                return send(*args, **options)

        fake = fakeredis.FakeServer()
        emit(LosesEveryAnswer(server=fake), Event("alice", "Billing moves"))
        first, second = stored(fake)
        assert first == second

    def test_another_prefix(self, fake: fakeredis.FakeServer, redis: Redis) -> None:
        emit(redis, Event("alice", "Billing moves"), prefix="acme")
        assert [event.text for event in stored(fake, "acme")] == ["Billing moves"]

    def test_an_asyncio_client_gives_an_awaitable(self, fake: fakeredis.FakeServer) -> None:
        async def agent() -> tuple[Any, Any]:
            async with fakeredis.FakeAsyncRedis(server=fake) as redis:
                one = await emit(redis, Event("alice", "one"))
                return one, await emit_many(redis, [Event("alice", "two"), Event("bob", "three")])

        one, more = asyncio.run(agent())
        assert [event.text for event in stored(fake)] == ["one", "two", "three"]
        rows = entries(fakeredis.FakeRedis(server=fake))
        assert [one, *more] == [row[0] for row in rows]

    def test_many_in_one_round_trip_in_order(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        ids = emit_many(redis, (Event("alice", f"event {n}") for n in range(300)))
        assert [row[0] for row in entries(redis)] == ids
        events = stored(fake)
        assert [event.text for event in events] == [f"event {n}" for n in range(300)]
        assert len({event.event_id for event in events}) == 300

    def test_none_is_nothing(self, redis: Redis) -> None:
        assert emit_many(redis, []) == []


class TestRemember:
    def test_episodic_and_durable_return_the_event_id(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        memory = Memory("alice", redis)
        ids = [memory.episodic("Asked about billing"), memory.durable("Billing moves")]
        assert [(event.agent, event.tier, event.event_id) for event in stored(fake)] == [
            ("alice", "episodic", ids[0]),
            ("alice", "durable", ids[1]),
        ]

    def test_details_go_along(self, fake: fakeredis.FakeServer, redis: Redis) -> None:
        returned = Memory("alice", redis).durable(
            "Billing moves",
            kind="decision",
            provenance="user:42",
            salience="0.9",
            ts="2026-01-01T00:00:00Z",
            expires_at=1_798_761_600,
            event_id="mine",
        )
        assert returned == "mine"
        assert stored(fake) == [
            Event(
                "alice",
                "Billing moves",
                "durable",
                "decision",
                "user:42",
                0.9,
                1_767_225_600,
                1_798_761_600,
                "mine",
            )
        ]

    def test_a_faulty_event_is_refused_before_anything_is_sent(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        with pytest.raises(EventError, match=r"salience is 1\.7"):
            Memory("alice", redis).durable("Billing moves", salience=1.7)
        assert stored(fake) == []

    def test_an_event_is_checked_before_a_server_is_looked_for(self) -> None:
        with pytest.raises(EventError, match="text is empty"):
            Memory("alice").episodic("")

    def test_a_name_no_agent_can_have_is_refused_at_once(self) -> None:
        with pytest.raises(EventError, match="agent holds white space"):
            Memory("al ice")


class TestWorkingMemory:
    def test_notes_last_for_one_cycle_and_are_never_sent(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        memory = Memory("alice", redis)
        memory.note_working("reading the ticket")
        memory.note_working("asking for the region")
        assert list(memory.working) == ["reading the ticket", "asking for the region"]
        memory.end_cycle()
        assert list(memory.working) == []
        assert all_keys(fake) == []

    def test_notes_need_no_server(self) -> None:
        memory = Memory("alice")
        memory.note_working("reading the ticket")
        assert memory.working == ("reading the ticket",)


class TestRecall:
    def test_the_question_as_it_stands_on_the_list(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        before = time.time()
        with Recaller(fake, found()) as recaller:
            Memory("alice", redis, timeout_s=10).recall("billing region")
        (request,) = recaller.requests
        assert before + 10 <= request.pop("deadline") <= time.time() + 10
        assert request.pop("reply_to") == f"remq:reply:{request.pop('id')}"
        assert request == {
            "agent": "alice",
            "query": "billing region",
            "k": 5,
            "touch": True,
            "explain": False,
        }

    def test_memories_come_back_best_first(self, fake: fakeredis.FakeServer, redis: Redis) -> None:
        with Recaller(fake, found(ITEM, {**ITEM, "id": 3, "text": "账单"})):
            memories = Memory("alice", redis).recall("billing", k=2)
        assert memories[0] == Recalled(
            id=7,
            text="Billing moves to the new region",
            tier="durable",
            kind="decision",
            provenance="user:42",
            salience=1.0,
            access_count=2,
            ts=1_767_225_600.0,
            score=3.25,
        )
        assert [(one.id, one.text) for one in memories[1:]] == [(3, "账单")]

    def test_nothing_found_is_an_empty_list(self, fake: fakeredis.FakeServer, redis: Redis) -> None:
        with Recaller(fake, found(context="")):
            memory = Memory("alice", redis)
            assert memory.recall("billing") == []
            assert memory.recall_context("billing") == ""

    def test_without_touch_and_with_explanation(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        with Recaller(fake, found({**ITEM, "bm25": 1.25, "freshness": 0.8})) as recaller:
            (one,) = Memory("alice", redis).recall("billing", touch=False, explain=True)
        assert one.explanation == {"bm25": 1.25, "freshness": 0.8}
        assert (recaller.requests[0]["touch"], recaller.requests[0]["explain"]) == (False, True)

    def test_context_for_a_prompt(self, fake: fakeredis.FakeServer, redis: Redis) -> None:
        with Recaller(fake, found(ITEM)) as recaller:
            memory = Memory("alice", redis)
            assert memory.recall_context("billing") == CONTEXT
            assert memory.recall_context("billing", k=2, max_chars=80) == CONTEXT
        asked = [(request["k"], request["max_chars"]) for request in recaller.requests]
        assert asked == [(4, 800), (2, 80)]

    def test_every_question_has_a_reply_list_of_its_own(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        with Recaller(fake, found(ITEM)) as recaller:
            memory = Memory("alice", redis)
            for _ in range(3):
                memory.recall("billing")
        assert len({request["reply_to"] for request in recaller.requests}) == 3

    def test_another_prefix(self, fake: fakeredis.FakeServer, redis: Redis) -> None:
        with Recaller(fake, found(ITEM), prefix="acme") as recaller:
            Memory("alice", redis, prefix="acme").recall("billing")
        assert recaller.requests[0]["reply_to"].startswith("acme:reply:")

    def test_a_refusal_is_told_in_the_recaller_s_words(
        self, fake: fakeredis.FakeServer, redis: Redis
    ) -> None:
        refusal = '{"id": "1", "ok": false, "error": "k is a whole number from 1 on."}'
        with (
            Recaller(fake, lambda _: refusal),
            pytest.raises(RecallError, match=r"^k is a whole number from 1 on\.$"),
        ):
            Memory("alice", redis).recall("billing", k=0)

    @pytest.mark.parametrize(
        "answer",
        [
            "",
            "no JSON",
            b"\xff\xfe\xff",
            "[]",
            '{"ok": true}',
            '{"ok": true, "items": [1], "context": 1}',
            '{"ok": true, "items": [{"id": 1}], "context": null}',
        ],
    )
    def test_an_answer_that_cannot_be_read(
        self, fake: fakeredis.FakeServer, answer: str | bytes
    ) -> None:
        memory = Memory("alice", fakeredis.FakeRedis(server=fake))
        with Recaller(fake, lambda _: answer):
            for ask in (memory.recall, memory.recall_context):
                with pytest.raises(RecallError, match="answer cannot be read"):
                    ask("billing")

    def test_a_refusal_without_a_reason(self, fake: fakeredis.FakeServer) -> None:
        memory = Memory("alice", fakeredis.FakeRedis(server=fake))
        with (
            Recaller(fake, lambda _: '{"ok": false}'),
            pytest.raises(RecallError, match="refused without a reason"),
        ):
            memory.recall("billing")


class TestNoAnswer:
    """The `fake` fixture sees to it that neither question nor answer stays behind."""

    def test_it_is_told_in_one_sentence(self, redis: Redis) -> None:
        with pytest.raises(RecallError) as caught:
            Memory("alice", redis, timeout_s=0.05).recall("billing")
        assert str(caught.value) == (
            "no answer within 0.05 s: is `remq recaller` running against this server, "
            "with the prefix 'remq'?"
        )

    def test_other_questions_keep_their_place(self, fake: fakeredis.FakeServer) -> None:
        redis = fakeredis.FakeRedis(server=fake)
        redis.lpush("remq:recall", "somebody else's")
        with pytest.raises(RecallError):
            Memory("alice", redis, timeout_s=0.05).recall_context("billing")
        assert redis.lrange("remq:recall", 0, -1) == [b"somebody else's"]
        redis.delete("remq:recall")

    def test_a_failing_server_does_not_hide_it(self, fake: fakeredis.FakeServer) -> None:
        class CannotTakeBack(fakeredis.FakeRedis):
            def lrem(self, *_: Any) -> int:
                self.delete("remq:recall")
                raise ServerConnectionError("gone")

        with pytest.raises(RecallError, match="no answer within"):
            Memory("alice", CannotTakeBack(server=fake), timeout_s=0.05).recall("billing")

    def test_a_wait_longer_than_the_socket_s_is_cut_into_pieces(
        self, fake: fakeredis.FakeServer
    ) -> None:
        waits: list[float] = []

        class Watched(fakeredis.FakeRedis):
            def blpop(self, keys: Any, timeout: Any = 0) -> Any:
                waits.append(timeout)
                return super().blpop(keys, timeout)

        redis = Watched(server=fake, socket_timeout=0.2)
        with pytest.raises(RecallError):
            Memory("alice", redis, timeout_s=0.25).recall("billing")
        assert waits
        assert all(0 < wait <= 0.1 for wait in waits)


class TestSettings:
    def test_no_server_named(self) -> None:
        with pytest.raises(ValueError, match="REMQ_REDIS_URL is not set: name the server"):
            Memory("alice").recall("billing")

    def test_the_environment_names_server_and_prefix(
        self, monkeypatch: pytest.MonkeyPatch, fake: fakeredis.FakeServer
    ) -> None:
        urls: list[str] = []

        def opened(url: str) -> Redis:
            urls.append(url)
            return fakeredis.FakeRedis(server=fake)

        monkeypatch.setattr("producer.client.connect", opened)
        monkeypatch.setenv("REMQ_REDIS_URL", "redis://from-env")
        monkeypatch.setenv("REMQ_PREFIX", "acme")
        with Memory("alice") as memory:
            assert urls == []
            memory.episodic("one")
            memory.episodic("two")
        Memory("alice", url="redis://given", prefix="own").episodic("three")
        assert urls == ["redis://from-env", "redis://given"]
        assert [event.text for event in stored(fake, "acme")] == ["one", "two"]
        assert [event.text for event in stored(fake, "own")] == ["three"]

    def test_an_empty_prefix_in_the_environment_counts_as_none(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REMQ_PREFIX", "")
        assert Memory("alice").prefix == "remq"

    def test_only_a_connection_made_here_is_closed(
        self, monkeypatch: pytest.MonkeyPatch, fake: fakeredis.FakeServer
    ) -> None:
        class Closes(fakeredis.FakeRedis):
            closed = 0

            def close(self) -> None:
                self.closed += 1

        given, own = Closes(server=fake), Closes(server=fake)
        monkeypatch.setattr("producer.client.connect", lambda _: own)
        with Memory("alice", given) as memory:
            memory.episodic("one")
        with Memory("alice", url="redis://own") as memory:
            memory.episodic("two")
        memory.close()
        assert (given.closed, own.closed) == (0, 1)

    def test_client_and_url_contradict_each_other(self, redis: Redis) -> None:
        with pytest.raises(ValueError, match="a client or a url, not both"):
            Memory("alice", redis, url="redis://127.0.0.1")

    def test_an_asyncio_client_is_refused(self) -> None:
        with pytest.raises(ValueError, match="synchronous client"):
            Memory("alice", fakeredis.FakeAsyncRedis())  # type: ignore[arg-type]

    @pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf")])
    def test_a_wait_that_is_none(self, timeout_s: float) -> None:
        with pytest.raises(ValueError, match="number of seconds above 0"):
            Memory("alice", timeout_s=timeout_s)


class TestConnect:
    """Nothing is sent here: a client is made, and looked at."""

    def test_a_plain_url(self) -> None:
        options = connect("redis://u:p%2Fw@example.org:7000/3").get_connection_kwargs()
        wanted = {"host": "example.org", "port": 7000, "db": 3, "username": "u", "password": "p/w"}
        assert wanted.items() <= options.items()

    def test_a_unix_socket(self) -> None:
        assert (
            connect("unix:///run/redis.sock").get_connection_kwargs()["path"] == "/run/redis.sock"
        )

    def test_sentinels(self) -> None:
        client = connect("redis+sentinel://u:p%2Fw@a:7001,[::1]/main/3")
        pool = client.connection_pool
        hosts = [one.get_connection_kwargs() for one in pool.sentinel_manager.sentinels]
        assert [(one["host"], one["port"]) for one in hosts] == [("a", 7001), ("::1", 26379)]
        assert pool.service_name == "main"
        wanted = {"db": 3, "username": "u", "password": "p/w"}
        assert wanted.items() <= pool.connection_kwargs.items()

    def test_a_cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: dict[str, Any] = {}
        monkeypatch.setattr("redis.cluster.RedisCluster", lambda **options: made.update(options))
        connect("redis+cluster://:secret@a:7001,b")
        assert [(node.host, node.port) for node in made["startup_nodes"]] == [
            ("a", 7001),
            ("b", 6379),
        ]
        assert (made["username"], made["password"]) == (None, "secret")

    @pytest.mark.parametrize(
        "url",
        [
            "http://:secret@host",
            "host:6379",
            "redis://:secret/word@host:6379",
            "redis+sentinel://:secret@host",
            "redis+sentinel://:secret@/main",
            "redis+sentinel://:secret@host/main/first",
            "redis+sentinel://:secret@host:x/main",
            "redis+cluster://:secret@",
        ],
    )
    def test_a_url_of_another_form_is_refused_without_its_password(self, url: str) -> None:
        with pytest.raises(ValueError, match=r"^The server's url cannot be read") as caught:
            connect(url)
        assert "secret" not in str(caught.value)
