"""The recaller: one question, one answer, in any language that can push to a list."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from producer import Memory, RecallError
from tests.conftest import wait_until
from tests.faults import ill
from tests.stage import DAY, NOW, apply, remember
from worker.keys import Keys
from worker.memory.recall import Hit
from worker.memory.store import AgentMemory
from worker.memory.view import MemoryView
from worker.outage import Outage
from worker.recaller import K_MAX, REQUEST_MAX, Recaller
from worker.settings import Settings
from worker.stores import agent_memory

KEYS = Keys()
REPLY = "remq:reply:mine"
FAILED = {"id": "1", "ok": False, "error": "the memory's server failed: ask again."}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recaller that is told to stop looks up soon."""
    monkeypatch.setattr("worker.recaller.BLOCK_S", 0.02)


@pytest.fixture
def recaller(client: redis.Redis, settings: Settings) -> Recaller:
    """A recaller that is asked directly, at a time of its own."""
    return Recaller(client, settings, clock=lambda: NOW)


@contextmanager
def at_work(recaller: Recaller) -> Iterator[None]:
    """The recaller runs beside the block, and is told to stop at its end."""
    thread = threading.Thread(target=recaller.run)
    thread.start()
    try:
        yield
    finally:
        recaller.stop()
        thread.join(20)
        assert not thread.is_alive()


def ask(recaller: Recaller, **fields: Any) -> dict[str, Any] | None:
    """Have one request answered; None if there is no answer."""
    request = {"id": "1", "agent": "alice", "query": "billing", "reply_to": REPLY, **fields}
    return ask_raw(recaller, json.dumps(request).encode())


def ask_raw(recaller: Recaller, request: bytes) -> dict[str, Any] | None:
    recaller.answer(request)
    raw: Any = recaller.client.lpop(REPLY)
    assert recaller.client.exists(REPLY) == 0
    return None if raw is None else dict(json.loads(raw))


def error(answer: dict[str, Any] | None) -> str:
    assert answer is not None
    assert answer["ok"] is False
    assert set(answer) == {"id", "ok", "error"}
    return str(answer["error"])


def texts(answer: dict[str, Any] | None) -> list[str]:
    assert answer is not None
    assert answer["ok"] is True
    return [item["text"] for item in answer["items"]]


