"""Realistic events: a sample of what real agents said, did and read, as often as needed."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from producer import Event

SAMPLE = Path(__file__).parent / "data" / "agentlogs.sample.jsonl"


def agent_name(number: int) -> str:
    """The name of one of the agents that events are spread over."""
    return f"agent-{number}"


def sampled(count: int, agents: int) -> list[Event]:
    """Make `count` episodic events of the sample's texts, dealt out to `agents` agents in turn.

    Each has the event id that every client of ours sets.
    """
    rows = _rows()
    return [
        Event(
            agent_name(number % agents),
            row["text"],
            provenance=f"{row['role']}:{row['session']}",
            event_id=f"{number:032x}",
        )
        for number, row in ((number, rows[number % len(rows)]) for number in range(count))
    ]


def mean_bytes(events: Sequence[Event]) -> int:
    """The mean size of a text in bytes of UTF-8."""
    return sum(len(event.text.encode()) for event in events) // len(events)


@cache
def _rows() -> list[dict[str, str]]:
    return [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()]
