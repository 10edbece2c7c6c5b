"""Runs: who is due, who is claimed, who runs; each single, none lost."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.exceptions import ResponseError

from tests.stage import DAY, NOW, apply, remember, started
from worker.connect import Client
from worker.errors import Unreadable
from worker.memory.scripts import Call, run
from worker.memory.store import AgentMemory
from worker.runs import RunRecord, Runs
from worker.settings import Settings
from worker.sleep.plan import draw_up
from worker.sleep.report import Report


def over(runs: Runs, agent: str = "alice") -> None:
    """Let a running run's lease be over."""
    runs.client.hset(runs.keys.agent(agent).run, "lease_until", "1")


def lease(runs: Runs, agent: str = "alice") -> float:
    """Until when a running run is believed to live, in Unix seconds; 0 for one that is not."""
    return float(runs.client.hget(runs.keys.agent(agent).run, "lease_until") or 0)


def report(token: str) -> Report:
    """A report of a run."""
    return Report("alice", token, NOW, "test")


class TestClaim:
    """At most one run of an agent is queued or running."""

    def test_a_first_claim_is_taken(self, runs: Runs) -> None:
        claim = runs.claim("alice")
        assert (claim.word, claim.detail, claim.taken) == ("OK", "1", True)
        record = runs.record("alice")
        assert (record.state, record.token) == ("queued", claim.token)
        assert abs(record.claimed_at - time.time()) < 60

    def test_an_agent_that_never_had_a_run_is_idle(self, runs: Runs) -> None:
        assert runs.record("alice") == RunRecord()

    def test_tokens_differ(self, runs: Runs) -> None:
        assert len({runs.claim(f"agent-{n}").token for n in range(20)}) == 20

    def test_one_agents_run_is_none_of_anothers(self, runs: Runs) -> None:
        assert runs.claim("alice").taken
        assert runs.claim("bob").taken

    def test_a_queued_run_is_not_claimed_twice(self, runs: Runs) -> None:
        first = runs.claim("alice")
        second = runs.claim("alice")
        assert (second.word, second.detail, second.taken) == ("QUEUED", first.token, False)

    def test_of_many_that_claim_at_once_one_gets_it(self, runs: Runs) -> None:
        with ThreadPoolExecutor(8) as pool:
            claims = list(pool.map(lambda _: runs.claim("alice"), range(40)))
        taken = [claim.token for claim in claims if claim.taken]
        assert taken == [runs.record("alice").token]
        assert {claim.detail for claim in claims if not claim.taken} == set(taken)

    def test_a_queued_run_is_not_claimed_again_however_long_its_job_waits(self, runs: Runs) -> None:
        runs.claim("alice")
        runs.client.hset(runs.keys.agent("alice").run, "claimed_at", "1.000")
        assert runs.claim("alice").word == "QUEUED"

    def test_a_queued_run_whose_job_vanished_is_claimed_again(self, runs: Runs) -> None:
        first = runs.claim("alice")
        second = runs.claim("alice", gone=first.token)
        assert (second.word, second.detail) == ("OK", "2")
        assert runs.start("alice", first.token) == "SUPERSEDED"
        assert runs.start("alice", second.token) == "OK"

    def test_only_the_run_that_was_seen_to_be_gone(self, runs: Runs) -> None:
        first = runs.claim("alice")
        assert runs.claim("alice", gone="another").word == "QUEUED"
        assert runs.record("alice").token == first.token

    def test_a_running_run_is_not_claimed_under_its_lease(self, runs: Runs) -> None:
        token = started(runs, "alice")
        claim = runs.claim("alice", gone=token, force=True)
        assert claim.word == "RUNNING"
        assert float(claim.detail) == lease(runs)

    def test_a_running_run_whose_lease_is_over_is_claimed_again(self, runs: Runs) -> None:
        started(runs, "alice")
        over(runs)
        assert runs.claim("alice").taken
        assert lease(runs) == 0

    def test_the_lease_is_the_settings(self, client: redis.Redis, settings: Settings) -> None:
        runs = Runs(client, settings.model_copy(update={"lease_s": 5000}))
        started(runs, "alice")
        left = lease(runs) - runs.record("alice").claimed_at
        assert 4990 < left < 5010

    def test_not_before_its_time(self, runs: Runs) -> None:
        later = time.time() + 500
        runs.put_off("alice", runs.claim("alice").token, "busy", later)
        claim = runs.claim("alice")
        assert (claim.word, float(claim.detail)) == ("EARLY", later)

    def test_force_passes_over_the_time_but_not_over_a_lease(self, runs: Runs) -> None:
        runs.put_off("alice", runs.claim("alice").token, "busy", time.time() + 500)
        assert runs.claim("alice", force=True).taken
        assert runs.claim("alice", force=True).word == "QUEUED"

    def test_a_claim_clears_why_the_last_was_put_off(self, runs: Runs) -> None:
        runs.put_off("alice", runs.claim("alice").token, "busy", 0)
        assert runs.record("alice").deferred_reason == "busy"
        runs.claim("alice")
        assert runs.record("alice").deferred_reason == ""


