"""Extract on write: entities and topics right after an item was stored, never in its way."""

from collections.abc import Sequence
from dataclasses import replace

from worker.memory.item import INSIGHT
from worker.memory.store import AgentMemory
from worker.sleep import answers, prompts
from worker.sleep.model import Model, Question, Step, WindowItem


def annotate(
    memory: AgentMemory,
    model: Model,
    ids: Sequence[int],
    *,
    deadline_s: float,
    prompt_tokens: int = 8000,
) -> int:
    """Ask one question about these items and store what was found; how many were annotated.

    Never for insights. What does not fit into the prompt is left to the pass. An item whose text
    changed meanwhile is left alone. Raises ModelError.
    """
    items = [item for item in memory.items(ids) if item.kind != INSIGHT]
    shown = prompts.fit(
        [WindowItem(item.id, item.text, item.kind, item.ts) for item in items], prompt_tokens
    )
    if not shown:
        return 0
    answer = model.ask(Question(Step.METADATA, shown), deadline_s=deadline_s)
    found = answers.read_metadata(answer.text, {item.id for item in shown})
    return sum(
        memory.annotate(
            replace(item, entities=found[item.id].entities, topics=found[item.id].topics)
        )
        for item in items
        if item.id in found
    )
