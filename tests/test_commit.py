"""commit.lua: a whole pass or nothing of it, once, from what is stored at that moment."""

import pytest
import redis
from redis.exceptions import ResponseError

from tests.scripted import dump
from tests.stage import DAY, NOW, apply, recent_insights, remember, started
from worker.memory import retention
from worker.memory.scripts import Script, run
from worker.memory.store import AgentMemory
from worker.memory.view import MemoryView
from worker.runs import Committed, Runs
from worker.sleep import window
from worker.sleep.model import Connection, Metadata
from worker.sleep.plan import Plan, draw_up
from worker.sleep.report import Report
from worker.sleep.seats import COPIES_MAX

INSIGHT = "a and b are one plan"


@pytest.fixture
def three(alice: AgentMemory) -> AgentMemory:
    """A memory of three items, 1 to 3, salience 0.6."""
    for text in ("a", "b", "c"):
        remember(alice, text)
    return alice


def read_plan(memory: AgentMemory, *links: Connection, insight: str | None = INSIGHT) -> Plan:
    """A plan over all that waits."""
    return draw_up(
        window.read(memory, 20, now=NOW).seats,
        now=NOW,
        metadata={},
        connections=links,
        insight=insight,
    )


def commit(
    runs: Runs, plan: Plan, token: str, *, rerate: bool = True, not_before: float = NOW + 60
) -> Committed:
    """Commit a plan for alice under a run."""
    return runs.commit(plan, Report("alice", token, NOW - 1, "test"), not_before, rerate)


def unchanged(memory: AgentMemory, before: dict[bytes, bytes]) -> bool:
    """Whether no key differs but the last id handed out: ids are reserved first, gaps are fine."""
    ids = memory.keys.ids.encode()
    after = dump(memory)
    return {k: v for k, v in before.items() if k != ids} == {
        k: v for k, v in after.items() if k != ids
    }


