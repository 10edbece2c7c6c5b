"""A chat agent with a memory: it recalls before it acts, and remembers what happened.

    remq up                                   in one terminal; it prints the address
    REMQ_REDIS_URL=redis://127.0.0.1:<port>/0 python examples/agent_loop.py       in another

Type a line, or `remember: ...`. With OPENAI_API_KEY or OPENAI_BASE_URL set it asks that model
(REMQ_MODEL); without, a scripted stand-in, so that the loop can be seen at work.
"""

import os
import sys
from collections.abc import Callable

from openai import OpenAI, OpenAIError
from redis import RedisError

from producer import Memory, RecallError

INSTRUCTIONS = "You are the support agent of a small shop. Answer in one or two sentences."
USER = "user:42"  # Where these memories come from: what `remq memory forget --exact` takes.

#: Takes the system prompt and what the user said; returns the answer.
Model = Callable[[str, str], str]


def choose_model() -> Model:
    if not (os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL")):
        return scripted
    client = OpenAI(api_key=os.environ.get("OPENAI_API_KEY") or "none", timeout=60)

    def ask(system: str, said: str) -> str:
        answer = client.chat.completions.create(
            model=os.environ.get("REMQ_MODEL", "gpt-5-mini"),
            messages=[{"role": "system", "content": system}, {"role": "user", "content": said}],
        )
        return answer.choices[0].message.content or "(no answer)"

    return ask


def answered(model: Model, system: str, said: str) -> str:
    """Ask the model; one that fails must not end the agent."""
    try:
        return model(system, said)
    except (OpenAIError, AttributeError, IndexError) as error:  # The last two: it was no model.
        return f"(no answer: {type(error).__name__})"


def scripted(system: str, said: str) -> str:
    """Stand in for a model: knows nothing but what was recalled."""
    memories = [line for line in system.splitlines() if line.startswith("- (")]
    if not said.endswith(("?", "？")):
        return "Noted."
    return f"I remember: {memories[0][2:]}" if memories else "I know nothing of that yet."


def recalled(memory: Memory, said: str) -> str:
    """Ask the memory; an agent can do without it for a moment."""
    try:
        return memory.recall_context(said)
    except RecallError as error:
        print(f"(without memories: {error})", file=sys.stderr)
        return ""


def cycle(memory: Memory, model: Model, said: str) -> str:
    # Perceive. Working notes stay in this process, and only until the cycle ends.
    memory.note_working(f"The customer said: {said}")

    # Recall: what matters for this goes into the system prompt.
    system = "\n\n".join(filter(None, [INSTRUCTIONS, recalled(memory, said)]))

    # Act.
    answer = answered(model, system, said)
    memory.note_working(f"I answered: {answer}")

    # Remember. What holds for long is durable; what happened is episodic, as a summary.
    if said.lower().startswith("remember:"):
        memory.durable(said.partition(":")[2].strip() or said, kind="fact", provenance=USER)
    else:
        memory.episodic("; ".join(memory.working)[:500], provenance=USER)
    memory.end_cycle()
    return answer


def main() -> None:
    model = choose_model()
    # The server: REMQ_REDIS_URL. The sixth step, consolidation, is remq's, while we are idle.
    with Memory("shop-agent") as memory:
        print("Type a line; Ctrl-D ends.", file=sys.stderr)
        for line in sys.stdin:
            if said := line.strip():
                print(cycle(memory, model, said), flush=True)


if __name__ == "__main__":
    try:
        main()
    except RedisError as error:
        sys.exit(f"The memory's server does not answer ({type(error).__name__}): REMQ_REDIS_URL?")
    except KeyboardInterrupt:
        sys.exit(130)