class TestStart:
    """The job's first act: count the attempt and begin the lease."""

    def test_a_claimed_run_starts(self, runs: Runs) -> None:
        token = runs.claim("alice").token
        assert runs.start("alice", token) == "OK"
        record = runs.record("alice")
        assert record.state == "running"
        assert lease(runs) > record.claimed_at

    def test_a_second_process_does_not_start_it(self, runs: Runs) -> None:
        token = started(runs, "alice")
        assert runs.start("alice", token) == "RUNNING"

    def test_once_the_lease_is_over_the_same_run_may_start_again(self, runs: Runs) -> None:
        token = started(runs, "alice")
        over(runs)
        assert runs.start("alice", token) == "OK"
        assert lease(runs) > 1

    @pytest.mark.parametrize("token", ["", "never-claimed"])
    def test_a_token_that_was_never_claimed_does_not_start(self, runs: Runs, token: str) -> None:
        assert runs.start("alice", token) == "SUPERSEDED"
        assert runs.client.keys("*") == []

    def test_a_run_that_is_over_does_not_start_again(self, runs: Runs) -> None:
        token = started(runs, "alice")
        runs.finish(report(token), 0)
        assert runs.start("alice", token) == "SUPERSEDED"


class TestEnd:
    """A run that changed no memory."""

    def test_a_finished_run_leaves_its_report(self, runs: Runs) -> None:
        token = started(runs, "alice")
        assert runs.finish(report(token), NOW + 60)
        assert runs.reports("alice") == [report(token)]
        record = runs.record("alice")
        assert (record.state, record.not_before) == ("idle", NOW + 60)

    def test_a_run_put_off_says_why_and_until_when(self, runs: Runs) -> None:
        runs.put_off("alice", runs.claim("alice").token, "rq:tasks has 1 job waiting", NOW + 60)
        record = runs.record("alice")
        assert (record.state, record.not_before) == ("idle", NOW + 60)
        assert record.deferred_reason == "rq:tasks has 1 job waiting"
        assert runs.due(NOW + 60, 9) == [("alice", NOW + 60)]
        assert runs.reports("alice") == []

    def test_a_busy_agent_without_a_run_is_put_off_too(self, alice: AgentMemory) -> None:
        runs = Runs(alice.client, Settings())
        runs.defer("alice", "rq:tasks has 1 job waiting", NOW + 60)
        assert runs.record("alice") == RunRecord(deferred_reason="rq:tasks has 1 job waiting")
        assert runs.due(NOW + 60, 9) == [("alice", NOW + 60)]
        assert remember(alice, "one more").not_before == NOW + 60

    def test_the_late_one_ends_nothing(self, runs: Runs) -> None:
        late = started(runs, "alice")
        over(runs)
        token = started(runs, "alice")
        assert not runs.finish(report(late), 0)
        runs.put_off("alice", late, "busy", NOW + 60)
        assert (runs.record("alice").token, runs.record("alice").state) == (token, "running")
        assert (runs.due(NOW + 60, 9), runs.reports("alice")) == ([], [])

    def test_a_ledger_of_another_type_is_met_before_the_first_write(self, runs: Runs) -> None:
        token = started(runs, "alice")
        runs.client.set(runs.keys.agent("alice").passes, "a stranger's")
        before = runs.client.hgetall(runs.keys.agent("alice").run)
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            runs.finish(report(token), NOW)
        assert runs.client.hgetall(runs.keys.agent("alice").run) == before

    def test_newest_report_first(self, runs: Runs) -> None:
        tokens = []
        for _ in range(3):
            tokens.append(started(runs, "alice"))
            runs.finish(report(tokens[-1]), 0)
        assert [one.run for one in runs.reports("alice", count=2)] == tokens[:0:-1]


