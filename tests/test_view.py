"""The view: always what was stored before the question, however it came to be."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.faults import mortal
from tests.stage import DAY, NOW, apply, remember
from worker.keys import Keys
from worker.memory import view as module
from worker.memory.item import INSIGHT, Item
from worker.memory.recall import Hit
from worker.memory.store import AgentMemory, Position
from worker.memory.view import MemoryView
from worker.sleep.model import Connection


@pytest.fixture
def view(alice: AgentMemory) -> MemoryView:
    """A view of alice's memory."""
    return MemoryView(alice)


@pytest.fixture
def rebuilds(monkeypatch: pytest.MonkeyPatch) -> list[MemoryView]:
    """The views that read a whole memory, one for each time."""
    done: list[MemoryView] = []
    rebuild = MemoryView._rebuild

    def counting(view: MemoryView) -> None:
        done.append(view)
        rebuild(view)

    monkeypatch.setattr(MemoryView, "_rebuild", counting)
    return done


def known(view: MemoryView) -> list[Item]:
    """What the view holds, of what recall shows or counts with."""
    found = (view.index.get(item_id) for item_id in range(1, 100))
    return [as_recalled(item) for item in found if item is not None]


def stored(memory: AgentMemory) -> list[Item]:
    """What the server holds, likewise."""
    return sorted(map(as_recalled, memory.all_items()), key=lambda item: item.id)


def as_recalled(item: Item) -> Item:
    return replace(item, entities=(), topics=(), last_consolidated_at=None, rev=0)


def texts(view: MemoryView, query: str = "memory", k: int = 100) -> list[str]:
    return sorted(hit.item.text for hit in view.recall(query, k, now=NOW))


def found(view: MemoryView, query: str) -> list[Hit]:
    hits = view.recall(query, 100, now=NOW)
    return [replace(hit, item=as_recalled(hit.item)) for hit in hits]


class TestOperations:
    """Each entry of the feed is applied, without reading the whole memory again."""

    def test_put(self, alice: AgentMemory, view: MemoryView, rebuilds: list[MemoryView]) -> None:
        remember(alice, "memory one")
        assert texts(view) == ["memory one"]
        remember(alice, "memory two")
        assert texts(view) == ["memory one", "memory two"]
        assert len(rebuilds) == 1

    def test_delete(self, alice: AgentMemory, view: MemoryView, rebuilds: list[MemoryView]) -> None:
        for number in range(3):
            remember(alice, f"memory {number}")
        view.refresh()
        alice.delete(2)
        assert texts(view) == ["memory 0", "memory 2"]
        assert len(rebuilds) == 1

    def test_touch(self, alice: AgentMemory, view: MemoryView, rebuilds: list[MemoryView]) -> None:
        for number in range(3):
            remember(alice, f"memory {number}")
        view.refresh()
        alice.touch([1, 3], NOW + 1)
        alice.touch([3], NOW + 2)
        hits = {hit.item.id: hit.item for hit in view.recall("memory", 5, now=NOW)}
        assert [hits[n].access_count for n in (1, 2, 3)] == [1, 0, 2]
        assert [hits[n].last_access_ts for n in (1, 2, 3)] == [NOW + 1, None, NOW + 2]
        assert len(rebuilds) == 1

    def test_rerate_and_a_new_insight(
        self, alice: AgentMemory, view: MemoryView, rebuilds: list[MemoryView]
    ) -> None:
        for number in range(3):
            remember(alice, f"memory {number}", salience=0.5)
        view.refresh()
        apply(alice, connections=[Connection(1, 2, "follows")], insight="memory needs sleep")
        assert "memory needs sleep" in texts(view)
        assert [item.salience for item in known(view)] == [0.6, 0.6, 0.5, 0.8]
        assert known(view) == stored(alice)
        assert len(rebuilds) == 1

    def test_everything_at_once_read_late(
        self, alice: AgentMemory, view: MemoryView, rebuilds: list[MemoryView]
    ) -> None:
        remember(alice, "memory 0")
        view.refresh()
        for number in range(1, 6):
            remember(alice, f"memory {number}")
            alice.touch([number, 1], NOW + number)
        alice.delete(3)
        alice.touch([3, 4], NOW + 9)
        apply(alice, connections=[Connection(1, 4, "follows")])
        view.refresh()
        assert known(view) == stored(alice)
        assert alice.get(1).access_count == 6
        assert len(rebuilds) == 1

    def test_what_has_expired_is_not_found_and_its_neighbours_are(
        self, alice: AgentMemory, view: MemoryView
    ) -> None:
        remember(alice, "memory brief", expires_at=NOW)
        remember(alice, "memory lasting", expires_at=NOW + DAY)
        assert texts(view) == ["memory lasting"]