class TestProtocol:
    """As docs/data-model.md has it: LPUSH, BLPOP, and nothing else."""

    def test_a_shell_asks_and_is_answered(
        self, client: redis.Redis, settings: Settings, alice: AgentMemory
    ) -> None:
        remember(alice, "Billing moves to the new region", tier="durable", kind="decision")
        remember(alice, "账单迁移", provenance="user:42", salience=0.25, ts=NOW - DAY)
        request = (
            '{"id":"1","agent":"alice","query":"billing region","k":5,'
            '"reply_to":"remq:reply:anything you like {1}"}'
        )
        with at_work(Recaller(client, settings)):
            client.execute_command("LPUSH", "remq:recall", request)  # type: ignore[no-untyped-call]
            name, raw = client.execute_command(  # type: ignore[no-untyped-call]
                "BLPOP", "remq:reply:anything you like {1}", 10
            )
        assert name == b"remq:reply:anything you like {1}"
        assert raw.isascii()
        answer = json.loads(raw)
        assert list(answer) == ["id", "ok", "items", "context"]
        assert (answer["id"], answer["ok"]) == ("1", True)
        assert answer["context"] == (
            "Relevant memories:\n- (decision) Billing moves to the new region"
        )
        (item,) = answer["items"]
        score = item.pop("score")
        assert isinstance(score, float)
        assert item == {
            "id": 1, "text": "Billing moves to the new region", "tier": "durable",
            "kind": "decision", "provenance": "agent", "salience": 1.0, "access_count": 0,
            "ts": item["ts"],
        }  # fmt: skip

    def test_our_own_client_asks_and_is_answered(
        self, client: redis.Redis, settings: Settings, alice: AgentMemory
    ) -> None:
        remember(alice, "Billing moves to the new region")
        memory = Memory("alice", client)
        with at_work(Recaller(client, settings)):
            (found,) = memory.recall("billing", explain=True)
            assert found.text == "Billing moves to the new region"
            assert found.explanation["terms"].keys() == {"billing"}
            assert memory.recall_context("billing") == (
                "Relevant memories:\n- (note) Billing moves to the new region"
            )
            assert memory.recall("nothing like it") == []
            with pytest.raises(RecallError, match="k is a whole number from 1 on"):
                memory.recall("billing", k=0)
        assert alice.get(1).access_count == 2

    def test_the_oldest_question_comes_first(
        self, client: redis.Redis, settings: Settings, alice: AgentMemory
    ) -> None:
        remember(alice, "billing")
        for number in range(5):
            request = {"id": number, "agent": "alice", "query": "billing", "reply_to": REPLY}
            client.lpush(KEYS.recall, json.dumps(request))
        with at_work(Recaller(client, settings)):
            wait_until(lambda: client.llen(REPLY) == 5)
        raw: Any = client.lrange(REPLY, 0, -1)
        assert [json.loads(one)["id"] for one in raw] == [0, 1, 2, 3, 4]
        # Each saw what the one before it counted.
        assert [json.loads(one)["items"][0]["access_count"] for one in raw] == [0, 1, 2, 3, 4]

    def test_what_was_stored_before_the_question_is_found(
        self, recaller: Recaller, alice: AgentMemory
    ) -> None:
        for number in range(3):
            remember(alice, f"billing {number}")
            assert len(texts(ask(recaller))) == number + 1

    def test_facts_and_insights_in_one_ranking(
        self, recaller: Recaller, alice: AgentMemory
    ) -> None:
        for number in range(3):
            remember(alice, f"billing {number}")
        apply(alice, insight="billing waits for the audit")
        answer = ask(recaller)
        assert "billing waits for the audit" in texts(answer)
        assert "- (insight) billing waits for the audit" in (answer or {})["context"]

    def test_an_answer_nobody_fetches_goes_by_itself(
        self, recaller: Recaller, alice: AgentMemory
    ) -> None:
        remember(alice, "billing")
        for query in ("billing", 7):
            body = {"id": "1", "agent": "alice", "query": query, "reply_to": REPLY}
            recaller.answer(json.dumps(body).encode())
            assert recaller.client.ttl(REPLY) == 30
            recaller.client.delete(REPLY)

    def test_its_expiry_is_a_setting(self, client: redis.Redis, settings: Settings) -> None:
        short = settings.model_copy(update={"reply_ttl_s": 7})
        body = {"id": "1", "agent": "alice", "query": "x", "reply_to": REPLY}
        Recaller(client, short).answer(json.dumps(body).encode())
        assert client.ttl(REPLY) == 7

    def test_two_share_the_questions(
        self, client: redis.Redis, settings: Settings, alice: AgentMemory, server: str
    ) -> None:
        remember(alice, "billing")
        pair = [redis.Redis.from_url(server) for _ in range(2)]
        first, second = (Recaller(one, settings) for one in pair)
        with at_work(first), at_work(second):
            memory = Memory("alice", client)
            for _ in range(20):
                assert len(memory.recall("billing")) == 1
        assert alice.get(1).access_count == 20

    def test_another_prefix(self, client: redis.Redis, settings: Settings) -> None:
        tenant = settings.model_copy(update={"prefix": "acme"})
        remember(agent_memory(client, tenant, "alice"), "billing of theirs")
        body = {"id": "1", "agent": "alice", "query": "billing", "reply_to": "acme:reply:x"}
        Recaller(client, tenant).answer(json.dumps(body).encode())
        raw: Any = client.lpop("acme:reply:x")
        assert texts(json.loads(raw)) == ["billing of theirs"]
        Recaller(client, tenant).answer(json.dumps({**body, "reply_to": REPLY}).encode())
        assert client.exists(REPLY) == 0
        client.delete(*client.keys("acme:*"))


