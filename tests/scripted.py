"""A model that says what a test tells it to, and a pass with it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.stage import NOW, started
from worker.config import Config
from worker.consolidation import Pass
from worker.errors import ModelError
from worker.memory.store import AgentMemory
from worker.runs import Runs
from worker.settings import Settings
from worker.sleep.model import Answer, Model, Question, Step
from worker.sleep.report import Report
from worker.stores import agent_memory

#: A text, an error to raise, or a function of the question that returns one of them.
Said = str | ModelError | Callable[[Question], "str | ModelError"]

INSIGHT = "Billing waits for the audit, and the audit waits for the new region."


def rows(*triples: tuple[int, int, str]) -> str:
    """Connections as a model writes them."""
    return json.dumps(
        [{"from_id": a, "to_id": b, "relationship": phrase} for a, b, phrase in triples]
    )


def tagged(question: Question) -> str:
    """Metadata for each memory of the question."""
    return json.dumps(
        [
            {"id": item.id, "entities": ["Frankfurt"], "topics": ["billing", "audit"]}
            for item in question.items
        ]
    )


class Scripted:
    """Answers each step by script, 100 tokens in and 10 out; keeps what it was asked.

    `meanwhile` runs at the first question, while the model "thinks".
    """

    name = "scripted"

    def __init__(
        self,
        *,
        metadata: Said = tagged,
        connections: Said = "[]",
        insight: Said = INSIGHT,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        self.said: Mapping[Step, Said] = {
            Step.METADATA: metadata,
            Step.CONNECTIONS: connections,
            Step.INSIGHT: insight,
        }
        self.meanwhile = meanwhile
        self.asked: list[Question] = []
        self.deadlines: list[float] = []

    @property
    def steps(self) -> list[str]:
        """The step of each question so far."""
        return [question.step.value for question in self.asked]

    def ask(self, question: Question, *, deadline_s: float) -> Answer:
        """Say what the script says."""
        self.asked.append(question)
        self.deadlines.append(deadline_s)
        if self.meanwhile is not None:
            then, self.meanwhile = self.meanwhile, None
            then()
        said = self.said[question.step]
        if callable(said):
            said = said(question)
        if isinstance(said, ModelError):
            raise said
        return Answer(said, 100, 10)


def run_pass(
    memory: AgentMemory,
    model: Model,
    *,
    now: float = NOW,
    token: str | None = None,
    settings: Settings | None = None,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Claim, start and do one pass over a memory, at the time `now`; its report.

    `config` changes run-time settings, `options` fields of the Pass.
    """
    clock = options.setdefault("clock", lambda: now)
    runs = Runs(memory.client, settings or Settings(), clock=clock)
    agent = memory.keys.agent
    chosen: dict[str, Any] = {"deadline_s": 100.0, "call_timeout_s": 60.0, **options}
    return Pass(
        agent_memory(memory.client, runs.settings, agent),
        runs,
        Config(enabled=True, model=model.name, **(config or {})),
        model,
        agent,
        token or started(runs, agent),
        **chosen,
    ).perform()


def dump(memory: AgentMemory) -> dict[bytes, bytes]:
    """Every key of the server and its value, as the server serialises it."""
    client = memory.client
    return {key: client.dump(key) for key in client.scan_iter()}
