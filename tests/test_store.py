"""Items, connections, deletion: every change is one script, with a revision in the feed."""

from collections.abc import Callable

import pytest
import redis
from redis.exceptions import ResponseError

from producer import Event
from tests.scripted import dump
from tests.stage import DAY, NOW, apply, recent_insights, remember
from worker.errors import MemoryNotFound, Unreadable
from worker.keys import Keys
from worker.memory import retention
from worker.memory.scripts import Script, run
from worker.memory.store import AgentMemory, written
from worker.sleep.model import Connection


def test_an_event_becomes_an_item_with_its_defaults(alice: AgentMemory) -> None:
    remember(alice, "Billing moves in May", tier="durable", provenance="user:ana")
    (item,) = alice.all_items()
    assert (item.id, item.text, item.tier) == (1, "Billing moves in May", "durable")
    assert (item.kind, item.provenance, item.salience) == ("note", "user:ana", 1.0)
    assert (item.access_count, item.last_access_ts, item.last_consolidated_at) == (0, None, None)


@pytest.mark.parametrize(("tier", "salience"), [("durable", 1.0), ("episodic", 0.6)])
def test_salience_defaults_by_tier(alice: AgentMemory, tier: str, salience: float) -> None:
    remember(alice, "a memory", tier=tier)
    assert alice.get(1).salience == salience


def test_the_same_event_id_is_stored_once(alice: AgentMemory) -> None:
    first = remember(alice, "once", event_id="e1")
    again = remember(alice, "twice", event_id="e1")
    assert (first.stored, first.duplicates) == (1, 0)
    assert (again.stored, again.duplicates) == (0, 1)
    assert [item.text for item in alice.all_items()] == ["once"]


def test_the_same_event_id_twice_in_one_batch_is_stored_once(alice: AgentMemory) -> None:
    events = [Event("alice", text, event_id="e1", ts=NOW) for text in ("once", "twice")]
    outcome = written(run(alice.client, alice.write_call(events, alice.reserve(2), NOW)))
    assert (outcome.stored, outcome.duplicates) == (1, 1)


def test_ids_are_small_integers_of_their_agent(client: redis.Redis, alice: AgentMemory) -> None:
    bob = AgentMemory(client, Keys().agent("bob"))
    for text in ("a", "b"):
        remember(alice, text)
        remember(bob, text)
    assert alice.ids() == bob.ids() == [1, 2]


def test_what_waits_and_when_a_pass_may_start_is_answered(alice: AgentMemory) -> None:
    alice.client.hset(alice.keys.run, "not_before", "42.5")
    outcome = remember(alice, "a")
    assert (outcome.waiting, outcome.not_before) == (1, 42.5)


def test_an_unknown_memory_is_named(alice: AgentMemory) -> None:
    with pytest.raises(MemoryNotFound, match="'alice' has no memory 7"):
        alice.get(7)


def test_an_unreadable_item_hides_no_other(
    alice: AgentMemory, caplog: pytest.LogCaptureFixture
) -> None:
    for text in ("secret", "kept"):
        remember(alice, text)
    alice.client.hset(alice.keys.item(1), "salience", "nan")
    assert [item.text for item in alice.all_items()] == ["kept"]
    assert "unreadable item agent=alice id=1" in caplog.text
    assert "secret" not in caplog.text


def test_every_change_has_its_revision_in_the_feed_and_no_text(alice: AgentMemory) -> None:
    remember(alice, "secret words")
    alice.touch([1], NOW)
    alice.delete(1)
    feed = alice.client.xrange(alice.keys.changes)
    assert [change[b"op"] for _, change in feed] == [b"put", b"touch", b"delete"]
    assert [entry for entry, _ in feed] == [b"1-0", b"2-0", b"3-0"]
    assert alice.position().rev == 3
    assert b"secret" not in repr(feed).encode()


def test_touch_counts_each_item_that_exists_with_one_entry(alice: AgentMemory) -> None:
    for text in ("a", "b"):
        remember(alice, text)
    alice.touch([1, 2, 99], NOW + 5)
    assert [item.access_count for item in alice.all_items()] == [1, 1]
    assert alice.get(1).last_access_ts == NOW + 5
    assert not alice.client.exists(alice.keys.item(99))
    assert alice.client.xrevrange(alice.keys.changes, count=1)[0][1][b"data"] == b"1:1,2:1"


def test_touching_an_agent_without_memory_leaves_nothing(alice: AgentMemory) -> None:
    alice.touch([], NOW)
    assert alice.client.keys("*") == []


