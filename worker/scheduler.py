"""The scheduler: puts a pass into the queue for agents that are due, allowed and idle.

Several may run; one leads, which only saves work: what makes a pass single is the claim of its run.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field

from redis.exceptions import ResponseError

from worker.config import Config, ConfigStore
from worker.connect import Client
from worker.errors import Unreadable
from worker.gate import Gate
from worker.keys import Keys
from worker.memory.scripts import Script
from worker.memory.scripts import run as run_script
from worker.outage import FAULTS, Outage, is_about_data
from worker.queue import OwnQueue, enqueue_pass, is_waiting
from worker.runs import Claim, RunRecord, Runs
from worker.settings import Settings
from worker.sweep import Sweep

log = logging.getLogger("remq.scheduler")

_LEAD = Script.load("lead")
_RESIGN = Script.load("resign")

#: Due agents looked at in one tick.
TICK_AGENTS = 100
#: How long a job that was taken from the queue may need until its run has started.
STARTING_S = 30


@dataclass(slots=True)
class Tick:
    """What one tick did: runs enqueued, agents put off with the reason, and warnings."""

    enabled: bool = True
    enqueued: list[dict[str, str]] = field(default_factory=list)
    deferred: list[dict[str, object]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def public(self) -> dict[str, object]:
        """The shape of `scheduler --once --json`."""
        return asdict(self)


class Scheduler:
    """One scheduler."""

    def __init__(
        self,
        client: Client,
        queue: OwnQueue,
        settings: Settings,
        config: ConfigStore,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.queue = queue
        self.settings = settings
        self.config = config
        self.keys = Keys(settings.prefix)
        self.runs = Runs(client, settings, clock=clock)
        self.gate = Gate(client, settings)
        self.clock = clock
        self.token = secrets.token_hex(8)
        self._stop = threading.Event()
        self._next_sweep = 0.0

    def stop(self) -> None:
        """Stop after the tick in hand."""
        self._stop.set()

    def run(self) -> None:
        """Tick until told to stop, while this one leads. A server that fails is waited for."""
        outage = Outage(log, self.settings, stopping=self._stop.is_set)
        while not self._stop.is_set():
            try:
                self._round()
                outage.over()
            except FAULTS as error:
                outage.wait(error)
            else:
                self._stop.wait(self.settings.tick_s)
        if not outage.lasts:
            with suppress(*FAULTS):
                self._resign()

    def _round(self) -> None:
        """One tick, and now and then a mending walk."""
        self.tick(lead=True)
        if self.clock() >= self._next_sweep:
            if self.leads():
                self.sweep()
            self._next_sweep = self.clock() + self.settings.sweep_s

    def _resign(self) -> None:
        run_script(self.client, _RESIGN.call({"leader": self.keys.leader}, {"token": self.token}))

    def leads(self) -> bool:
        """Take the lead if it is free, or keep it."""
        ttl_ms = int(self.settings.leader_ttl_s * 1000)
        call = _LEAD.call({"leader": self.keys.leader}, {"token": self.token, "ttl_ms": ttl_ms})
        return bool(run_script(self.client, call))

    def tick(self, *, lead: bool = False) -> Tick:
        """Enqueue a pass for each agent that is due, allowed and idle.

        With the switch off for all and no agent of its own mind, that is one read. With `lead`,
        only the leading scheduler goes on.
        """
        done = Tick()
        general, any_overrides = self.config.for_all()
        allowed = None if general.enabled else (self.config.overrides() if any_overrides else set())
        if allowed is not None and not allowed:
            done.enabled = False
            return done
        if lead and not self.leads():
            return done
        candidates = self._candidates(allowed)
        configs = self.config.for_agents([agent for agent, _ in candidates]) if candidates else {}
        for agent, score in candidates:
            if not configs[agent].enabled:
                self._pass_over(agent, done, crowded=allowed is None)
            elif self.queue.count >= self.settings.max_queued:
                done.warnings.append(f"{self.settings.max_queued} passes wait in the queue already")
                break
            else:
                with self._apart(agent, done):
                    self._consider(agent, score, configs[agent], done)
        return done

    def sweep(self) -> None:
        """Mend what a crash left: agents not marked due, insights not published, old traces.

        It ends early when it is told to stop, or when another has taken over the lead.
        """
        Sweep(
            self.client,
            self.settings,
            self.config,
            self.runs,
            go_on=lambda: not self._stop.is_set() and self.leads(),
            clock=self.clock,
        ).walk()

    def _candidates(self, allowed: set[str] | None) -> list[tuple[str, float]]:
        """Who is due now. With the switch off for all, only agents with settings of their own."""
        now = self.clock()
        if allowed is None:
            return self.runs.due(now, TICK_AGENTS)
        agents = sorted(allowed)
        scores = self.client.zmscore(self.keys.due, agents)
        rows = zip(agents, scores, strict=True)
        return [
            (agent, float(score)) for agent, score in rows if score is not None and score <= now
        ]

    @contextmanager
    def _apart(self, agent: str, done: Tick) -> Iterator[None]:
        """Put an agent off whose keys cannot be read, so that it does not hold up the others."""
        try:
            yield
        except (ResponseError, Unreadable) as error:
            if isinstance(error, ResponseError) and not is_about_data(error):
                raise
            reason = f"its keys cannot be read ({type(error).__name__})"
            self._put_off(agent, self.clock() + self.settings.sweep_s, reason, done)

    def _pass_over(self, agent: str, done: Tick, *, crowded: bool) -> None:
        """Leave out an agent whose own switch is off.

        Where all who are due are looked at, it would stand in the way of the others for ever;
        `enable` for this agent brings it back at once.
        """
        if crowded:
            self._put_off(agent, self.clock() + self.settings.sweep_s, "off", done)

    def _consider(self, agent: str, score: float, config: Config, done: Tick) -> None:
        """Enqueue, put off or drop one agent that is due."""
        now = self.clock()
        record = self.runs.record(agent)
        if record.unpublished:
            self.runs.publish(agent)
        waiting = self.client.zcard(self.keys.agent(agent).unconsolidated)
        if waiting < config.min_items:
            self.runs.drop_due(agent, score, at_least=config.min_items)
            return
        if record.state == "idle" and record.not_before > now:
            self._put_off(agent, record.not_before, "too early", done)
            return
        idle = self.gate.look(agent, record, now)
        done.warnings.extend(text for text in idle.warnings if text not in done.warnings)
        if not idle.idle:
            until = now + self.settings.defer_s
            self.runs.defer(agent, idle.reason, until)
            self._tell(agent, until, idle.reason, done)
            return
        claim = self.runs.claim(agent, gone=self._vanished(record))
        if claim.taken:
            self._enqueue(agent, claim, done)
        else:
            self._wait_for(agent, claim, done)

    def _enqueue(self, agent: str, claim: Claim, done: Tick) -> None:
        """Put a claimed run into the queue; looked at again once its lease would be over."""
        self.runs.mark_due(agent, self.clock() + self.settings.lease_s)
        job = enqueue_pass(self.queue, self.settings, agent, claim.token)
        log.info("enqueued pass agent=%s run=%s", agent, claim.token)
        done.enqueued.append({"agent": agent, "run": claim.token, "job": job})

    def _wait_for(self, agent: str, claim: Claim, done: Tick) -> None:
        """Look again when the run that stands in the way should be over."""
        now = self.clock()
        if claim.word in {"RUNNING", "EARLY"}:
            reason = "a pass is running" if claim.word == "RUNNING" else "too early"
            self._put_off(agent, max(float(claim.detail), now + self.settings.tick_s), reason, done)
        elif claim.word == "QUEUED":
            until = now + min(self.settings.defer_s, self.settings.lease_s)
            self._put_off(agent, until, "a pass waits in the queue", done)
        else:
            until = now + self.settings.tick_s
            self._put_off(agent, until, "an insight waits to be published", done)

    def _put_off(self, agent: str, until: float, reason: str, done: Tick) -> None:
        self.runs.mark_due(agent, until)
        self._tell(agent, until, reason, done)

    def _tell(self, agent: str, until: float, reason: str, done: Tick) -> None:
        done.deferred.append({"agent": agent, "until": until, "reason": reason})
        log.info("put off agent=%s: %s", agent, reason)

    def _vanished(self, record: RunRecord) -> str:
        """The token of a queued run whose job is no longer in the queue, else ''.

        A job that was just taken is about to start, and has a moment for that.
        """
        lost = record.state == "queued" and not is_waiting(self.queue, record.token)
        late = self.clock() > record.claimed_at + min(self.settings.lease_s, STARTING_S)
        return record.token if lost and late else ""
