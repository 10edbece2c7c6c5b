"""Runs of passes: who is due, who is claimed, who runs, and what came of it.

A run is `queued` (claimed, its RQ job waits), `running` (under a lease) or `idle` (over). What
makes a run single is its claim in the agent's own slot, judged by the server's clock.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from worker.connect import Client
from worker.keys import Keys
from worker.memory.item import Item
from worker.memory.scripts import Script
from worker.memory.scripts import run as run_script
from worker.settings import Settings
from worker.sleep.plan import Plan
from worker.sleep.report import Report

_CLAIM = Script.load("claim")
_START = Script.load("start")
_FINISH = Script.load("finish")
_COMMIT = Script.load("commit")
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
    """An agent's run as it stands. Times are Unix seconds, 0 for never."""

    state: str = "idle"
    token: str = ""
    number: int = 0
    claimed_at: float = 0.0
    lease_until: float = 0.0
    not_before: float = 0.0
    deferred_reason: str = ""
    last_recall_at: float = 0.0
    unpublished: str = ""

    @classmethod
    def from_row(cls, row: dict[bytes, bytes]) -> "RunRecord":
        """Read the run hash; empty for an agent that never had a pass."""
        text = {name.decode(): value.decode() for name, value in row.items()}
        numbers = ("claimed_at", "lease_until", "not_before", "last_recall_at")
        return cls(
            state=text.get("state", "idle"),
            token=text.get("token", ""),
            number=int(text.get("number", 0)),
            deferred_reason=text.get("deferred_reason", ""),
            unpublished=text.get("unpublished", ""),
            **{name: float(text.get(name, 0)) for name in numbers},
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """What commit.lua said: OK, SUPERSEDED or CHANGED, and the numbers only it can know."""

    word: str
    connections_made: int
    salience_rerated: int


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
        """An agent's run as it stands."""
        return RunRecord.from_row(self.client.hgetall(self.keys.agent(agent).run))

    def claim(self, agent: str, *, gone: str = "", force: bool = False) -> Claim:
        """Ask for an agent's next run. `gone` is the token of a queued run whose job vanished.

        A new insight that a crash kept from the insights stream is published first.
        """
        self.publish(agent)
        token = f"{int(self.clock() * 1000):x}-{secrets.token_hex(6)}"
        call = _CLAIM.call(
            {"run": self.keys.agent(agent).run},
            {
                "token": token,
                "queued_for_s": repr(self.settings.lease_s),
                "gone": gone,
                "force": int(force),
            },
        )
        word, detail = run_script(self.client, call)
        return Claim(word.decode(), detail.decode(), token)

    def start(self, agent: str, token: str) -> str:
        """Begin a claimed run and its lease: OK, RUNNING or SUPERSEDED."""
        call = _START.call(
            {"run": self.keys.agent(agent).run},
            {"token": token, "lease_s": repr(self.settings.lease_s)},
        )
        return str(run_script(self.client, call).decode())

    def put_off(self, agent: str, token: str, reason: str, until: float) -> None:
        """End a claimed run without a pass; it may be claimed again from `until` on."""
        self._finish(agent, token, until, reason, [])
        self.mark_due(agent, until)

    def finish(self, report: Report, not_before: float) -> bool:
        """End a run that changed no memory, with its report; False if it is not ours any more."""
        row = [part for pair in report.fields().items() for part in pair]
        ours = self._finish(report.agent, report.run, not_before, "", row)
        if ours:
            self.settle_due(report.agent, not_before)
        return ours

    def commit(self, plan: Plan, report: Report, not_before: float, rerate: bool) -> Committed:
        """Apply a whole pass or nothing of it; publish its insight and set when the next is due."""
        keys = self.keys.agent(report.agent)
        names = (
            "run", "passes", "items", "unconsolidated", "expiring", "provenance", "insights", "rev",
            "changes", "connections",
        )  # fmt: skip
        members = plan.members
        insight_id = None if plan.insight is None else int(self.client.incr(keys.ids))
        computed = ("connections_made", "salience_rerated")
        row = report.ended(
            self.clock(), insight_id=insight_id, insights_written=int(insight_id is not None)
        ).fields()
        told = [part for pair in row.items() if pair[0] not in computed for part in pair]
        more_keys = [keys.item(member.id) for member in members]
        more_keys += [keys.links(member.id) for member in members]
        if insight_id is not None:
            more_keys += [keys.item(insight_id), keys.links(insight_id)]
        call = _COMMIT.call(
            {name: getattr(keys, name) for name in names},
            {
                "token": report.run,
                "now": repr(plan.now),
                "not_before": repr(not_before),
                "rerate": int(rerate),
                "passes_max": self.settings.passes_max,
                "feed_max": self.settings.feed_max,
                "window": len(members),
                "links": len(plan.connections),
                "insight": int(insight_id is not None),
                "report": len(told),
            },
            more_keys=more_keys,
            more_args=[*plan.arguments(insight_id), *told],
        )
        word, made, raised = run_script(self.client, call)
        outcome = Committed(word.decode(), *(_number(value) for value in (made, raised)))
        if outcome.word == "OK":
            self.publish(report.agent)
            self.settle_due(report.agent, not_before)
        return outcome

    def publish(self, agent: str) -> None:
        """Put an agent's new insight on the insights stream, if it is not there yet.

        At least once: a crash in between repeats it, with the same run.
        """
        keys = self.keys.agent(agent)
        unpublished = self.client.hget(keys.run, "unpublished")
        if unpublished is None:
            return
        insight_id, run, _ = unpublished.decode().split("|")
        row = self.client.hgetall(keys.item(insight_id))
        if row:
            item = Item.from_fields(int(insight_id), row)
            fields = {
                "agent": agent,
                "id": insight_id,
                "run": run,
                "text": item.text,
                "provenance": item.provenance,
                "ts": repr(item.ts),
                "source_ids": ",".join(map(str, item.source_ids)),
            }
            self.client.xadd(
                self.keys.insights, fields, maxlen=self.settings.insights_max, approximate=True
            )
        self.client.hdel(keys.run, "unpublished")

    def reports(self, agent: str, count: int = 1) -> list[Report]:
        """The newest reports of an agent's passes, newest first."""
        rows = self.client.xrevrange(self.keys.agent(agent).passes, count=count)
        return [Report.from_fields(row) for _, row in rows]

    # Who is due.

    def due(self, now: float, count: int) -> list[tuple[str, float]]:
        """The agents whose next pass may start, the longest due first, with their time."""
        rows = self.client.zrangebyscore(
            self.keys.due, "-inf", now, start=0, num=count, withscores=True
        )
        return [(member.decode(), float(score)) for member, score in rows]

    def mark_due(self, agent: str, at: float) -> None:
        """Set when an agent's next pass may start, earlier or later than what stands there."""
        self.client.zadd(self.keys.due, {agent: at})

    def settle_due(self, agent: str, at: float) -> None:
        """After a pass: due again at `at` if anything waits, else off the list.

        The list and the memory lie in different slots, so the count is read again after the agent
        is taken off: what a writer stored in between puts it back.
        """
        self.mark_due(agent, at)
        self.drop_due(agent, at, at_least=1)

    def drop_due(self, agent: str, score: float, *, at_least: int) -> None:
        """Take an agent off the list where fewer than `at_least` items wait, and look again."""
        keys = self.keys.agent(agent)
        if self.client.zcard(keys.unconsolidated) >= at_least:
            return
        call = _UNDUE.call({"due": self.keys.due}, {"agent": agent, "score": repr(score)})
        if run_script(self.client, call) and self.client.zcard(keys.unconsolidated) >= at_least:
            self.client.zadd(self.keys.due, {agent: score}, lt=True)

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


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int) else 0
