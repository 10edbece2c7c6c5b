"""The scheduler: who gets a pass, who is put off and why, and what the sweep mends."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from producer import Event, emit
from tests.conftest import wait_until
from tests.scripted import Scripted, run_pass
from tests.stage import remember, started
from worker.connect import Client
from worker.errors import SettingsError
from worker.gate import Gate
from worker.jobs import run_claimed
from worker.memory.store import AgentMemory
from worker.queue import OwnJob, pass_queue
from worker.runs import Runs
from worker.scheduler import STARTING_S, Scheduler, Tick
from worker.settings import Settings
from worker.stores import agent_memory, config_store
from worker.writer import Writer


@dataclass
class Stage:
    """A scheduler with a clock that a test moves; it begins at the server's own time."""

    client: Client
    settings: Settings
    now: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.queue = pass_queue(self.client, self.settings)
        self.config = config_store(self.client, self.settings)
        self.runs = Runs(self.client, self.settings, clock=lambda: self.now)
        self.scheduler = self.another()

    def another(self) -> Scheduler:
        """One more scheduler over the same server."""
        return Scheduler(
            self.client, self.queue, self.settings, self.config, clock=lambda: self.now
        )

    def enable(self, agent: str | None = None) -> None:
        self.config.set({"enabled": "on", "model": "offline"}, agent)

    def disable(self, agent: str | None = None) -> None:
        self.config.set({"enabled": "off"}, agent)

    def give(self, agent: str = "alice", count: int = 3) -> AgentMemory:
        """Store memories of an agent, as a writer does: marked due at once."""
        memory = agent_memory(self.client, self.settings, agent)
        for number in range(count):
            remember(memory, f"memory {number} of {agent}")
        self.client.zadd(self.runs.keys.agents, {agent: self.now - 3600}, gt=True)
        self.client.zadd(self.runs.keys.due, {agent: self.now}, lt=True)
        return memory

    def tick(self) -> Tick:
        return self.scheduler.tick()

    def lose_jobs(self) -> None:
        """Take every waiting job off the queue."""
        self.client.delete(self.queue.key)

    def due_at(self, agent: str = "alice") -> float | None:
        found = self.client.zscore(self.runs.keys.due, agent)
        return None if found is None else float(found)


@pytest.fixture
def stage(client: redis.Redis, settings: Settings) -> Stage:
    """A scheduler, no agent, everything off."""
    return Stage(client, settings)


def names(tick: Tick) -> list[str]:
    """The agents a pass was enqueued for."""
    return [run["agent"] for run in tick.enqueued]


def reasons(tick: Tick) -> list[tuple[object, object]]:
    """Who was put off, and why."""
    return [(one["agent"], one["reason"]) for one in tick.deferred]


def commands(client: redis.Redis, do: Callable[[], object]) -> list[str]:
    """Every command the server got while something was done, as MONITOR shows it."""
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        client.ping()  # The monitor has taken the open connection, and a new one greets first.
        while not monitor.next_command()["command"].startswith("PING"):
            pass
        do()
        client.ping()
        seen: list[str] = []
        while not (seen and seen[-1].startswith("PING")):
            seen.append(monitor.next_command()["command"])
        return seen[:-1]