class TestAllOrNothing:
    """What was read must still stand, and the run must still be ours."""

    def test_a_deleted_item_refuses_the_whole_pass(self, three: AgentMemory, runs: Runs) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        three.delete(2)
        before = dump(three)
        assert commit(runs, plan, token).word == "CHANGED"
        assert unchanged(three, before)

    def test_an_item_whose_text_was_replaced_refuses_the_whole_pass(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        three.client.hset(three.keys.item(3), mapping={"text": "another", "rev": 99})
        before = dump(three)
        assert commit(runs, plan, token).word == "CHANGED"
        assert unchanged(three, before)

    @pytest.mark.parametrize("way", ["forget", "purge"])
    def test_a_forgotten_or_purged_item_refuses_the_whole_pass(
        self, alice: AgentMemory, runs: Runs, way: str
    ) -> None:
        for number in range(3):
            remember(alice, f"text {number}", provenance=f"user:{number}", expires_at=NOW + 9)
        plan, token = read_plan(alice), started(runs, "alice")
        if way == "forget":
            retention.forget_exact(alice, "user:1")
        else:
            retention.purge_expired(alice, now=NOW + 9)
        before = dump(alice)
        assert commit(runs, plan, token).word == "CHANGED"
        assert unchanged(alice, before)

    def test_a_copy_that_was_deleted_refuses_it_too(self, alice: AgentMemory, runs: Runs) -> None:
        for text in ("same", "same", "b", "c"):
            remember(alice, text)
        plan, token = read_plan(alice), started(runs, "alice")
        alice.delete(1)
        assert commit(runs, plan, token).word == "CHANGED"

    def test_a_run_that_another_has_taken_over_changes_nothing(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan, late = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        three.client.hset(three.keys.run, "lease_until", "1")
        assert started(runs, "alice") != late
        before = dump(three)
        assert commit(runs, plan, late).word == "SUPERSEDED"
        assert unchanged(three, before)

    def test_a_run_that_was_only_claimed_changes_nothing(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        token = runs.claim("alice", force=True).token
        before = dump(three)
        assert commit(runs, read_plan(three), token).word == "SUPERSEDED"
        assert unchanged(three, before)

    def test_a_connection_out_of_the_window_is_refused_before_the_first_write(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan = read_plan(three, Connection(1, 2, "blocks"), Connection(1, 9, "blocks"))
        token = started(runs, "alice")
        before = dump(three)
        with pytest.raises(ResponseError, match="leaves the window"):
            commit(runs, plan, token)
        assert unchanged(three, before)

    @pytest.mark.parametrize("name", ["base", "bump", "salience", "access_count"])
    @pytest.mark.parametrize("value", ["a stranger's", None])
    def test_an_item_that_cannot_be_read_refuses_it_and_is_left_out_of_the_next(
        self, three: AgentMemory, runs: Runs, name: str, value: str | None
    ) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        three.client.hdel(three.keys.item(3), name)
        if value is not None:
            three.client.hset(three.keys.item(3), name, value)
        before = dump(three)
        assert commit(runs, plan, token).word == "CHANGED"
        assert unchanged(three, before)
        assert commit(runs, read_plan(three, Connection(1, 2, "blocks")), token).word == "OK"
        assert three.client.zrange(three.keys.unconsolidated, 0, -1) == [b"3"]

    def test_a_count_of_recalls_that_cannot_be_read_is_none(self, three: AgentMemory) -> None:
        three.client.hset(three.keys.item(1), "counted", "a stranger's")
        three.touch([1], NOW)
        assert apply(three).salience_rerated == 1

    def test_a_revision_that_is_no_number_is_met_before_the_first_write(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        three.client.set(three.keys.rev, "a stranger's")
        before = dump(three)
        with pytest.raises(ResponseError, match="rev is no number"):
            commit(runs, plan, token)
        assert unchanged(three, before)

    @pytest.mark.parametrize("name", ["passes", "insights", "connections", "links"])
    def test_a_key_of_another_type_is_met_before_the_first_write(
        self, three: AgentMemory, runs: Runs, name: str
    ) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        key = three.keys.links(2) if name == "links" else getattr(three.keys, name)
        three.client.set(key, "a stranger's")
        before = dump(three)
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            commit(runs, plan, token)
        assert unchanged(three, before)

    def test_arguments_that_do_not_fit_are_refused(self, three: AgentMemory) -> None:
        script = Script.load("commit")
        call = script.call(
            dict.fromkeys(script.keys, "remq:{alice}:run"),
            {**dict.fromkeys(script.args, 0), "window": 1},
        )
        with pytest.raises(ResponseError, match="do not fit"):
            run(three.client, call)


class TestOnce:
    """The client library repeats a command whose answer was lost."""

    def test_a_repeated_commit_says_the_same_and_changes_nothing(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        first = commit(runs, plan, token)
        before = dump(three)
        report = first.report
        call = runs._commit_call(plan, report, NOW + 60, True)
        assert run(three.client, call) == [b"OK", 1, 2]
        assert dump(three) == before

    def test_also_when_the_next_run_was_claimed_meanwhile(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan, token = read_plan(three), started(runs, "alice")
        first = commit(runs, plan, token)
        started(runs, "alice")
        call = runs._commit_call(plan, first.report, NOW + 60, True)
        assert run(three.client, call)[0] == b"OK"
        assert three.counts()["insights"] == 1

    def test_the_run_after_it_is_another_pass(self, three: AgentMemory, runs: Runs) -> None:
        plan = read_plan(three)
        for insights in (1, 2):
            assert commit(runs, plan, started(runs, "alice")).word == "OK"
            assert three.counts()["insights"] == insights


class TestWhatIsNoChange:
    """A touch and a new item are none of a pass's business."""

    def test_a_touch_meanwhile(self, three: AgentMemory, runs: Runs) -> None:
        plan, token = read_plan(three), started(runs, "alice")
        three.touch([1, 2], NOW)
        assert commit(runs, plan, token).word == "OK"

    def test_a_new_item_meanwhile_still_waits(self, three: AgentMemory, runs: Runs) -> None:
        plan, token = read_plan(three), started(runs, "alice")
        remember(three, "d")
        assert commit(runs, plan, token).word == "OK"
        assert three.client.zrange(three.keys.unconsolidated, 0, -1) == [b"4"]

    def test_metadata_found_on_write_meanwhile(self, three: AgentMemory, runs: Runs) -> None:
        plan, token = read_plan(three), started(runs, "alice")
        assert three.annotate(three.get(1))
        assert commit(runs, plan, token).word == "OK"


class TestSalience:
    """min(1, base + 0.1 a connection + 0.05 for a recall), from what is stored at the commit."""

    def saliences(self, memory: AgentMemory) -> list[float]:
        return [item.salience for item in memory.all_items() if item.kind != "insight"]

    def test_a_tenth_for_each_connection_an_item_takes_part_in(self, three: AgentMemory) -> None:
        done = apply(three, connections=[Connection(1, 2, "blocks"), Connection(2, 3, "explains")])
        assert self.saliences(three) == [0.7, 0.8, 0.7]
        assert done.salience_rerated == 3

    def test_a_twentieth_if_it_was_recalled(self, three: AgentMemory) -> None:
        three.touch([2], NOW)
        assert apply(three).salience_rerated == 1
        assert self.saliences(three) == [0.6, 0.65, 0.6]

    def test_one_twentieth_however_often_it_was_recalled(self, three: AgentMemory) -> None:
        for _ in range(3):
            three.touch([1], NOW)
        apply(three)
        assert self.saliences(three)[0] == 0.65

    def test_not_again_without_a_new_recall(self, three: AgentMemory) -> None:
        three.touch([1], NOW)
        apply(three)
        assert apply(three, now=NOW + 1).salience_rerated == 0
        three.touch([1], NOW + 2)
        assert apply(three, now=NOW + 3).salience_rerated == 1
        assert self.saliences(three)[0] == 0.7

    def test_not_again_though_the_recallers_clock_is_ahead(self, three: AgentMemory) -> None:
        three.touch([1], NOW + 3600)
        apply(three)
        assert apply(three, now=NOW + 1).salience_rerated == 0

    def test_both_together(self, three: AgentMemory) -> None:
        three.touch([1], NOW)
        apply(three, connections=[Connection(1, 2, "blocks")])
        assert self.saliences(three) == [0.75, 0.7, 0.6]

    def test_capped_at_one_and_not_counted_there(self, alice: AgentMemory) -> None:
        remember(alice, "a", salience=0.97)
        remember(alice, "b", salience=1)
        done = apply(alice, connections=[Connection(1, 2, "blocks")])
        assert self.saliences(alice) == [1.0, 1.0]
        assert done.salience_rerated == 1

    def test_never_lowered(self, alice: AgentMemory) -> None:
        for salience in (0, 0.123456789, 0.6, 0.9999999999999999, 1):
            remember(alice, f"salience {salience}", salience=salience)
        before = self.saliences(alice)
        for number in range(3):
            alice.touch([1], NOW + number)
            apply(alice, connections=[Connection(2, 3, f"again {number}")], now=NOW + number)
        after = self.saliences(alice)
        assert all(new >= old for new, old in zip(after, before, strict=True))

    def test_with_rerate_off_it_stays(self, three: AgentMemory) -> None:
        three.touch([1], NOW)
        done = apply(three, connections=[Connection(1, 2, "blocks")], rerate=False)
        assert (done.connections_made, done.salience_rerated) == (1, 0)
        assert self.saliences(three) == [0.6, 0.6, 0.6]

    def test_from_the_current_values_not_from_those_read_before(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        three.touch([1], NOW)
        raised = {"base": "0.6", "bump": "20", "salience": "0.8"}
        three.client.hset(three.keys.item(2), mapping=raised)
        assert commit(runs, plan, token).word == "OK"
        assert self.saliences(three) == [0.75, 0.9, 0.6]

    def test_a_connection_known_already_raises_nothing(self, three: AgentMemory) -> None:
        apply(three, connections=[Connection(1, 2, "blocks")])
        done = apply(three, connections=[Connection(1, 2, "blocks")], now=NOW + 1)
        assert (done.connections_made, done.salience_rerated) == (0, 0)
        assert self.saliences(three) == [0.7, 0.7, 0.6]

    def test_a_recall_index_hears_of_it(self, three: AgentMemory) -> None:
        view = MemoryView(three)
        view.recall("a", 5, now=NOW)
        apply(three, connections=[Connection(1, 2, "blocks")], insight=INSIGHT)
        found = {hit.item.id: hit.item.salience for hit in view.recall("a b plan", 5, now=NOW)}
        assert found == {1: 0.7, 2: 0.7, 4: 0.8}


class TestWhatIsStored:
    """Connections, the insight, marks, metadata, the report."""

    def test_each_connection_points_back_to_the_insight(self, three: AgentMemory) -> None:
        apply(
            three,
            connections=[Connection(1, 2, "blocks"), Connection(3, 1, "explains")],
            insight=INSIGHT,
        )
        assert [link.insight_id for link in three.links(1)] == [4, 4]
        assert [link.field for link in three.links(4)] == ["1:2:blocks", "3:1:explains"]

    def test_without_an_insight_a_connection_points_to_none(self, three: AgentMemory) -> None:
        apply(three, connections=[Connection(1, 2, "blocks")])
        assert three.links(1)[0].insight_id is None

    def test_a_connection_found_again_keeps_its_first_insight(self, three: AgentMemory) -> None:
        apply(three, connections=[Connection(1, 2, "blocks")], insight=INSIGHT)
        apply(three, connections=[Connection(1, 2, "blocks")], insight="another pattern, later")
        (link,) = three.links(1)
        assert link.insight_id == 4

    def test_a_connection_names_its_run_and_time(self, three: AgentMemory, runs: Runs) -> None:
        plan, token = read_plan(three, Connection(1, 2, "blocks")), started(runs, "alice")
        commit(runs, plan, token)
        (link,) = three.links(1)
        assert (link.run, link.ts) == (token, NOW)

    def test_the_insight_is_a_durable_item(self, three: AgentMemory) -> None:
        apply(three, insight=INSIGHT)
        (insight,) = recent_insights(three, 5)
        assert (insight.text, insight.tier, insight.kind) == (INSIGHT, "durable", "insight")
        assert (insight.salience, insight.ts, insight.source_ids) == (0.8, NOW, (1, 2, 3))
        assert insight.provenance == f"consolidation:{int(NOW)}"
        assert (insight.access_count, insight.expires_at) == (0, None)
        assert insight.id in three.ids()

    def test_an_expiring_insight_is_purged_with_its_source(self, alice: AgentMemory) -> None:
        remember(alice, "a", expires_at=NOW + 10)
        remember(alice, "b", expires_at=NOW + 20)
        apply(alice, insight=INSIGHT)
        assert recent_insights(alice, 1)[0].expires_at == NOW + 10
        assert retention.purge_expired(alice, now=NOW + 10).ids == (1, 3)
        assert alice.counts()["insights"] == 0

    def test_the_insight_can_be_forgotten_by_its_provenance(self, three: AgentMemory) -> None:
        apply(three, insight=INSIGHT)
        assert retention.forget_by_provenance(three, "consolidation:").ids == (4,)

    def test_the_insight_is_published_once_with_its_sources(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        token = started(runs, "alice")
        commit(runs, read_plan(three), token)
        runs.publish("alice")
        ((_, row),) = three.client.xrange(runs.keys.insights)
        assert row == {
            b"agent": b"alice",
            b"id": b"4",
            b"run": token.encode(),
            b"text": INSIGHT.encode(),
            b"provenance": f"consolidation:{int(NOW)}".encode(),
            b"ts": repr(NOW).encode(),
            b"source_ids": b"1,2,3",
        }

    def test_the_window_is_marked_with_the_time_of_the_pass(self, three: AgentMemory) -> None:
        apply(three)
        assert {item.last_consolidated_at for item in three.all_items()} == {NOW}
        assert three.counts()["unconsolidated"] == 0

    def test_copies_are_marked_with_the_memory(self, alice: AgentMemory) -> None:
        for text in ("same", "b", "same"):
            remember(alice, text)
        found = {3: Metadata(("Frankfurt",), ("billing",))}
        apply(alice, metadata=found)
        assert [item.last_consolidated_at for item in alice.all_items()] == [NOW] * 3
        assert [item.topics for item in alice.all_items()] == [("billing",), (), ("billing",)]

    def test_metadata_that_was_not_found_leaves_what_was_there(self, three: AgentMemory) -> None:
        apply(three, metadata={1: Metadata(("Frankfurt",), ("billing",))})
        apply(three, metadata={2: Metadata(("Ana",), ("audit",))}, now=NOW + 1)
        assert [item.topics for item in three.all_items()] == [("billing",), ("audit",), ()]

    def test_the_report_in_the_ledger_is_the_one_given_back(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        plan = read_plan(three, Connection(1, 2, "blocks"))
        done = commit(runs, plan, started(runs, "alice"))
        assert runs.reports("alice") == [done.report]
        told = done.report
        assert (told.connections_made, told.insights_written, told.salience_rerated) == (1, 1, 2)
        assert told.insight_id == 4

    def test_the_next_run_may_start_when_it_was_told_to(
        self, three: AgentMemory, runs: Runs
    ) -> None:
        commit(runs, read_plan(three), started(runs, "alice"), not_before=NOW + 1800)
        record = runs.record("alice")
        assert (record.state, record.not_before, record.deferred_reason) == (
            "idle",
            NOW + 1800,
            "",
        )

    def test_no_text_of_a_memory_stands_in_the_feed_or_the_ledger(self, alice: AgentMemory) -> None:
        for text in ("secret one", "secret two"):
            remember(alice, text)
        apply(alice, connections=[Connection(1, 2, "secretly")], insight="a secret pattern")
        for key in (alice.keys.changes, alice.keys.passes, alice.keys.run):
            assert b"secret" not in repr(alice.client.dump(key)).encode()


def test_the_largest_pass_fits_into_one_call(alice: AgentMemory, client: redis.Redis) -> None:
    for number in range(COPIES_MAX + 52):
        remember(alice, "same" if number > 50 else f"text {number}", ts=NOW - DAY + number)
    links = [Connection(1, 2, f"relation {number}") for number in range(1000)]
    done = apply(alice, connections=links, insight=INSIGHT)
    assert (done.word, done.connections_made) == ("OK", 1000)
    assert alice.counts()["unconsolidated"] == 0