def test_a_connection_is_unique_by_its_triple(alice: AgentMemory) -> None:
    for text in ("a", "b", "c"):
        remember(alice, text)
    apply(alice, connections=[Connection(1, 2, "causes"), Connection(1, 2, "causes")])
    apply(alice, connections=[Connection(1, 2, "causes"), Connection(1, 2, "follows")])
    assert [link.field for link in alice.links(1)] == ["1:2:causes", "1:2:follows"]


def test_deleting_a_memory_deletes_its_connections(alice: AgentMemory) -> None:
    for text in ("a", "b", "c"):
        remember(alice, text)
    apply(alice, connections=[Connection(1, 2, "causes"), Connection(2, 3, "follows")])
    assert alice.delete(2)
    assert alice.links(1) == alice.links(3) == []
    assert alice.client.hlen(alice.keys.connections) == 0
    assert not alice.delete(2)


def test_deleting_an_insight_leaves_the_connections_and_empties_their_reference(
    alice: AgentMemory,
) -> None:
    for text in ("a", "b", "c"):
        remember(alice, text)
    apply(alice, connections=[Connection(1, 2, "causes")], insight="a and b belong together")
    (insight,) = recent_insights(alice, 10)
    assert alice.links(1)[0].insight_id == insight.id
    alice.delete(insight.id)
    assert [(link.field, link.insight_id) for link in alice.links(1)] == [("1:2:causes", None)]
    alice.delete(1)
    assert alice.client.hlen(alice.keys.connections) == 0


@pytest.mark.parametrize("value", ["a secret", "x|run|1", "1|run|x", b"\xff"])
def test_a_connection_that_cannot_be_read_is_named(alice: AgentMemory, value: str | bytes) -> None:
    for text in ("a", "b", "c"):
        remember(alice, text)
    apply(alice, connections=[Connection(1, 2, "causes")])
    alice.client.hset(alice.keys.connections, "1:2:causes", value)
    with pytest.raises(Unreadable, match="A connection of memory 1 of agent 'alice'") as fault:
        alice.links(1)
    assert "secret" not in str(fault.value)


def test_deleting_everything_leaves_no_index_behind(alice: AgentMemory) -> None:
    for number in range(4):
        remember(alice, f"memory {number}", expires_at=NOW + DAY)
    apply(alice, connections=[Connection(1, 2, "causes")], insight="these belong together")
    for item_id in alice.ids():
        alice.delete(item_id)
    left = {key.decode().rpartition(":")[2] for key in alice.client.scan_iter("remq:{alice}:*")}
    assert left == {"ids", "rev", "epoch", "seen", "changes", "run", "passes"}


def test_delete_notices_that_neighbours_changed(alice: AgentMemory) -> None:
    """The script refuses a call whose neighbours are out of date, and the caller reads again."""
    for text in ("a", "b", "c"):
        remember(alice, text)
    apply(alice, connections=[Connection(1, 2, "causes")])
    script = Script.load("delete")
    names = [name for name in script.keys if name not in {"item", "links"}]
    call = script.call(
        {
            "item": alice.keys.item(1),
            "links": alice.keys.links(1),
            **{name: getattr(alice.keys, name) for name in names},
        },
        {"id": 1, "feed_max": 100, "salience_at_most": ""},
    )
    assert run(alice.client, call) == b"RETRY"
    assert alice.get(1).text == "a"


def test_a_script_is_taught_again_after_the_server_forgot_it(alice: AgentMemory) -> None:
    remember(alice, "a")
    alice.client.script_flush()
    remember(alice, "b")
    assert alice.ids() == [1, 2]


def test_a_script_refuses_wrong_names() -> None:
    with pytest.raises(TypeError, match="lead takes"):
        Script.load("lead").call({"leader": "k"}, {"token": "t"})


#: What changes a memory, and the keys it writes.
CHANGES: dict[str, tuple[Callable[[AgentMemory], object], set[str]]] = {
    "write": (
        lambda memory: remember(memory, "new", expires_at=NOW + DAY),
        {"seen", "items", "unconsolidated", "expiring", "provenance", "rev", "epoch", "changes"},
    ),
    "touch": (lambda memory: memory.touch([1, 2], NOW), {"rev", "changes", "run", "item 2"}),
    "delete": (
        lambda memory: memory.delete(1),
        {"items", "unconsolidated", "expiring", "provenance", "insights", "rev", "changes",
         "connections", "links 2"},
    ),
}  # fmt: skip