class TestOptions:
    @pytest.fixture(autouse=True)
    def memories(self, alice: AgentMemory) -> None:
        for number in range(12):
            remember(alice, f"billing {number}")

    @pytest.mark.parametrize(
        ("k", "count"),
        [(1, 1), (None, 5), (7, 7), (7.0, 7), (1000, 12), (10**9, 12), (1e9, 12), (10**400, 12)],
    )
    def test_k_taken(self, recaller: Recaller, k: object, count: int) -> None:
        assert len(texts(ask(recaller, k=k))) == count

    @pytest.mark.parametrize("k", [0, -1, True, "5", 2.5, [], {}, -(10**9)])
    def test_k_refused(self, recaller: Recaller, k: object) -> None:
        assert error(ask(recaller, k=k)) == "k is a whole number from 1 on."

    def test_k_left_out_is_five(self, recaller: Recaller) -> None:
        assert len(texts(ask(recaller))) == 5

    def test_the_most_that_are_counted_at_once(
        self, recaller: Recaller, alice: AgentMemory
    ) -> None:
        memories = [f"billing {number}" for number in range(K_MAX)]
        for text in memories:
            remember(alice, text)
        assert len(texts(ask(recaller, k=10**9))) == K_MAX
        assert sum(item.access_count for item in alice.all_items()) == K_MAX

    def test_touch_is_counted_after_the_answer(
        self, recaller: Recaller, alice: AgentMemory
    ) -> None:
        answer = ask(recaller, query="billing 3", k=1)
        assert answer is not None
        assert answer["items"][0]["access_count"] == 0
        assert alice.get(4).access_count == 1
        assert alice.get(4).last_access_ts == NOW
        assert float(recaller.client.hget(alice.keys.run, "last_recall_at") or 0) == NOW

    def test_without_touch_nothing_changes(self, recaller: Recaller, alice: AgentMemory) -> None:
        before = alice.position()
        assert texts(ask(recaller, touch=False))
        assert alice.position() == before
        assert recaller.client.exists(alice.keys.run) == 0

    def test_explain_tells_the_parts(self, recaller: Recaller) -> None:
        answer = ask(recaller, explain=True, k=1)
        assert answer is not None
        (item,) = answer["items"]
        whole = item["bm25"] + item["salience"] + item["access"] + item["freshness"]
        assert item["score"] == pytest.approx(whole)
        assert sum(item["terms"].values()) == pytest.approx(item["bm25"])

    def test_without_explain_it_does_not(self, recaller: Recaller) -> None:
        answer = ask(recaller, k=1)
        assert answer is not None
        assert "bm25" not in answer["items"][0]

    @pytest.mark.parametrize("name", ["touch", "explain"])
    @pytest.mark.parametrize("value", ["yes", 1, 0, []])
    def test_a_switch_is_true_or_false(self, recaller: Recaller, name: str, value: object) -> None:
        assert error(ask(recaller, **{name: value})) == f"{name} is true or false."

    def test_max_chars_bounds_the_context(self, recaller: Recaller) -> None:
        answer = ask(recaller, k=12, max_chars=60)
        assert answer is not None
        assert 0 < len(answer["context"]) <= 60
        assert len(answer["items"]) == 12

    def test_null_counts_as_left_out(self, recaller: Recaller) -> None:
        nothing = dict.fromkeys(("k", "touch", "explain", "deadline", "max_chars"))
        assert len(texts(ask(recaller, **nothing))) == 5

    @pytest.mark.parametrize("name", ["1", 1, 1.5, True, None, "账单", "\ud800", "x" * 10_000])
    def test_the_id_comes_back_as_it_was(self, recaller: Recaller, name: object) -> None:
        answer = ask(recaller, id=name)
        assert answer is not None
        assert answer["id"] == name

    @pytest.mark.parametrize("raw", ["[1]", '{"a": 1}', "1e999"])
    def test_an_id_that_is_none_comes_back_as_null(self, recaller: Recaller, raw: str) -> None:
        request = f'{{"id": {raw}, "agent": "alice", "query": "billing", "reply_to": "{REPLY}"}}'
        answer = ask_raw(recaller, request.encode())
        assert answer is not None
        assert (answer["id"], answer["ok"]) == (None, True)


