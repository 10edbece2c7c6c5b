"""Runs of passes: who is due, who is claimed, who runs, and what came of it.

A run is `queued` (claimed, its RQ job waits), `running` (under a lease) or `idle` (over). What
makes a run single is its claim in the agent's own slot, judged by the server's clock.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from worker.connect import Client
from worker.errors import reading
from worker.keys import Keys
from worker.memory.item import Item
from worker.memory.scripts import Call, Script
from worker.memory.scripts import run as run_script
from worker.memory.store import AgentMemory
from worker.settings import Settings
from worker.sleep.plan import Plan
from worker.sleep.report import Report

_CLAIM = Script.load("claim")
_START = Script.load("start")
_FINISH = Script.load("finish")
_COMMIT = Script.load("commit")
_PUBLISHED = Script.load("published")
_UNDUE = Script.load("undue")


@dataclass(frozen=True, slots=True)
class Claim:
    """What came of asking for a run: `word` is OK, QUEUED, RUNNING, EARLY or UNPUBLISHED."""

    word: str
    detail: str
    token: str

    @property
    def taken(self) -> bool:
        """Whether the run is ours."""
        return self.word == "OK"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is read of an agent's run as it stands. Times are Unix seconds, 0 for never."""

    state: str = "idle"
    token: str = ""
    claimed_at: float = 0.0
    not_before: float = 0.0
    deferred_reason: str = ""
    last_recall_at: float = 0.0
    unpublished: str = ""

    @classmethod
    def from_row(cls, row: dict[bytes, bytes]) -> "RunRecord":
        """Read the run hash; empty for an agent that never had a pass. Raises ValueError."""
        text = {name.decode(): value.decode() for name, value in row.items()}
        numbers = ("claimed_at", "not_before", "last_recall_at")
        return cls(
            state=text.get("state", "idle"),
            token=text.get("token", ""),
            deferred_reason=text.get("deferred_reason", ""),
            unpublished=text.get("unpublished", ""),
            **{name: float(text.get(name, 0)) for name in numbers},
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """What commit.lua said: OK, SUPERSEDED or CHANGED, and the numbers only it can know.

    `report` is the report as it stands in the ledger after OK.
    """

    word: str
    connections_made: int
    salience_rerated: int
    report: Report


class Runs:
    """The runs of all agents under one prefix."""

    def __init__(
        self, client: Client, settings: Settings, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.client = client
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self.clock = clock

    def record(self, agent: str) -> RunRecord:
        """An agent's run as it stands. Raises Unreadable."""
        return self.read(agent, self.client.hgetall(self.keys.agent(agent).run))

    def read(self, agent: str, row: dict[bytes, bytes]) -> RunRecord:
        """An agent's run by its hash, which was read already. Raises Unreadable."""
        with reading(f"The run record of agent {agent!r}"):
            return RunRecord.from_row(row)

    def claim(self, agent: str, *, gone: str = "", force: bool = False) -> Claim:
        """Ask for an agent's next run. `gone` is the token of a queued run whose job vanished.

        A new insight that a crash kept from the insights stream is published first.
        """
        self.publish(agent)
        token = f"{int(self.clock() * 1000):x}-{secrets.token_hex(6)}"
        call = _CLAIM.call(
            {"run": self.keys.agent(agent).run},
            {"token": token, "gone": gone, "force": int(force)},
        )
        word, detail = run_script(self.client, call)
        return Claim(word.decode(), detail.decode(), token)

    def start(self, agent: str, token: str) -> str:
        """Begin a claimed run and its lease: OK, RUNNING or SUPERSEDED."""
        call = _START.call(
            {"run": self.keys.agent(agent).run},
            {
                "token": token,
                "attempt": secrets.token_hex(6),
                "lease_s": repr(self.settings.lease_s),
            },
        )
        return str(run_script(self.client, call).decode())

    def put_off(self, agent: str, token: str, reason: str, until: float) -> None:
        """End a claimed run without a pass; it may be claimed again from `until` on."""
        if self._finish(agent, token, until, reason, []):
            self.mark_due(agent, until)

    def defer(self, agent: str, reason: str, until: float) -> None:
        """Put off a busy agent that has no claimed run; it is not looked at before `until`.

        In the run's record too: else the agent's next event would make it due at once.
        """
        deferred = {"deferred_reason": reason, "deferred_until": repr(until)}
        self.client.hset(self.keys.agent(agent).run, mapping=deferred)
        self.mark_due(agent, until)

    def finish(self, report: Report, not_before: float) -> bool:
        """End a run that changed no memory, with its report; False if it is not ours any more."""
        row = [part for pair in report.fields().items() for part in pair]
        ours = self._finish(report.agent, report.run, not_before, "", row)
        if ours:
            self.mark_due(report.agent, not_before)
        return ours

    def commit(self, plan: Plan, report: Report, not_before: float, rerate: bool) -> Committed:
        """Apply a whole pass or nothing of it; publish its insight and set when the next is due."""
        keys = self.keys.agent(report.agent)
        insight_id = None if plan.insight is None else int(self.client.incr(keys.ids))
        report = report.ended(
            self.clock(), insight_id=insight_id, insights_written=int(insight_id is not None)
        )
        call = self._commit_call(plan, report, not_before, rerate)
        word, made, raised = run_script(self.client, call)
        if word == b"OK":
            new = plan.insight
            item = None if new is None or insight_id is None else new.item(insight_id, plan.now)
            self._follow_up(report, item, not_before, plan.now)
        counted = replace(report, connections_made=made, salience_rerated=raised)
        return Committed(word.decode(), made, raised, counted)

    def _follow_up(
        self, report: Report, insight: Item | None, not_before: float, now: float
    ) -> None:
        """After a commit, in other slots: mark when the next pass is due, publish the insight."""
        pipe = self.client.pipeline(transaction=False)
        pipe.zadd(self.keys.due, {report.agent: not_before})
        if insight is not None:
            self._announce(pipe, insight, report.agent, report.run)
        pipe.execute()
        if insight is not None:
            self._note_published(report.agent, f"{insight.id}|{report.run}|{now!r}")

    def _commit_call(self, plan: Plan, report: Report, not_before: float, rerate: bool) -> Call:
        keys = self.keys.agent(report.agent)
        names = (
            "run", "passes", "items", "unconsolidated", "expiring", "provenance", "insights", "rev",
            "changes", "connections",
        )  # fmt: skip
        touched = [member.id for member in plan.members]
        more_keys = [*map(keys.item, touched), *map(keys.links, touched)]
        if report.insight_id is not None:
            more_keys += [keys.item(report.insight_id), keys.links(report.insight_id)]
        computed = ("connections_made", "salience_rerated")
        told = [pair for pair in report.fields().items() if pair[0] not in computed]
        return _COMMIT.call(
            {name: getattr(keys, name) for name in names},
            {
                "token": report.run,
                "now": repr(plan.now),
                "not_before": repr(not_before),
                "rerate": int(rerate),
                "passes_max": self.settings.passes_max,
                "feed_max": self.settings.feed_max,
                "window": len(plan.members),
                "links": len(plan.connections),
                "insight": report.insights_written,
                "report": len(told),
            },
            more_keys=more_keys,
            more_args=[
                *plan.arguments(report.insight_id),
                *(part for pair in told for part in pair),
            ],
        )

    def publish(self, agent: str) -> None:
        """Put an agent's new insight on the insights stream, if it is not there yet.

        At least once: a crash in between repeats it, with the same run. One that was deleted
        meanwhile, or cannot be read, is not published. Raises Unreadable for a spoilt mark.
        """
        keys = self.keys.agent(agent)
        unpublished = self.client.hget(keys.run, "unpublished")
        if unpublished is None:
            return
        with reading(f"The run record of agent {agent!r}"):
            mark = unpublished.decode()
            insight_id, run, _ = mark.split("|")
            wanted = int(insight_id)
        for insight in AgentMemory(self.client, keys).items([wanted]):
            self._announce(self.client, insight, agent, run)
        self._note_published(agent, mark)

    def _announce(self, client: Client, insight: Item, agent: str, run: str) -> None:
        fields = {
            "agent": agent,
            "id": insight.id,
            "run": run,
            "text": insight.text,
            "provenance": insight.provenance,
            "ts": repr(insight.ts),
            "source_ids": ",".join(map(str, insight.source_ids)),
        }
        client.xadd(self.keys.insights, fields, maxlen=self.settings.insights_max, approximate=True)

    def _note_published(self, agent: str, mark: str) -> None:
        """Take away the mark that commit.lua left, `id|run|time`, unless it is a later one."""
        call = _PUBLISHED.call({"run": self.keys.agent(agent).run}, {"mark": mark})
        run_script(self.client, call)

    def reports(self, agent: str, count: int = 1) -> list[Report]:
        """The newest reports of an agent's passes, newest first. Raises Unreadable."""
        rows = self.client.xrevrange(self.keys.agent(agent).passes, count=count)
        with reading(f"A report of agent {agent!r}"):
            return [Report.from_fields(row) for _, row in rows]

    # Who is due.

    def due(self, now: float, count: int) -> list[tuple[str, float]]:
        """The agents whose next pass may start, the longest due first, with their time."""
        rows = self.client.zrangebyscore(
            self.keys.due, "-inf", now, start=0, num=count, withscores=True
        )
        return [(member.decode(), float(score)) for member, score in rows]

    def mark_due(self, agent: str, at: float) -> None:
        """Set when an agent's next pass may start, earlier or later than what stands there.

        Also where nothing waits: whoever looks at the list then finds that out, and drops it.
        """
        self.client.zadd(self.keys.due, {agent: at})

    def drop_due(self, agent: str, score: float, *, at_least: int) -> None:
        """Take an agent off the list, of whom fewer than `at_least` items were seen to wait.

        Not if its time was moved from `score` meanwhile. List and memory lie in different slots,
        so the count is read again: what a writer stored before that is seen, and puts the agent
        back; what it stores later it marks itself, after the agent was taken off.
        """
        call = _UNDUE.call({"due": self.keys.due}, {"agent": agent, "score": repr(score)})
        run_script(self.client, call)
        if self.client.zcard(self.keys.agent(agent).unconsolidated) >= at_least:
            self.client.zadd(self.keys.due, {agent: score}, nx=True)

    def _finish(
        self, agent: str, token: str, not_before: float, reason: str, row: list[Any]
    ) -> bool:
        keys = self.keys.agent(agent)
        call = _FINISH.call(
            {"run": keys.run, "passes": keys.passes},
            {
                "token": token,
                "not_before": repr(not_before),
                "deferred_reason": reason,
                "passes_max": self.settings.passes_max,
            },
            more_args=row,
        )
        return bool(run_script(self.client, call) == b"OK")