class TestKeysOfAnother:
    """A key that holds something else stops a change before its first write."""

    @pytest.fixture
    def linked(self, alice: AgentMemory) -> AgentMemory:
        """A memory of three items, 1 and 2 of them connected, and an insight, 4."""
        for text in ("a", "b", "c"):
            remember(alice, text, expires_at=NOW + DAY)
        apply(alice, connections=[Connection(1, 2, "causes")], insight="these belong together")
        remember(alice, "waits")
        return alice

    @pytest.mark.parametrize(
        ("change", "name"), [(change, name) for change in CHANGES for name in CHANGES[change][1]]
    )
    def test_one_of_another_type(self, linked: AgentMemory, change: str, name: str) -> None:
        kind, _, number = name.partition(" ")
        key = getattr(linked.keys, kind)
        key = key(number) if number else key
        spoil = linked.client.set if linked.client.type(key) != b"string" else linked.client.sadd
        linked.client.delete(key)
        spoil(key, "a stranger's")
        self.refuses(linked, change, "WRONGTYPE")

    @pytest.mark.parametrize("change", CHANGES)
    def test_a_revision_that_is_no_number(self, linked: AgentMemory, change: str) -> None:
        linked.client.set(linked.keys.rev, "a stranger's")
        self.refuses(linked, change, "rev is no number")

    def refuses(self, memory: AgentMemory, change: str, message: str) -> None:
        memory.reserve(1)  # An id that is handed out and not used is a gap, no harm.
        before = dump(memory)
        with pytest.raises(ResponseError, match=message):
            CHANGES[change][0](memory)
        after = dump(memory)
        assert {**after, memory.keys.ids.encode(): b""} == {**before, memory.keys.ids.encode(): b""}

    @pytest.mark.parametrize("count", ["a stranger's", "1.5", None])
    def test_an_item_whose_recalls_cannot_be_counted_is_left_out_of_a_touch(
        self, linked: AgentMemory, count: str | None
    ) -> None:
        linked.client.hdel(linked.keys.item(1), "access_count")
        if count is not None:
            linked.client.hset(linked.keys.item(1), "access_count", count)
        before = linked.client.hgetall(linked.keys.item(1))
        linked.touch([1, 2], NOW)
        assert linked.client.hgetall(linked.keys.item(1)) == before
        assert linked.get(2).access_count == 1


class TestForgetting:
    """It is explicit, and says what it removed."""

    def test_purge_removes_only_what_has_expired(self, alice: AgentMemory) -> None:
        remember(alice, "gone", expires_at=NOW + 1)
        remember(alice, "kept", expires_at=NOW + DAY)
        dry = retention.purge_expired(alice, now=NOW + 1, dry_run=True)
        assert dry.ids == (1,)
        assert alice.ids() == [1, 2]
        assert retention.purge_expired(alice, now=NOW + 1).ids == (1,)
        assert alice.ids() == [2]

    def test_decay_removes_old_episodic_items_at_or_below_the_floor(
        self, alice: AgentMemory
    ) -> None:
        remember(alice, "old and faint", salience=0.2, ts=NOW - 91 * DAY)
        remember(alice, "old and strong", salience=0.3, ts=NOW - 91 * DAY)
        remember(alice, "old and durable", salience=0.1, ts=NOW - 91 * DAY, tier="durable")
        remember(alice, "young and faint", salience=0.1, ts=NOW - 89 * DAY)
        assert retention.decay_episodic(alice, now=NOW).ids == (1,)
        assert len(alice.ids()) == 3

    def test_an_item_whose_salience_rose_meanwhile_is_kept(self, alice: AgentMemory) -> None:
        remember(alice, "was faint", salience=0.5)
        assert not alice.delete(1, salience_at_most=0.2)
        assert alice.ids() == [1]

    def test_forget_by_prefix_and_exactly(self, alice: AgentMemory) -> None:
        for provenance in ("user:4", "user:42", "user:42", "tool:git", "ユーザー:4"):
            remember(alice, provenance, provenance=provenance)
        assert retention.provenances(alice, "user:4") == {"user:4": 1, "user:42": 2}
        assert retention.forget_exact(alice, "user:4").provenances == {"user:4": 1}
        removed = retention.forget_by_provenance(alice, "user:")
        assert removed.public() == {
            "removed": 2, "ids": [2, 3], "provenances": {"user:42": 2},
        }  # fmt: skip
        assert retention.forget_by_provenance(alice, "ユーザー").ids == (5,)
        assert alice.ids() == [4]

    def test_agents_are_apart(self, client: redis.Redis, alice: AgentMemory) -> None:
        bob = AgentMemory(client, Keys().agent("bob"))
        remember(alice, "a", provenance="user:1")
        remember(bob, "b", provenance="user:1")
        retention.forget_by_provenance(alice, "user:")
        assert (alice.ids(), bob.ids()) == ([], [1])