class TestUnreadable:
    """A hash that holds something else is named, and no value of it shown."""

    @pytest.mark.parametrize(
        ("field", "value"), [("not_before", "a secret"), ("claimed_at", ""), ("token", b"\xff")]
    )
    def test_a_run_record(self, runs: Runs, field: str, value: str | bytes) -> None:
        runs.client.hset(runs.keys.agent("alice").run, field, value)
        with pytest.raises(Unreadable, match="The run record of agent 'alice' cannot be") as fault:
            runs.record("alice")
        assert "secret" not in str(fault.value)

    @pytest.mark.parametrize("mark", ["a secret", "x|run|1", b"\xff"])
    def test_a_mark_of_an_insight(self, runs: Runs, mark: str | bytes) -> None:
        runs.client.hset(runs.keys.agent("alice").run, "unpublished", mark)
        with pytest.raises(Unreadable, match="The run record of agent 'alice' cannot be"):
            runs.publish("alice")

    @pytest.mark.parametrize(
        "row",
        [
            {"agent": '"alice"'},
            {"steps": "a secret"},
            {"steps": "[]"},
            {"started_at": '"a secret"'},
            {"items_reviewed": b"\xff"},
        ],
    )
    def test_a_report(self, runs: Runs, row: dict[str, str | bytes]) -> None:
        whole: dict[str, str | bytes] = {} if "agent" in row else {**report("token").fields()}
        passes = runs.keys.agent("alice").passes
        runs.client.xadd(passes, {**whole, **row})
        with pytest.raises(Unreadable, match="A report of agent 'alice' cannot be") as fault:
            runs.reports("alice")
        assert "secret" not in str(fault.value)