class TestQueries:
    @pytest.mark.parametrize("query", ["", " ", "?!. …", "\x00\n", "🦊", "\ud800", "*", "_"])
    def test_without_a_term_nothing_is_found(
        self, recaller: Recaller, alice: AgentMemory, query: str
    ) -> None:
        remember(alice, "billing 🦊 ?!")
        answer = ask(recaller, query=query)
        assert answer == {"id": "1", "ok": True, "items": [], "context": ""}

    @pytest.mark.parametrize("unit", ["billing ", "账单", "x", "%d ", "🦊"])
    def test_a_megabyte(self, recaller: Recaller, alice: AgentMemory, unit: str) -> None:
        remember(alice, "billing 账单 x 7")
        size = len(unit.encode())
        query = "".join(unit % n if "%" in unit else unit for n in range(2**20 // size))
        answer = ask(recaller, query=query)
        assert answer is not None
        assert answer["ok"] is True

    def test_the_query_is_in_no_log_line(
        self, recaller: Recaller, alice: AgentMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        remember(alice, "secret words")
        ask(recaller, query="secret")
        ask(recaller, query="secret", k=0)
        ask(recaller, query="secret", deadline=1)
        assert caplog.records
        assert "secret" not in caplog.text


class TestUnknownAgent:
    def test_nothing_is_found_and_no_key_is_left(
        self, client: redis.Redis, recaller: Recaller
    ) -> None:
        answer = ask(recaller, agent="nobody")
        assert answer == {"id": "1", "ok": True, "items": [], "context": ""}
        assert client.keys("*") == []
        assert not recaller._views

    def test_it_is_found_once_it_has_a_memory(
        self, client: redis.Redis, recaller: Recaller, settings: Settings
    ) -> None:
        ask(recaller, agent="nobody")
        remember(agent_memory(client, settings, "nobody"), "billing")
        assert texts(ask(recaller, agent="nobody")) == ["billing"]

    def test_a_flushed_agent_is_nobody_again(
        self, client: redis.Redis, recaller: Recaller, alice: AgentMemory
    ) -> None:
        remember(alice, "billing")
        assert texts(ask(recaller)) == ["billing"]
        client.flushall()
        assert texts(ask(recaller)) == []
        assert client.keys("*") == []


class TestManyAgents:
    def test_the_least_recently_asked_index_goes_first(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        few = settings.model_copy(update={"recaller_agents": 3})
        recaller = Recaller(client, few)
        for agent in "abcd":
            remember(agent_memory(client, settings, agent), f"billing of {agent}")
        for agent in "abcadc":
            assert texts(ask(recaller, agent=agent)) == [f"billing of {agent}"]
        assert list(recaller._views) == ["a", "d", "c"]
        assert texts(ask(recaller, agent="b")) == ["billing of b"]


class TestDeadline:
    @pytest.mark.parametrize("deadline", [NOW - 0.001, 0, 1, -5])
    def test_a_late_request_is_dropped_and_counts_nothing(
        self, recaller: Recaller, alice: AgentMemory, deadline: float
    ) -> None:
        remember(alice, "billing")
        before = alice.position()
        assert ask(recaller, deadline=deadline) is None
        assert alice.position() == before

    def test_in_time_it_is_answered(self, recaller: Recaller, alice: AgentMemory) -> None:
        remember(alice, "billing")
        assert texts(ask(recaller, deadline=NOW)) == ["billing"]

    @pytest.mark.parametrize("deadline", [NOW + 9, None])
    def test_an_answer_that_took_too_long_is_dropped(
        self, client: redis.Redis, settings: Settings, alice: AgentMemory,
        monkeypatch: pytest.MonkeyPatch, deadline: float | None,
    ) -> None:  # fmt: skip
        remember(alice, "billing")
        clock = [NOW]
        recall = MemoryView.recall

        def slow(view: MemoryView, query: str, k: int, *, now: float) -> list[Hit]:
            clock[0] += 10.1
            return recall(view, query, k, now=now)

        monkeypatch.setattr(MemoryView, "recall", slow)
        recaller = Recaller(client, settings, clock=lambda: clock[0])
        assert ask(recaller, deadline=deadline) is None
        assert alice.get(1).access_count == 0

    @pytest.mark.parametrize("raw", ['"soon"', "true", "1e999", "1" + "0" * 400, "[]", "1e12"])
    def test_what_is_no_time_is_refused(self, recaller: Recaller, raw: str) -> None:
        head = f'"id": "1", "agent": "alice", "query": "x", "reply_to": "{REPLY}"'
        request = f'{{{head}, "deadline": {raw}}}'
        said = error(ask_raw(recaller, request.encode()))
        assert said == "deadline is a time in Unix seconds."


class TestRefused:
    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({"agent": ""}, "agent is empty: it must be 1 to 128 characters."),
            ({"agent": None}, "agent is of type NoneType: it must be a string."),
            ({"agent": "al ice"}, "agent holds white space: name it without, "
                                  "e.g. with a hyphen."),
            ({"agent": "{a}"}, "agent '{a}' holds a brace: name it without { and }."),
            ({"agent": "\ud800"}, "agent holds a character that does not print: "
                                  "name it without."),
            ({"query": None}, "query is missing: it is the text to look for."),
            ({"query": 7}, "query is missing: it is the text to look for."),
            ({"query": ["a"]}, "query is missing: it is the text to look for."),
        ],
    )  # fmt: skip
    def test_with_a_sentence(
        self, recaller: Recaller, fields: dict[str, Any], sentence: str
    ) -> None:
        assert error(ask(recaller, **fields)) == sentence

    @pytest.mark.parametrize(
        "reply_to",
        [
            "elsewhere", "remq:reply", "remq:reply:", "remq:events", "remq:{alice}:item:1",
            "REMQ:REPLY:x", "acme:reply:x", "remq:reply:" + "x" * 257, "remq:reply:\ud800",
            "", None, 7, ["remq:reply:x"], {"remq:reply:x": 1},
        ],
    )  # fmt: skip
    def test_a_reply_elsewhere_writes_nothing_anywhere(
        self, client: redis.Redis, recaller: Recaller, reply_to: object
    ) -> None:
        request = {"id": "1", "agent": "alice", "query": "x", "reply_to": reply_to}
        recaller.answer(json.dumps(request).encode())
        recaller.answer(json.dumps({**request, "k": 0}).encode())
        assert client.keys("*") == []

    @pytest.mark.parametrize("name", ["x", "x" * 256, "账单", "a b", "{alice}:item:1", ":", "é"])
    def test_any_name_behind_the_prefix_will_do(
        self, client: redis.Redis, recaller: Recaller, name: str
    ) -> None:
        recaller.answer(
            json.dumps({"agent": "a", "query": "x", "reply_to": f"remq:reply:{name}"}).encode()
        )
        assert client.keys("*") == [f"remq:reply:{name}".encode()]

    @pytest.mark.parametrize(
        "raw",
        [
            b"", b"{", b"[]", b"7", b"null", b'"text"', b"\xff\xfe", b"{'id': 1}", b"[" * 100_000,
            b'{"id": NaN, "agent": "alice", "query": "x", "reply_to": "remq:reply:mine"}',
            b'{"id": "1", "query": "' + b"x" * REQUEST_MAX + b'", "reply_to": "remq:reply:mine"}',
        ],
        ids=range(11),
    )  # fmt: skip
    def test_what_is_no_request_is_passed_over(
        self, client: redis.Redis, recaller: Recaller, alice: AgentMemory, raw: bytes
    ) -> None:
        assert ask_raw(recaller, raw) is None
        remember(alice, "billing")
        assert texts(ask(recaller)) == ["billing"]

    def test_a_flood_of_them_is_a_line_a_second(
        self, recaller: Recaller, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(100):
            recaller.answer(b"{")
        assert len(caplog.records) <= 2


class TestServerFaults:
    def test_an_answer_that_cannot_be_written_ends_nothing(
        self, client: redis.Redis, recaller: Recaller, alice: AgentMemory
    ) -> None:
        remember(alice, "billing")
        client.set("remq:reply:taken", "not a list")
        for k in (1, 0):
            request = {"agent": "alice", "query": "billing", "reply_to": "remq:reply:taken", "k": k}
            recaller.answer(json.dumps(request).encode())
        assert client.get("remq:reply:taken") == b"not a list"
        assert alice.get(1).access_count == 0
        assert texts(ask(recaller)) == ["billing"]

    @pytest.mark.parametrize("name", ["epoch", "rev", "changes", "items"])
    def test_a_memory_of_another_type_is_said_and_harms_no_other(
        self, client: redis.Redis, recaller: Recaller, settings: Settings, name: str
    ) -> None:
        for agent in ("alice", "bob"):
            remember(agent_memory(client, settings, agent), "billing")
        kept: Any = client.dump(getattr(KEYS.agent("alice"), name))
        client.delete(getattr(KEYS.agent("alice"), name))
        client.sadd(getattr(KEYS.agent("alice"), name), "not what belongs here")
        assert ask(recaller) == FAILED
        assert texts(ask(recaller, agent="bob")) == ["billing"]
        client.restore(getattr(KEYS.agent("alice"), name), 0, kept, replace=True)
        assert texts(ask(recaller)) == ["billing"]

    def test_a_corrupt_item_hides_no_other(self, recaller: Recaller, alice: AgentMemory) -> None:
        remember(alice, "billing spoilt")
        remember(alice, "billing sound")
        recaller.client.hset(alice.keys.item(1), "salience", "high")
        assert texts(ask(recaller)) == ["billing sound"]

    def test_a_server_gone_for_one_question(
        self, client: redis.Redis, server: str, settings: Settings, alice: AgentMemory
    ) -> None:
        remember(alice, "billing")
        patient = ill(server)
        recaller = Recaller(patient, settings)
        patient.ill = lambda name: name == "GET XRANGE"
        assert ask(recaller) == FAILED
        patient.ill = lambda name: name in {"GET XRANGE", "RPUSH EXPIRE"}
        assert ask(recaller) is None
        patient.ill = lambda _: False
        assert texts(ask(recaller)) == ["billing"]
        patient.close()

    def test_a_recall_that_cannot_be_counted_is_answered_all_the_same(
        self, client: redis.Redis, server: str, settings: Settings, alice: AgentMemory,
        caplog: pytest.LogCaptureFixture,
    ) -> None:  # fmt: skip
        remember(alice, "billing")
        patient = ill(server)
        patient.ill = lambda name: name == "EVALSHA"
        assert texts(ask(Recaller(patient, settings))) == ["billing"]
        assert alice.get(1).access_count == 0
        assert "recall not counted agent=alice" in caplog.text
        patient.close()

    @pytest.mark.parametrize(
        "fault",
        [
            redis.ConnectionError("gone"),
            redis.exceptions.BusyLoadingError("loading"),
            redis.ResponseError("WRONGTYPE Operation against a key"),
            redis.exceptions.RedisClusterException("no cluster"),
        ],
        ids=repr,
    )
    def test_a_server_gone_for_a_while_is_waited_for(
        self, client: redis.Redis, server: str, settings: Settings, alice: AgentMemory,
        fault: Exception,
    ) -> None:  # fmt: skip
        remember(alice, "billing")
        patient = ill(server, fault)
        recaller = Recaller(patient, settings)
        pauses: list[float] = []
        tries = iter(range(5))
        recaller.outage = Outage(
            logging.getLogger("remq.recaller"), settings,
            stopping=lambda: recaller.stopping, sleep=pauses.append,
        )  # fmt: skip
        patient.ill = lambda name: name == "BRPOP" and next(tries, None) is not None
        with at_work(recaller):
            assert Memory("alice", client).recall("billing")
        assert sum(pauses) == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1.6)
        patient.close()

    def test_a_start_without_a_server_ends_with_the_fault(self, settings: Settings) -> None:
        nobody = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))
        with pytest.raises(redis.ConnectionError):
            Recaller(nobody, settings).run()

    def test_a_question_after_a_flush_of_everything(
        self, client: redis.Redis, settings: Settings, alice: AgentMemory
    ) -> None:
        remember(alice, "billing old")
        memory = Memory("alice", client)
        with at_work(Recaller(client, settings)):
            assert len(memory.recall("billing")) == 1
            client.flushall()
            assert memory.recall("billing") == []
            remember(alice, "billing new")
            assert [found.text for found in memory.recall("billing")] == ["billing new"]


def test_its_clock_is_the_time_of_day(client: redis.Redis, settings: Settings) -> None:
    recaller = Recaller(client, settings)
    assert abs(recaller.clock() - time.time()) < 60
