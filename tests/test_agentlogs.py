"""Events of real agents go through `remq emit -` and the writer: none lost, none double."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
import redis

from tests.commandline import Run
from tests.emitting import KEYS, assert_nothing_left, letters, store_all
from worker.settings import Settings
from worker.stores import agent_memory
from worker.writer import Tally

SAMPLE = Path(__file__).parent / "data" / "agentlogs.sample.jsonl"


def test_a_sample_log(
    client: redis.Redis,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each session is an agent, each role a provenance; equal texts stay as many as they were."""
    remq = Run(monkeypatch, capsys)
    expected = defaultdict(list)
    lines = []
    for row in map(json.loads, SAMPLE.read_text("utf-8").splitlines()):
        event = {"agent": row["session"], "text": row["text"], "provenance": row["role"]}
        lines.append(json.dumps({**event, "tier": "episodic"}))
        expected[row["session"]].append((row["text"], row["role"]))
    stdin = "\n".join(lines).encode()

    assert remq("emit", "-", stdin=stdin).out == "60 taken, 0 refused.\n"
    assert store_all(client, settings) == Tally(stored=60)
    assert remq("emit", "-", stdin=stdin).code == 0
    assert store_all(client, settings) == Tally(duplicates=60)

    for agent, events in expected.items():
        items = sorted(agent_memory(client, settings, agent).all_items(), key=lambda item: item.id)
        assert [(item.text, item.provenance) for item in items] == events
        assert {item.tier for item in items} == {"episodic"}
    assert client.zcard(KEYS.agents) == len(expected)
    assert letters(client) == []
    assert_nothing_left(client)
