"""The pass itself: window, metadata, connections, insight, plan, commit.

It never raises for what a model said: a step that fails is skipped, named in the report, and the
pass goes on with what it has.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from worker.config import Config
from worker.errors import ModelError, ModelUnavailable, NoInsight
from worker.memory.store import AgentMemory
from worker.memory.text import clip
from worker.runs import Runs
from worker.sleep import answers, prompts, window
from worker.sleep.model import Connection, Metadata, Model, Question, Step, WindowItem
from worker.sleep.plan import Plan, draw_up
from worker.sleep.report import OFF, OK, Report
from worker.sleep.seats import Seat

log = logging.getLogger("remq.pass")

#: A pass whose window was hit while the model thought is read again and tried again this often.
TRIES = 3
#: Why a pass that came too late did nothing.
TAKEN_OVER = "another run has taken over; nothing was changed"

Found = TypeVar("Found")
#: Hears of each step: its name, and `asking`, `ok` or why it was skipped.
Progress = Callable[[str, str], None]


def silent(step: str, state: str) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class Tally:
    """What the steps of one try came to, and what all tries of the pass cost.

    `answered` counts the usable answers of this try; that there is no insight is one of them.
    """

    steps: dict[str, str] = field(default_factory=dict)
    answered: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def begin(self) -> None:
        """Begin another try: what was said about another window counts no more."""
        self.steps = {}
        self.answered = 0

    @property
    def skipped(self) -> list[str]:
        """Every step that was skipped, with its reason, but those that are switched off."""
        return [
            f"{step}: {state.removeprefix('skipped: ')}"
            for step, state in self.steps.items()
            if state not in {OK, OFF}
        ]


@dataclass(slots=True)
class Pass:
    """One pass over one agent's memory, under a claimed and started run.

    With `again_before` (Unix seconds) it also looks again at what was last consolidated earlier.
    """

    memory: AgentMemory
    runs: Runs
    config: Config
    model: Model
    agent: str
    run: str
    deadline_s: float
    call_timeout_s: float
    prompt_tokens: int = 8000
    clip_at: int = 280
    again_before: float | None = None
    clock: Callable[[], float] = time.time
    progress: Progress = silent

    def perform(self) -> Report:
        """Do the pass, and return its report."""
        report = Report(self.agent, self.run, self.clock(), self.model.name)
        tally = Tally()
        for _ in range(TRIES):
            tally.begin()
            ended = self._try(report, tally)
            if ended is not None:
                return ended
            self.progress("commit", "a memory changed meanwhile, reading the window again")
            log.info("window changed agent=%s run=%s", self.agent, self.run)
        return self._end(report, tally, "the window kept changing", failed=True)

    def _try(self, report: Report, tally: Tally) -> Report | None:
        """Try the pass once. None if the window was hit meanwhile, and nothing was changed."""
        config = self.config
        found = window.read(
            self.memory,
            max(config.window_size, config.min_items),
            now=self.clock(),
            before=self.again_before,
        )
        count = len(found.seats)
        if count < config.min_items:
            reason = f"too few unconsolidated ({count} < {config.min_items})"
            return self._end(report, tally, reason, failed=False)
        seats = self._within_budget(found.seats[: config.window_size])
        if not seats:
            reason = f"no memory fits into a prompt of {self.prompt_tokens} tokens"
            return self._end(report, tally, reason, failed=True)
        report = replace(report, items_reviewed=len(seats))
        ends_at = report.started_at + self.deadline_s
        plan = self._think(seats, found.insights, tally, ends_at)
        if not tally.answered:
            return self._end(report, tally, "; ".join(tally.skipped), failed=True)
        if window.expired(seats, plan.now):
            return None
        return self._commit(plan, self._told(report, tally))

    def _commit(self, plan: Plan, report: Report) -> Report | None:
        done = self.runs.commit(plan, report, self._next(failed=False), self.config.rerate_salience)
        if done.word == "OK":
            return done.report
        if done.word == "SUPERSEDED":
            return report.ended(self.clock(), skipped_reason=TAKEN_OVER)
        return None

    def _think(
        self, seats: Sequence[Seat], known: frozenset[str], tally: Tally, ends_at: float
    ) -> Plan:
        """Ask the three questions about a window, and draw up what follows from the answers."""
        items = tuple(seat.shown() for seat in seats)
        metadata = self._metadata(items, tally, ends_at)
        items = tuple(_with(item, metadata.get(item.id)) for item in items)
        connections = self._connections(items, tally, ends_at)
        insight = self._ask(
            Question(Step.INSIGHT, items, connections),
            lambda text: self._new_insight(text, known),
            tally,
            ends_at,
        )
        return draw_up(
            seats,
            now=self.clock(),
            metadata=metadata,
            connections=connections,
            insight=insight,
            clip_at=self.clip_at,
        )

    def _metadata(
        self, items: tuple[WindowItem, ...], tally: Tally, ends_at: float
    ) -> dict[int, Metadata]:
        if not self.config.extract_metadata:
            tally.steps[Step.METADATA] = OFF
            return {}
        ids = {item.id for item in items}
        found = self._ask(
            Question(Step.METADATA, items),
            lambda text: answers.read_metadata(text, ids),
            tally,
            ends_at,
        )
        return found or {}

    def _connections(
        self, items: tuple[WindowItem, ...], tally: Tally, ends_at: float
    ) -> tuple[Connection, ...]:
        limit = self.config.max_connections
        if limit <= 0:
            tally.steps[Step.CONNECTIONS] = OFF
            return ()
        ids = {item.id for item in items}
        found = self._ask(
            Question(Step.CONNECTIONS, items, limit=limit),
            lambda text: answers.read_connections(text, ids, limit),
            tally,
            ends_at,
        )
        return found or ()

    def _new_insight(self, text: str, known: frozenset[str]) -> str:
        insight = answers.read_insight(text)
        if clip(insight, self.clip_at) in known:
            raise NoInsight("the same insight is already stored")
        return insight

    def _ask(
        self, question: Question, read: Callable[[str], Found], tally: Tally, ends_at: float
    ) -> Found | None:
        """Ask one question; a failure is noted and the step skipped."""
        self.progress(question.step, "asking")
        try:
            found = read(self._answer(question, tally, ends_at))
        except ModelError as error:
            tally.answered += isinstance(error, NoInsight)
            tally.steps[question.step] = f"skipped: {error}"
            log.warning(
                "step skipped agent=%s run=%s step=%s: %s",
                self.agent, self.run, question.step, error,
            )  # fmt: skip
            self.progress(question.step, tally.steps[question.step])
            return None
        tally.answered += 1
        tally.steps[question.step] = OK
        self.progress(question.step, OK)
        return found

    def _answer(self, question: Question, tally: Tally, ends_at: float) -> str:
        """What the model says, within what is left of the pass's time. Raises ModelError."""
        left = min(self.call_timeout_s, ends_at - self.clock())
        if left <= 0:
            raise ModelUnavailable("the pass ran out of time before it was asked")
        tally.calls += 1
        answer = self.model.ask(question, deadline_s=left)
        tally.prompt_tokens += answer.prompt_tokens
        tally.completion_tokens += answer.completion_tokens
        return answer.text

    def _within_budget(self, seats: tuple[Seat, ...]) -> tuple[Seat, ...]:
        fitting = {
            item.id for item in prompts.fit([seat.shown() for seat in seats], self.prompt_tokens)
        }
        return tuple(seat for seat in seats if seat.item.id in fitting)

    def _told(self, report: Report, tally: Tally) -> Report:
        return replace(
            report,
            steps=dict(tally.steps),
            skipped_reason="; ".join(tally.skipped) or None,
            llm_calls=tally.calls,
            prompt_tokens=tally.prompt_tokens,
            completion_tokens=tally.completion_tokens,
        )

    def _end(self, report: Report, tally: Tally, reason: str, *, failed: bool) -> Report:
        """End the run without a change to any memory: nothing is marked as consolidated."""
        report = replace(self._told(report, tally), skipped_reason=reason).ended(self.clock())
        if not self.runs.finish(report, self._next(failed=failed)):
            return replace(report, skipped_reason=TAKEN_OVER)
        return report

    def _next(self, *, failed: bool) -> float:
        return self.clock() + (self.config.backoff_s if failed else self.config.interval_s)


def _with(item: WindowItem, found: Metadata | None) -> WindowItem:
    if found is None:
        return item
    return replace(item, entities=found.entities, topics=found.topics)