class TestSwitch:
    """Off by default; a flip at run time holds from the next tick, for all or one agent."""

    def test_off_by_default(self, stage: Stage) -> None:
        stage.give()
        tick = stage.tick()
        assert (tick.enabled, tick.enqueued, tick.deferred) == (False, [], [])
        assert stage.queue.count == 0

    def test_when_off_a_tick_is_one_command(self, stage: Stage) -> None:
        stage.give()
        stage.tick()
        assert commands(stage.client, lambda: stage.scheduler.tick(lead=True)) == [
            "HGETALL remq:config"
        ]

    def test_when_off_again_too(self, stage: Stage) -> None:
        stage.give()
        stage.enable()
        stage.disable()
        assert commands(stage.client, stage.tick) == ["HGETALL remq:config"]

    def test_a_flip_holds_from_the_next_tick(self, stage: Stage) -> None:
        stage.give()
        assert names(stage.tick()) == []
        stage.enable()
        assert names(stage.tick()) == ["alice"]

    def test_a_flip_back_holds_from_the_next_tick(self, stage: Stage) -> None:
        stage.enable()
        stage.give("alice")
        assert names(stage.tick()) == ["alice"]
        stage.give("bob")
        stage.disable()
        assert names(stage.tick()) == []
        stage.enable()
        assert names(stage.tick()) == ["bob"]

    def test_on_for_one_agent_alone(self, stage: Stage) -> None:
        for agent in ("alice", "bob"):
            stage.give(agent)
        stage.enable("bob")
        tick = stage.tick()
        assert (tick.enabled, names(tick), tick.deferred) == (True, ["bob"], [])

    def test_off_for_one_agent_alone(self, stage: Stage) -> None:
        for agent in ("alice", "bob"):
            stage.give(agent)
        stage.enable()
        stage.disable("alice")
        tick = stage.tick()
        assert (names(tick), reasons(tick)) == (["bob"], [("alice", "off")])

    def test_a_disabled_agent_does_not_stand_in_the_way(self, stage: Stage) -> None:
        stage.enable()
        stage.disable("alice")
        stage.give("alice")
        stage.tick()
        assert stage.tick().deferred == []

    def test_an_agent_without_a_switch_of_its_own_follows_that_for_all_at_once(
        self, stage: Stage
    ) -> None:
        stage.give("alice")
        stage.config.set({"interval_minutes": "10"}, "alice")
        assert stage.tick().enqueued == []
        stage.enable()
        assert names(stage.tick()) == ["alice"]

    def test_another_setting_flipped_holds_for_the_next_pass(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        stage.config.set({"extract_metadata": "off"})
        (run,) = stage.tick().enqueued
        report = run_claimed(stage.client, stage.settings, "alice", run["run"])
        assert report is not None
        assert report.steps["metadata"] == "skipped: off"

    def test_a_pass_switched_off_before_it_began_is_not_done(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        (run,) = stage.tick().enqueued
        stage.disable()
        assert run_claimed(stage.client, stage.settings, "alice", run["run"]) is None
        assert "Consolidation is off" in stage.runs.record("alice").deferred_reason
        stage.now = time.time()
        stage.enable()
        assert names(stage.tick()) == ["alice"]


class TestDue:
    """A pass for whoever has enough, and whose time has come."""

    def test_a_pass_is_queued_as_ids_only(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        (run,) = stage.tick().enqueued
        job = OwnJob.fetch(run["job"], connection=stage.client, serializer=stage.queue.serializer)
        assert job.args == ["alice", run["run"]]
        assert job.timeout == stage.settings.job_timeout_s
        assert b"memory 0" not in repr(stage.client.hgetall(job.key)).encode()

    def test_it_is_looked_at_again_when_its_lease_would_be_over(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        stage.tick()
        assert stage.due_at() == stage.now + stage.settings.lease_s

    def test_nobody_is_due_nothing_is_asked_but_who(self, stage: Stage) -> None:
        stage.enable()
        seen = commands(stage.client, stage.tick)
        assert [command.split()[0] for command in seen] == ["HGETALL", "ZRANGEBYSCORE"]

    def test_too_few_are_dropped_until_more_come(self, stage: Stage) -> None:
        stage.enable()
        stage.give(count=2)
        assert stage.tick().enqueued == []
        assert stage.due_at() is None
        stage.give(count=1)
        assert names(stage.tick()) == ["alice"]

    def test_after_a_pass_that_left_nothing_the_next_look_drops_it(self, stage: Stage) -> None:
        stage.enable()
        run_pass(stage.give(), Scripted(), now=stage.now)
        assert stage.due_at() == stage.now + 1800
        stage.now += 1800
        assert stage.tick() == Tick()
        assert stage.due_at() is None

    def test_min_items_of_the_agent_itself(self, stage: Stage) -> None:
        stage.enable()
        stage.give(count=1)
        stage.config.set({"min_items": "1"}, "alice")
        assert names(stage.tick()) == ["alice"]

    def test_not_before_the_interval_is_over(self, stage: Stage) -> None:
        stage.enable()
        memory = stage.give()
        run_pass(memory, Scripted(), now=stage.now)
        stage.give()
        assert reasons(stage.tick()) == [("alice", "too early")]
        assert stage.due_at() == stage.now + 1800

    def test_after_the_interval(self, stage: Stage) -> None:
        stage.enable()
        memory = stage.give()
        run_pass(memory, Scripted(), now=stage.now - 1801)
        stage.give()
        assert names(stage.tick()) == ["alice"]

    def test_the_writer_marks_at_the_end_of_the_interval(self, stage: Stage) -> None:
        memory = stage.give()
        run_pass(memory, Scripted(), now=stage.now)
        stage.client.delete(stage.runs.keys.due)
        emit_and_write(stage, "alice", 3)
        assert stage.due_at() == stage.now + 1800

    def test_no_more_than_max_queued(self, client: redis.Redis, settings: Settings) -> None:
        stage = Stage(client, settings.model_copy(update={"max_queued": 2}))
        stage.enable()
        for agent in ("alice", "bob", "carol"):
            stage.give(agent)
        tick = stage.tick()
        assert names(tick) == ["alice", "bob"]
        assert tick.warnings == ["2 passes wait in the queue already"]
        assert stage.due_at("carol") == stage.now
        stage.lose_jobs()
        assert names(stage.tick()) == ["carol"]

    def test_what_a_tick_says(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        shown = stage.tick().public()
        assert set(shown) == {"enabled", "enqueued", "deferred", "warnings"}
        assert shown["enqueued"] == [
            {
                "agent": "alice",
                "run": stage.runs.record("alice").token,
                "job": f"remq-{stage.runs.record('alice').token}",
            }
        ]


def emit_and_write(stage: Stage, agent: str, count: int) -> None:
    """Emit events and let a writer store them."""
    for number in range(count):
        event = Event(agent, f"event {number} at {stage.now}", event_id=f"{number}-{stage.now}")
        emit(stage.client, event)
    Writer(stage.client, stage.settings, stage.config).run(burst=True)


class TestIdle:
    """Never in the agent's way: put off by 60 s while its queue has work, with the reason."""

    @pytest.fixture
    def busy(self, client: redis.Redis, settings: Settings) -> Stage:
        stage = Stage(client, settings.model_copy(update={"agent_queues": "list:rq:tasks"}))
        stage.enable()
        stage.give()
        client.rpush("rq:tasks", "work")
        return stage

    def test_put_off_by_60_s_with_the_reason(self, busy: Stage) -> None:
        assert reasons(busy.tick()) == [("alice", "list:rq:tasks has 1 entry waiting")]
        assert busy.due_at() == busy.now + 60
        record = busy.runs.record("alice")
        assert record.deferred_reason == "list:rq:tasks has 1 entry waiting"
        assert busy.queue.count == 0

    def test_not_looked_at_again_before(self, busy: Stage) -> None:
        busy.tick()
        busy.client.delete("rq:tasks")
        busy.now += 59
        assert busy.tick() == Tick()
        busy.now += 1
        assert names(busy.tick()) == ["alice"]
        assert busy.runs.record("alice").deferred_reason == ""

    def test_a_new_event_does_not_shorten_it(self, busy: Stage) -> None:
        busy.tick()
        emit(busy.client, Event("alice", "one more"))
        Writer(busy.client, busy.settings, busy.config, clock=lambda: busy.now).run(burst=True)
        assert busy.due_at() == busy.now + 60

    def test_how_long_is_a_setting(self, client: redis.Redis, settings: Settings) -> None:
        changes = {"agent_queues": "list:rq:tasks", "defer_s": 5}
        stage = Stage(client, settings.model_copy(update=changes))
        stage.enable()
        stage.give()
        client.rpush("rq:tasks", "work")
        stage.tick()
        assert stage.due_at() == stage.now + 5

    def test_the_pass_asks_again_and_gives_way(self, busy: Stage) -> None:
        busy.client.delete("rq:tasks")
        (run,) = busy.tick().enqueued
        busy.client.rpush("rq:tasks", "work")
        assert run_claimed(busy.client, busy.settings, "alice", run["run"]) is None
        record = busy.runs.record("alice")
        assert record.state == "idle"
        assert record.deferred_reason == "list:rq:tasks has 1 entry waiting"
        assert 55 < record.not_before - time.time() < 65
        assert busy.due_at() == record.not_before
        assert busy.runs.reports("alice") == []

    def test_too_early_its_queue_is_not_even_looked_at(self, busy: Stage) -> None:
        run_pass(busy.give(), Scripted(), now=busy.now)
        busy.give()
        assert reasons(busy.tick()) == [("alice", "too early")]
        assert busy.runs.record("alice").deferred_reason == ""

    def test_force_does_not_give_way(self, busy: Stage) -> None:
        token = busy.runs.claim("alice").token
        report = run_claimed(busy.client, busy.settings, "alice", token, force=True)
        assert report is not None
        assert report.items_reviewed == 3

    def test_an_agent_that_was_quiet_for_long_is_idle(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        stage = Stage(client, settings.model_copy(update={"quiet_s": 60}))
        stage.enable()
        memory = stage.give()
        memory.touch([1], stage.now - 10)
        (reason,) = reasons(stage.tick())
        assert reason == ("alice", "last recall 10 s ago; quiet for 60 s counts as idle")
        stage.now += 60
        assert names(stage.tick()) == ["alice"]

    def test_a_queue_never_seen_is_a_warning(self, client: redis.Redis, settings: Settings) -> None:
        stage = Stage(client, settings.model_copy(update={"agent_queues": "rq:tusks"}))
        stage.enable()
        for agent in ("alice", "bob"):
            stage.give(agent)
        tick = stage.tick()
        assert names(tick) == ["alice", "bob"]
        assert len(tick.warnings) == 1
        assert "rq:tusks was never seen" in tick.warnings[0]


class TestOwnQueue:
    """A pass that looked at its own queue would see itself, and give way for ever."""

    @pytest.mark.parametrize(
        "queues",
        ["rq:remq", "celery:x rq:remq", "rq:remq-extract", "list:rq:queue:remq", "rq:remq@{url}"],
    )
    def test_named_as_an_agents_queue_it_is_refused(
        self, client: redis.Redis, settings: Settings, server: str, queues: str
    ) -> None:
        wrong = settings.model_copy(update={"agent_queues": queues.format(url=server)})
        with pytest.raises(SettingsError, match="remq's own queue"):
            Gate(client, wrong)
        with pytest.raises(SettingsError, match="Name the queues that the agents work from"):
            Stage(client, wrong)

    def test_the_queue_by_its_configured_name(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        changes = {"agent_queues": "rq:remq", "queue": "sleep"}
        assert Gate(client, settings.model_copy(update=changes))
        changes["agent_queues"] = "rq:sleep"
        with pytest.raises(SettingsError, match="rq:sleep"):
            Gate(client, settings.model_copy(update=changes))

    def test_a_queue_of_that_name_elsewhere_is_anothers(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        changes = {"agent_queues": "rq:remq@redis://elsewhere:6379/0"}
        assert Gate(client, settings.model_copy(update=changes))

    def test_a_worker_puts_the_pass_off_and_says_why(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        token = stage.runs.claim("alice").token
        wrong = stage.settings.model_copy(update={"agent_queues": "rq:remq"})
        assert run_claimed(stage.client, wrong, "alice", token) is None
        assert "remq's own queue" in stage.runs.record("alice").deferred_reason


class TestStandingInTheWay:
    """A run that is queued or running already."""

    def test_a_queued_run_is_waited_for(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        stage.tick()
        stage.now += stage.settings.lease_s
        assert reasons(stage.tick()) == [("alice", "a pass waits in the queue")]
        assert stage.queue.count == 1

    def test_however_long_its_job_waits(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        stage.tick()
        for _ in range(20):
            stage.now += 3600
            stage.tick()
        assert stage.queue.count == 1
        assert stage.client.hget(stage.runs.keys.agent("alice").run, "number") == b"1"

    def test_a_queued_run_whose_job_vanished_is_claimed_again(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        (first,) = stage.tick().enqueued
        stage.lose_jobs()
        stage.now += stage.settings.lease_s
        (second,) = stage.tick().enqueued
        assert second["run"] != first["run"]
        assert run_claimed(stage.client, stage.settings, "alice", first["run"]) is None
        report = run_claimed(stage.client, stage.settings, "alice", second["run"])
        assert report is not None
        assert report.items_reviewed == 3

    def test_a_job_just_taken_has_a_moment_to_start(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        stage.tick()
        stage.lose_jobs()  # As if a worker had taken it.
        stage.runs.mark_due("alice", stage.now)
        stage.now += STARTING_S - 5
        assert reasons(stage.tick()) == [("alice", "a pass waits in the queue")]

    def test_a_running_run_is_looked_at_again_when_its_lease_is_over(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        started(stage.runs, "alice")
        lease = stage.client.hget(stage.runs.keys.agent("alice").run, "lease_until")
        assert reasons(stage.tick()) == [("alice", "a pass is running")]
        assert stage.due_at() == float(lease or 0)

    def test_a_run_whose_lease_is_over_is_claimed_again_and_the_late_one_changes_nothing(
        self, stage: Stage
    ) -> None:
        stage.enable()
        memory = stage.give()
        late = started(stage.runs, "alice")
        memory.client.hset(memory.keys.run, "lease_until", "1")
        (run,) = stage.tick().enqueued
        report = run_pass(memory, Scripted(), token=late, now=stage.now)
        assert report.skipped_reason == "another run has taken over; nothing was changed"
        assert memory.counts()["insights"] == 0
        again = run_claimed(stage.client, stage.settings, "alice", run["run"])
        assert again is not None
        assert again.items_reviewed == 3

    def test_a_pass_from_the_queue_by_its_own_job(self, stage: Stage) -> None:
        stage.enable()
        memory = stage.give()
        (run,) = stage.tick().enqueued
        job = OwnJob.fetch(run["job"], connection=stage.client, serializer=stage.queue.serializer)
        report = job.perform()
        assert report["run"] == run["run"]
        assert memory.counts()["unconsolidated"] == 0
        assert stage.due_at() == stage.runs.record("alice").not_before


class TestBroken:
    """An agent whose keys hold something else does not hold up the others."""

    def break_up(self, stage: Stage, how: str) -> None:
        keys = stage.runs.keys.agent("alice")
        if how == "type":
            stage.client.set(keys.run, "a stranger's")
        else:
            stage.client.hset(keys.run, how, "a stranger's")

    def test_a_bug_of_our_own_is_no_agents_fault(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.enable()
        stage.give()

        def bug(*_: object, **__: object) -> None:
            raise KeyError("bug")

        monkeypatch.setattr(Runs, "claim", bug)
        with pytest.raises(KeyError, match="bug"):
            stage.tick()

    @pytest.mark.parametrize("how", ["type", "not_before", "unpublished"])
    def test_it_is_put_off_and_named(self, stage: Stage, how: str) -> None:
        stage.enable()
        for agent in ("alice", "bob"):
            stage.give(agent)
        self.break_up(stage, how)
        tick = stage.tick()
        assert names(tick) == ["bob"]
        ((whose, reason),) = reasons(tick)
        assert (whose, str(reason).partition(" (")[0]) == ("alice", "its keys cannot be read")
        assert stage.due_at() == stage.now + stage.settings.sweep_s

    @pytest.mark.parametrize("how", ["type", "not_before", "unpublished"])
    def test_the_sweep_goes_on_to_the_others(self, stage: Stage, how: str) -> None:
        for agent in ("alice", "bob"):
            stage.give(agent)
        stage.client.delete(stage.runs.keys.due)
        self.break_up(stage, how)
        stage.scheduler.sweep()
        assert stage.due_at("bob") == stage.now

    def test_a_server_at_its_limit_is_no_agents_fault(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.enable()
        stage.give()

        def full(*_: object) -> None:
            raise OutOfMemoryError("OOM command not allowed")

        monkeypatch.setattr(stage.scheduler, "_consider", full)
        with pytest.raises(OutOfMemoryError):
            stage.tick()
        assert stage.due_at() == stage.now


class TestLeader:
    """Several may run; one leads."""

    def test_one_of_two_leads(self, stage: Stage) -> None:
        first, second = stage.scheduler, stage.another()
        assert first.leads()
        assert not second.leads()
        assert first.leads()

    def test_only_the_leader_enqueues(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        other = stage.another()
        assert other.leads()
        assert stage.scheduler.tick(lead=True) == Tick()
        assert names(other.tick(lead=True)) == ["alice"]

    def test_the_lead_is_taken_over_after_its_time(self, stage: Stage) -> None:
        first, second = stage.scheduler, stage.another()
        assert first.leads()
        stage.client.pexpire(stage.runs.keys.leader, 1)
        wait_until(second.leads)
        assert not first.leads()

    def test_each_look_extends_ones_own_lead_and_no_others(self, stage: Stage) -> None:
        leader = stage.runs.keys.leader
        assert stage.scheduler.leads()
        stage.client.pexpire(leader, 2000)
        assert not stage.another().leads()
        assert stage.client.pttl(leader) <= 2000
        assert stage.scheduler.leads()
        assert stage.client.pttl(leader) > 5000

    def test_a_scheduler_that_stops_gives_up_its_lead(self, stage: Stage) -> None:
        assert stage.scheduler.leads()
        stage.scheduler.stop()
        stage.scheduler.run()
        assert not stage.client.exists(stage.runs.keys.leader)

    def test_a_scheduler_that_stops_leaves_anothers_lead(self, stage: Stage) -> None:
        assert stage.another().leads()
        stage.scheduler.stop()
        stage.scheduler.run()
        assert stage.client.exists(stage.runs.keys.leader)

    def test_two_that_both_think_they_lead_enqueue_one_pass(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        other = stage.another()
        stage.tick()
        stage.runs.mark_due("alice", stage.now)
        assert reasons(other.tick()) == [("alice", "a pass waits in the queue")]
        assert stage.queue.count == 1


class TestSweep:
    """The slow walk over all agents mends what a crash left."""

    def test_an_agent_that_was_never_marked_due_is(self, stage: Stage) -> None:
        stage.enable()
        stage.give()
        stage.client.delete(stage.runs.keys.due)
        assert stage.tick().enqueued == []
        stage.scheduler.sweep()
        assert names(stage.tick()) == ["alice"]

    def test_not_before_its_next_pass_may_start(self, stage: Stage) -> None:
        memory = stage.give()
        run_pass(memory, Scripted(), now=stage.now)
        stage.give()
        stage.client.delete(stage.runs.keys.due)
        stage.scheduler.sweep()
        assert stage.due_at() == stage.now + 1800

    def test_an_agent_with_too_few_is_not_marked(self, stage: Stage) -> None:
        stage.give(count=2)
        stage.client.delete(stage.runs.keys.due)
        stage.scheduler.sweep()
        assert stage.due_at() is None

    def test_a_mark_that_stands_is_left(self, stage: Stage) -> None:
        stage.give()
        stage.runs.mark_due("alice", stage.now + 45)
        stage.scheduler.sweep()
        assert stage.due_at() == stage.now + 45

    @pytest.fixture
    def many(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
        """400 agents, each with enough waiting; strides of about ten."""
        monkeypatch.setattr("worker.sweep.STRIDE", 10)
        agents = {f"agent-{number}" for number in range(400)}
        stage.client.zadd(stage.runs.keys.agents, dict.fromkeys(agents, stage.now))
        pipe = stage.client.pipeline(transaction=False)
        for agent in agents:
            pipe.zadd(stage.runs.keys.agent(agent).unconsolidated, {"1": 1, "2": 1, "3": 1})
        pipe.execute()
        return stage

    def marked(self, stage: Stage) -> int:
        return int(stage.client.zcard(stage.runs.keys.due))

    def test_every_agent_however_many(self, many: Stage) -> None:
        many.scheduler.sweep()
        assert self.marked(many) == 400

    def test_a_stride_is_a_few_round_trips(
        self, many: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("worker.sweep.STRIDE", 1000)
        connection = many.client.connection_pool.get_connection()
        many.client.connection_pool.release(connection)
        sends = 0
        send = connection.send_packed_command

        def counted(*args: object, **options: object) -> object:
            nonlocal sends
            sends += 1
            return send(*args, **options)

        monkeypatch.setattr(connection, "send_packed_command", counted)
        many.scheduler.sweep()
        assert sends < 10
        assert self.marked(many) == 400

    def test_between_strides_it_hears_that_it_is_to_stop(self, many: Stage) -> None:
        many.scheduler.stop()
        many.scheduler.sweep()
        assert 0 < self.marked(many) < 400

    def test_between_strides_it_hears_that_another_leads(self, many: Stage) -> None:
        assert many.another().leads()
        many.scheduler.sweep()
        assert 0 < self.marked(many) < 400

    def test_between_strides_it_keeps_the_lead(self, many: Stage) -> None:
        assert many.scheduler.leads()
        many.client.pexpire(many.runs.keys.leader, 2000)
        many.scheduler.sweep()
        assert many.client.pttl(many.runs.keys.leader) > 5000

    @pytest.mark.parametrize("when", ["sweep", "tick"])
    def test_an_insight_that_was_not_published_is(self, stage: Stage, when: str) -> None:
        stage.enable()
        memory = stage.give()
        report = run_pass(memory, Scripted(), now=stage.now)
        stage.client.delete(stage.runs.keys.insights)
        mark = f"{report.insight_id}|{report.run}|{stage.now!r}"
        stage.client.hset(memory.keys.run, "unpublished", mark)
        stage.runs.mark_due("alice", stage.now)
        {"sweep": stage.scheduler.sweep, "tick": stage.tick}[when]()
        ((_, row),) = stage.client.xrange(stage.runs.keys.insights)
        assert row[b"run"].decode() == report.run
        assert stage.runs.record("alice").unpublished == ""

    def test_dead_letters_go_by_age(self, stage: Stage) -> None:
        for day in (40, 29):
            at = int((stage.now - day * 86_400) * 1000)
            stage.client.xadd(stage.runs.keys.dead, {"text": "x"}, id=f"{at}-0")
        stage.scheduler.sweep()
        assert stage.client.xlen(stage.runs.keys.dead) == 1

    @pytest.mark.parametrize(
        ("oldest_days", "kept"),
        [
            pytest.param(None, [b"new"], id="an empty stream"),
            pytest.param(1, [b"new"], id="the stream is younger"),
            pytest.param(9, [b"old", b"new"], id="the stream holds an older event"),
        ],
    )
    def test_event_ids_go_when_older_than_the_setting_and_the_oldest_event(
        self, stage: Stage, oldest_days: int | None, kept: list[bytes]
    ) -> None:
        memory = stage.give()
        day = 86_400
        memory.client.delete(memory.keys.seen)
        seen = {"old": stage.now - 8 * day, "new": stage.now - 6 * day}
        memory.client.zadd(memory.keys.seen, seen)
        if oldest_days is not None:
            at = int((stage.now - oldest_days * day) * 1000)
            stage.client.xadd(stage.runs.keys.events, {"agent": "alice"}, id=f"{at}-0")
        stage.scheduler.sweep()
        assert memory.client.zrange(memory.keys.seen, 0, -1) == kept

    def test_without_any_stream_it_sweeps_all_the_same(self, stage: Stage) -> None:
        stage.scheduler.sweep()
        assert stage.client.keys("*") == []


class TestLoop:
    """Ticks until told to stop, also while off."""

    def test_it_follows_the_switch_and_stops_in_order(
        self, client: redis.Redis, settings: Settings
    ) -> None:
        stage = Stage(client, settings.model_copy(update={"tick_s": 0.01}))
        stage.give()
        stage.scheduler.clock = time.time
        thread = threading.Thread(target=stage.scheduler.run)
        thread.start()
        try:
            stage.enable()
            wait_until(lambda: stage.queue.count == 1)
        finally:
            stage.scheduler.stop()
            thread.join(timeout=10)
        assert not thread.is_alive()
        assert not client.exists(stage.runs.keys.leader)
