"""Decide whether an agent is idle, so that a pass never gets in the way of its work.

With `REMQ_AGENT_QUEUES` set, idle means that all these queues are empty; what counts is said in
depth.py. What cannot be read counts as busy; a queue of which no key exists is idle, with a
warning. With none set, idle is quiet: no event of the agent and no recall for some time.
"""

from dataclasses import dataclass, replace

from redis.exceptions import RedisError

from worker.connect import Client, Connect
from worker.errors import RemqError, StoreUnavailable
from worker.sleep.depth import Depth, Reading, Unreadable, Unseen, measure, unreadable
from worker.sleep.queues import QueueSpec, parse_queues

__all__ = ["Idle", "IdleGate", "QueueSpec", "parse_queues"]

#: What one piece of work is called, and several.
_NOUNS = {
    "rq": ("job", "jobs"),
    "celery": ("task", "tasks"),
    "list": ("entry", "entries"),
    "stream": ("entry", "entries"),
    "bullmq": ("job", "jobs"),
}
#: Kinds that may leave no key when they are empty: once seen, that is no longer worth a warning.
_TRACELESS = ("list", "celery")


@dataclass(frozen=True, slots=True)
class Idle:
    """The answer about one agent. `reason` says in words what keeps it busy; empty when idle."""

    idle: bool
    reason: str = ""
    warnings: tuple[str, ...] = ()


class IdleGate:
    """Asks the agents' queues. For one thread; keeps one connection to each server."""

    def __init__(
        self,
        specs: tuple[QueueSpec, ...],
        *,
        connect: Connect,
        quiet_s: float = 60.0,
        horizon_s: float = 300.0,
        retry_s: float = 30.0,
        rq_prefix: str = "rq",
    ) -> None:
        """Open nothing yet.

        `connect` opens a server by URL (None: RQ's own server) and reads bytes; it should give
        up within a second or two and not repeat by itself. `horizon_s`: delayed work due within
        that time counts. `quiet_s`: the silence that counts as idle where no queue is named.
        `retry_s`: how long a server that did not answer is not asked again, so that one dead
        server does not hold up a tick once for every agent. `rq_prefix`: the `RQ_KEY_PREFIX`
        that the agents' RQ runs with.
        """
        self._specs = tuple(
            replace(spec, prefix=spec.prefix or rq_prefix) if spec.kind == "rq" else spec
            for spec in specs
        )
        self._connect = connect
        self._quiet_s = quiet_s
        self._horizon_s = horizon_s
        self._retry_s = retry_s
        self._servers: dict[str | None, Client] = {}
        self._silent: dict[str | None, tuple[float, Unreadable]] = {}
        self._seen: set[QueueSpec] = set()

    def look(
        self, agent: str, *, now: float, last_event_at: float | None, last_recall_at: float | None
    ) -> Idle:
        """Say whether an agent is idle; raises nothing for a fault of a server.

        All times are Unix seconds. `last_event_at` and `last_recall_at` are when an event of the
        agent last arrived and when it last recalled (None: never); they matter only where no
        queue is named.
        """
        if not self._specs:
            return self._quiet(now, last_event_at, last_recall_at)
        reasons, warnings = [], []
        for template in self._specs:
            spec = template.for_agent(agent)
            reading = self.read(spec, now=now)
            if isinstance(reading, Unreadable):
                reasons.append(f"{spec.label} cannot be read and counts as busy: {reading.reason}")
            elif isinstance(reading, Depth) and reading.busy:
                reasons.append(_busy(spec, reading, self._horizon_s))
            elif isinstance(reading, Unseen) and spec not in self._seen:
                warnings.append(_unseen(spec))
        return Idle(not reasons, "; ".join(reasons), tuple(warnings))

    def read(self, spec: QueueSpec, *, now: float) -> Reading:
        """Read one queue that is filled in for an agent."""
        until, silence = self._silent.get(spec.url, (now, None))
        if silence is not None and now < until:
            return silence
        reading = self._measure(spec, now)
        if isinstance(reading, Depth) and spec.kind in _TRACELESS:
            self._seen.add(spec)
        if isinstance(reading, Unreadable) and reading.silent:
            self._silent[spec.url] = (now + self._retry_s, reading)
        return reading

    def _measure(self, spec: QueueSpec, now: float) -> Reading:
        try:
            server = self._server(spec.url)
        except RemqError as error:
            return Unreadable(str(error).rstrip("."), silent=isinstance(error, StoreUnavailable))
        except RedisError as error:
            return unreadable(error, spec)
        return measure(spec, server, now=now, horizon_s=self._horizon_s)

    def _server(self, url: str | None) -> Client:
        if url not in self._servers:
            self._servers[url] = self._connect(url)
        return self._servers[url]

    def _quiet(self, now: float, last_event_at: float | None, last_recall_at: float | None) -> Idle:
        times = (("event", last_event_at), ("recall", last_recall_at))
        # Another machine's clock may be ahead: what is yet to come happened just now.
        known = [(max(0.0, now - at), what) for what, at in times if at is not None]
        ago, what = min(known, default=(self._quiet_s, ""))
        if ago >= self._quiet_s:
            return Idle(True)
        return Idle(
            False, f"last {what} {ago:.0f} s ago; quiet for {self._quiet_s:g} s counts as idle"
        )


def _busy(spec: QueueSpec, depth: Depth, horizon_s: float) -> str:
    """`rq:tasks has 3 jobs waiting, 1 due within 300 s and 1 running (RQ is suspended)`."""
    states = [
        (depth.queued, "waiting"),
        (depth.due, f"due within {horizon_s:g} s"),
        (depth.running, "running"),
    ]
    (first, state), *others = [(count, state) for count, state in states if count]
    noun = _NOUNS[spec.kind][first != 1]
    parts = [f"{first} {noun} {state}", *(f"{count} {state}" for count, state in others)]
    listed = " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
    least = "at least " if depth.at_least else ""
    return f"{spec.label} has {least}{listed}" + (f" ({depth.note})" if depth.note else "")


def _unseen(spec: QueueSpec) -> str:
    if spec.kind == "list":
        return f"{spec.label} is empty, or no list of that name exists at {spec.place}"
    return (
        f"{spec.label} was never seen: no key of it exists at {spec.place}; check its name, "
        "its key prefix and the database's number"
    )