class TestLateReading:
    """An item may be read after later changes than the feed at hand: its counts stay exact."""

    def test_touched_between_the_feed_and_the_item(
        self, alice: AgentMemory, view: MemoryView, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        remember(alice, "memory 0")
        view.refresh()
        remember(alice, "memory 1")
        alice.touch([2], NOW + 1)
        read = alice.items

        def late(ids: Any) -> list[Item]:
            monkeypatch.undo()
            alice.touch([2], NOW + 2)
            alice.touch([2], NOW + 3)
            return read(ids)

        monkeypatch.setattr(alice, "items", late)
        view.refresh()
        for _ in range(2):
            view.refresh()
            assert known(view) == stored(alice)
            assert alice.get(2).access_count == 3

    def test_deleted_between_the_feed_and_the_item(
        self, alice: AgentMemory, view: MemoryView, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        remember(alice, "memory 0")
        view.refresh()
        remember(alice, "memory 1")
        read = alice.items

        def late(ids: Any) -> list[Item]:
            monkeypatch.undo()
            alice.delete(2)
            return read(ids)

        monkeypatch.setattr(alice, "items", late)
        assert texts(view) == ["memory 0"]
        assert texts(view) == ["memory 0"]

    def test_changed_while_the_whole_memory_was_read(
        self, alice: AgentMemory, view: MemoryView, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(4):
            remember(alice, f"memory {number}")
        read = alice.items

        def late(ids: Any) -> list[Item]:
            monkeypatch.undo()
            remember(alice, "memory 4")
            alice.delete(1)
            alice.touch([2, 5], NOW)
            return read(ids)

        monkeypatch.setattr(alice, "items", late)
        view.refresh()
        view.refresh()
        assert known(view) == stored(alice)
        assert [item.id for item in known(view)] == [2, 3, 4, 5]


class TestRebuild:
    def test_after_a_flush(
        self, alice: AgentMemory, view: MemoryView, rebuilds: list[MemoryView]
    ) -> None:
        remember(alice, "memory old")
        view.refresh()
        alice.client.flushall()
        assert texts(view) == []
        assert view.at == Position("", 0)
        remember(alice, "memory new")
        assert texts(view) == ["memory new"]
        assert len(rebuilds) == 3

    def test_after_a_flush_that_nobody_saw(self, alice: AgentMemory, view: MemoryView) -> None:
        """The new life has come as far as the old one: only its name is another."""
        remember(alice, "memory old")
        view.refresh()
        alice.client.flushall()
        remember(alice, "memory new")
        assert texts(view) == ["memory new"]

    def test_after_the_feed_was_trimmed(
        self, alice: AgentMemory, view: MemoryView, rebuilds: list[MemoryView]
    ) -> None:
        remember(alice, "memory 0")
        view.refresh()
        for number in range(1, 4):
            remember(alice, f"memory {number}")
        alice.client.xtrim(alice.keys.changes, maxlen=2, approximate=False)
        assert texts(view) == [f"memory {number}" for number in range(4)]
        assert len(rebuilds) == 2

    def test_after_the_feed_was_lost(self, alice: AgentMemory, view: MemoryView) -> None:
        remember(alice, "memory 0")
        view.refresh()
        remember(alice, "memory 1")
        alice.client.delete(alice.keys.changes)
        assert texts(view) == ["memory 0", "memory 1"]

    def test_after_a_hole_in_the_feed(self, alice: AgentMemory, view: MemoryView) -> None:
        remember(alice, "memory 0")
        view.refresh()
        for number in range(1, 4):
            remember(alice, f"memory {number}")
        alice.client.xdel(alice.keys.changes, "3-0")
        assert texts(view) == [f"memory {number}" for number in range(4)]

    def test_when_the_server_is_behind(self, alice: AgentMemory, view: MemoryView) -> None:
        """A replica took over, or a backup was restored: the same life, an earlier hour of it."""
        for number in range(3):
            remember(alice, f"memory {number}")
        view.refresh()
        client, keys = alice.client, alice.keys
        client.delete(keys.item(3))
        client.zrem(keys.items, 3)
        client.xdel(keys.changes, "3-0")
        client.set(keys.rev, 2)
        assert texts(view) == ["memory 0", "memory 1"]

    def test_further_behind_than_one_reading_takes(
        self,
        alice: AgentMemory,
        view: MemoryView,
        rebuilds: list[MemoryView],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(module, "CATCH_UP", 3)
        remember(alice, "memory 0")
        view.refresh()
        for number in range(1, 4):
            remember(alice, f"memory {number}")
        view.refresh()
        assert len(rebuilds) == 1
        for number in range(4, 8):
            remember(alice, f"memory {number}")
        view.refresh()
        assert len(rebuilds) == 2
        assert known(view) == stored(alice)

    @pytest.mark.parametrize(
        "change",
        [{"op": "put", "data": "one"}, {"op": "put"}, {"data": "1"}, {"op": "delete", "data": "1;"},
         {"op": "touch", "data": "1:x", "at": "1"}, {"op": "rerate", "data": "1"},
         {"op": "merge", "data": "1"}],
        ids=repr,
    )  # fmt: skip
    def test_after_a_change_that_is_none_of_ours(
        self, alice: AgentMemory, view: MemoryView, change: dict[Any, Any]
    ) -> None:
        remember(alice, "memory 0")
        view.refresh()
        alice.client.xadd(alice.keys.changes, change, id=f"{alice.client.incr(alice.keys.rev)}-0")
        remember(alice, "memory 1")
        assert texts(view) == ["memory 0", "memory 1"]

    def test_a_reading_that_fails_half_way_leaves_no_half_an_index(
        self, alice: AgentMemory, view: MemoryView, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(3):
            remember(alice, f"memory {number}")
        monkeypatch.setattr("worker.memory.store.PAGE", 2)
        read = alice.items
        pages = itertools.count()

        def failing(ids: Any) -> list[Item]:
            if next(pages) == 1:
                raise redis.ConnectionError("gone")
            return read(ids)

        monkeypatch.setattr(alice, "items", failing)
        with pytest.raises(redis.ConnectionError):
            view.refresh()
        assert texts(view) == ["memory 0", "memory 1", "memory 2"]

    def test_a_catching_up_that_fails_half_way_is_done_again(
        self, alice: AgentMemory, view: MemoryView, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        remember(alice, "memory 0")
        view.refresh()
        alice.touch([1], NOW)
        for number in (1, 2):
            remember(alice, f"memory {number}")
            alice.touch([number], NOW + number)
        read = alice.items
        tries = itertools.count()

        def failing(ids: Any) -> list[Item]:
            if next(tries) == 1:
                raise redis.ConnectionError("gone")
            return read(ids)

        monkeypatch.setattr(alice, "items", failing)
        with pytest.raises(redis.ConnectionError):
            view.refresh()
        view.refresh()
        assert known(view) == stored(alice)


class TestCost:
    def test_nothing_new_is_one_round_trip(
        self, client: redis.Redis, alice: AgentMemory, server: str
    ) -> None:
        remember(alice, "memory 0")
        counting = mortal(server)
        view = MemoryView(AgentMemory(counting, Keys().agent("alice")))
        view.refresh()
        counting.commands = 1
        assert texts(view) == ["memory 0"]
        counting.close()

    def test_nobody_s_memory_leaves_no_key(self, client: redis.Redis, view: MemoryView) -> None:
        assert view.recall("memory", 5, now=NOW) == []
        assert view.at == Position("", 0)
        assert client.keys("*") == []


class TestHistories:
    """Whatever happens in whatever order: the view is what a fresh reading would be."""

    words = st.sampled_from(["memory", "billing", "region", "账单", "move"])
    text = st.lists(words, min_size=1, max_size=4).map(" ".join)
    often = (
        st.tuples(st.just("remember"), text),
        st.tuples(st.just("touch"), st.lists(st.integers(1, 12), max_size=4)),
        st.tuples(st.just("look"), st.none()),
    )
    seldom = (
        st.tuples(st.just("delete"), st.integers(1, 12)),
        st.tuples(st.just("pass"), st.booleans()),
        st.tuples(st.just("trim"), st.integers(0, 3)),
        st.tuples(st.just("flush"), st.none()),
    )
    step = st.one_of(*often, *often, *often, *seldom)

    @settings(
        max_examples=80,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(steps=st.lists(step, min_size=5, max_size=40))
    def test_the_view_equals_a_fresh_one(
        self, alice: AgentMemory, steps: list[tuple[str, Any]]
    ) -> None:
        alice.client.flushall()
        view = MemoryView(alice)
        for name, value in steps:
            self.take(alice, view, name, value)
        fresh = MemoryView(alice)
        for query in ("memory region", "账单", "billing billing move"):
            assert found(view, query) == found(fresh, query)
        assert known(view) == known(fresh) == stored(alice)
        assert view.at == fresh.at

    def take(self, memory: AgentMemory, view: MemoryView, name: str, value: Any) -> None:
        match name:
            case "remember":
                remember(memory, value)
            case "touch":
                memory.touch(value, NOW)
            case "delete":
                memory.delete(value)
            case "pass":
                ids = [item.id for item in memory.all_items() if item.kind != INSIGHT]
                links = [Connection(ids[0], ids[1], "follows")] if len(ids) > 1 else []
                apply(memory, connections=links, insight="a region moves" if value else None)
            case "trim":
                memory.client.xtrim(memory.keys.changes, maxlen=value, approximate=False)
            case "flush":
                memory.client.flushall()
            case "look":
                view.refresh()