class TestRepeats:
    """The client library sends a command again when its answer was lost: the answer is the same."""

    @pytest.fixture(autouse=True)
    def twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Send every script twice, as after a lost answer."""

        def repeated(client: redis.Redis, call: Call) -> object:
            run(client, call)
            return run(client, call)

        monkeypatch.setattr("worker.runs.run_script", repeated)

    def test_claim(self, runs: Runs) -> None:
        claim = runs.claim("alice")
        assert (claim.word, claim.detail) == ("OK", "1")

    def test_start(self, runs: Runs) -> None:
        token = runs.claim("alice").token
        assert runs.start("alice", token) == "OK"

    def test_finish(self, runs: Runs) -> None:
        token = started(runs, "alice")
        assert runs.finish(report(token), NOW)
        assert len(runs.reports("alice", count=9)) == 1

    def test_commit(self, alice: AgentMemory) -> None:
        for text in ("a", "b", "c"):
            remember(alice, text)
        assert apply(alice, insight="a, b and c are one plan").word == "OK"
        assert alice.counts()["insights"] == 1


class TestPublish:
    """A new insight reaches the insights stream at least once."""

    @pytest.fixture
    def unpublished(self, alice: AgentMemory, runs: Runs) -> Runs:
        """Alice has an insight, 4, whose pass died before it was published."""
        for text in ("a", "b", "c"):
            remember(alice, text)
        apply(alice, insight="a, b and c are one plan")
        self.run = runs.record("alice").token
        runs.client.delete(runs.keys.insights)
        runs.client.hset(alice.keys.run, "unpublished", f"4|{self.run}|{NOW!r}")
        return runs

    def ids(self, runs: Runs) -> list[bytes]:
        return [row[b"id"] for _, row in runs.client.xrange(runs.keys.insights)]

    def test_by_the_next_claim(self, unpublished: Runs) -> None:
        assert unpublished.claim("alice", force=True).taken
        assert self.ids(unpublished) == [b"4"]
        assert unpublished.record("alice").unpublished == ""

    def test_with_what_the_pass_would_have_published(
        self, unpublished: Runs, alice: AgentMemory
    ) -> None:
        unpublished.publish("alice")
        ((_, row),) = unpublished.client.xrange(unpublished.keys.insights)
        assert row[b"run"].decode() == self.run
        assert (row[b"text"], row[b"source_ids"]) == (b"a, b and c are one plan", b"1,2,3")
        assert float(row[b"ts"]) == NOW

    def test_a_pass_that_died_after_its_commit_leaves_the_mark_for_it(
        self, alice: AgentMemory, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for text in ("a", "b", "c"):
            remember(alice, text)
        monkeypatch.setattr(Runs, "_follow_up", lambda *_: None)
        apply(alice, insight="a, b and c are one plan")
        record = runs.record("alice")
        assert record.unpublished == f"4|{record.token}|{NOW!r}"
        assert self.ids(runs) == []
        assert runs.claim("alice").taken
        assert self.ids(runs) == [b"4"]

    def test_once_it_is_published_not_again(self, unpublished: Runs) -> None:
        for _ in range(3):
            unpublished.publish("alice")
        assert self.ids(unpublished) == [b"4"]

    def test_one_that_was_deleted_meanwhile_is_not(
        self, unpublished: Runs, alice: AgentMemory
    ) -> None:
        alice.delete(4)
        unpublished.publish("alice")
        assert self.ids(unpublished) == []
        assert unpublished.record("alice").unpublished == ""

    def test_a_slow_publisher_does_not_lose_the_next_insight(self, unpublished: Runs) -> None:
        newer = f"9|later|{NOW!r}"
        run = unpublished.keys.agent("alice").run
        unpublished.client.hset(run, "unpublished", newer)
        unpublished._note_published("alice", f"4|{self.run}|{NOW!r}")
        assert unpublished.client.hget(run, "unpublished") == newer.encode()

    def test_a_claim_while_it_cannot_be_published_is_refused(self, unpublished: Runs) -> None:
        unpublished.publish = lambda agent: None  # type: ignore[method-assign]
        claim = unpublished.claim("alice", force=True)
        assert (claim.word, claim.detail) == ("UNPUBLISHED", f"4|{self.run}|{NOW!r}")

    def test_the_stream_is_bounded(self, alice: AgentMemory, settings: Settings) -> None:
        bounded = Runs(alice.client, settings.model_copy(update={"insights_max": 10}))
        for text in ("a", "b", "c"):
            remember(alice, text)
        apply(alice, insight="a, b and c are one plan")
        for _ in range(300):
            alice.client.hset(alice.keys.run, "unpublished", f"4|again|{NOW!r}")
            bounded.publish("alice")
        assert alice.client.xlen(bounded.keys.insights) < 300


#: Before which command of a drop a writer stores, and then marks.
WRITER_STEPS = [(stored, marked) for stored in range(4) for marked in range(stored, 4)]


def interleave(
    client: Client, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[int, Callable[[], object]]]
) -> Callable[[], None]:
    """Do each step before the client's command of that number; returns what does the rest."""
    execute = client.execute_command
    left = sorted(steps, key=lambda step: step[0])
    number = 0
    inside = False

    def before(*args: object, **options: object) -> object:
        nonlocal number, inside
        if not inside:
            inside = True
            while left and left[0][0] <= number:
                left.pop(0)[1]()
            inside = False
            number += 1
        return execute(*args, **options)

    def rest() -> None:
        monkeypatch.setattr(client, "execute_command", execute)
        for _, step in left:
            step()

    monkeypatch.setattr(client, "execute_command", before)
    return rest


class TestDue:
    """Nobody who has something waiting is lost from the list."""

    def score(self, runs: Runs) -> float | None:
        found = runs.client.zscore(runs.keys.due, "alice")
        return None if found is None else float(found)

    def test_the_longest_due_first(self, runs: Runs) -> None:
        for agent, at in (("alice", NOW), ("bob", NOW - 5), ("carol", NOW + 5)):
            runs.mark_due(agent, at)
        assert runs.due(NOW, 9) == [("bob", NOW - 5), ("alice", NOW)]
        assert runs.due(NOW, 1) == [("bob", NOW - 5)]

    def test_after_a_pass_it_is_due_when_the_next_may_start(
        self, alice: AgentMemory, runs: Runs
    ) -> None:
        plan = draw_up((), now=NOW, metadata={}, connections=(), insight=None)
        runs.mark_due("alice", NOW - 5)
        runs.commit(plan, report(started(runs, "alice")), NOW + 1800, rerate=True)
        assert self.score(runs) == NOW + 1800
        runs.finish(report(started(runs, "alice")), NOW + 300)
        assert self.score(runs) == NOW + 300

    def test_what_the_end_of_a_pass_marks_hides_no_earlier_mark_for_long(
        self, alice: AgentMemory, runs: Runs
    ) -> None:
        # A writer's mark of before the pass is overwritten, one of after it comes no earlier.
        remember(alice, "a")
        plan = draw_up((), now=NOW, metadata={}, connections=(), insight=None)
        runs.client.zadd(runs.keys.due, {"alice": NOW}, lt=True)
        runs.commit(plan, report(started(runs, "alice")), NOW + 1800, rerate=True)
        assert remember(alice, "b").not_before == self.score(runs) == NOW + 1800

    @pytest.mark.parametrize(("stored", "marked"), WRITER_STEPS)
    def test_a_writer_in_between_any_two_commands_loses_nobody(
        self,
        alice: AgentMemory,
        runs: Runs,
        monkeypatch: pytest.MonkeyPatch,
        stored: int,
        marked: int,
    ) -> None:
        runs.mark_due("alice", NOW)
        steps = [
            (stored, lambda: remember(alice, "meanwhile")),
            (marked, lambda: runs.client.zadd(runs.keys.due, {"alice": NOW}, lt=True)),
        ]
        rest = interleave(runs.client, monkeypatch, steps)
        runs.drop_due("alice", NOW, at_least=1)
        rest()
        assert self.score(runs) == NOW

    def test_dropped_while_too_few_wait(self, alice: AgentMemory, runs: Runs) -> None:
        remember(alice, "a")
        runs.mark_due("alice", NOW + 0.123456)
        ((agent, score),) = runs.due(NOW + 1, 9)
        runs.drop_due(agent, score, at_least=3)
        assert self.score(runs) is None

    @pytest.mark.parametrize("waiting", [0, 3])
    def test_not_dropped_where_its_time_was_moved_meanwhile(
        self, alice: AgentMemory, runs: Runs, waiting: int
    ) -> None:
        for number in range(waiting):
            remember(alice, f"text {number}")
        runs.mark_due("alice", NOW + 5)
        runs.drop_due("alice", NOW, at_least=3)
        assert self.score(runs) == NOW + 5

    def test_put_back_where_enough_came_meanwhile(self, alice: AgentMemory, runs: Runs) -> None:
        runs.mark_due("alice", NOW)
        for text in ("a", "b", "c"):  # After the scheduler's count.
            remember(alice, text)
        runs.drop_due("alice", NOW, at_least=3)
        assert self.score(runs) == NOW

    def test_putting_back_does_not_move_what_a_writer_marked(
        self, alice: AgentMemory, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runs.mark_due("alice", NOW)
        steps = [
            (1, lambda: remember(alice, "meanwhile")),
            (1, lambda: runs.client.zadd(runs.keys.due, {"alice": NOW - DAY}, lt=True)),
        ]
        interleave(runs.client, monkeypatch, steps)
        runs.drop_due("alice", NOW, at_least=1)
        assert self.score(runs) == NOW - DAY
