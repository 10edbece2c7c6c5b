"""Colour only on a terminal, a reader that has gone, and the demo."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.cli.command_line import REPORT, Remq
from tests.stage import remember
from worker.dead import DeadLetters
from worker.keys import Keys
from worker.memory.store import AgentMemory


def run(words: Sequence[str], **streams: Any) -> "subprocess.Popen[bytes]":
    """Start a command as a process."""
    return subprocess.Popen([sys.executable, "-m", "worker", *words], **streams)


@pytest.mark.usefixtures("stored", "remq")
def test_colour_is_for_terminals_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    failing = ["memory", "show", "99", "--agent", "alice"]
    assert b"\x1b[31mError:" in on_a_terminal(failing)
    monkeypatch.setenv("NO_COLOR", "1")
    plain = on_a_terminal(failing)
    assert b"Error: Agent 'alice' has no memory 99." in plain
    assert b"\x1b[3" not in plain


def on_a_terminal(words: Sequence[str]) -> bytes:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    process = run(words, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:
        pass  # Linux says so when the last writer has closed a terminal.
    os.close(ours)
    process.wait(10)
    return said


def test_a_reader_that_has_gone_is_no_fault(remq: Remq, alice: AgentMemory) -> None:
    assert remq
    for number in range(2000):
        remember(alice, f"memory {number}")
    process = run(
        ["memory", "list", "--agent", "alice", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(10) in {0, 1}


NASTY = "billing \x1b]0;title\x07 \x9b31m \r :warning: [bold]x[/bold] [/] end"


@pytest.mark.parametrize(
    "line",
    [
        "recall --agent alice billing",
        "recall --agent alice billing --explain",
        "recall --agent alice billing --context",
        "memory list --agent alice",
        "memory show 1 --agent alice",
        "dead list",
    ],
)
def test_a_memory_s_words_do_nothing_to_the_terminal(
    remq: Remq, alice: AgentMemory, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    remember(alice, NASTY)
    dead = DeadLetters(alice.client, Keys(), 10)
    dead.add(b"1-0", {b"agent": NASTY.encode()}, f"{NASTY} is refused")
    said = remq(*line.split()).out
    assert re.findall(r"[^\n -~\xa0-\uffff]", said) == []
    assert ":warning: [bold]x[/bold] [/]" in said


# For people.


@pytest.mark.parametrize(
    "line",
    [
        "recall --agent alice region --explain",
        "memory list --agent alice",
        "memory show 4 --agent alice",
        "memory stats --agent alice",
        "memory purge --agent alice",
        "memory forget --agent alice --exact user:41 --dry-run",
        "consolidation status",
        "consolidation set min_items 4",
        "consolidation disable --agent alice",
        "scheduler --once",
        "writer --burst",
        "dead list",
        "status",
    ],
)
@pytest.mark.usefixtures("stored")
def test_without_json_a_person_reads_it(remq: Remq, line: str) -> None:
    remq("consolidation", "enable")
    told = remq("consolidation", "run", "--agent", "alice", "--here")
    assert "3 reviewed" in told.out
    assert "insight" in told.err
    done = remq(*line.split())
    assert (done.code, done.err) == (0, "")
    assert done.out.strip()
    assert not done.out.startswith("{")


# The demo.


def test_the_demo_is_told_step_by_step(remq: Remq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMQ_REDIS_URL")
    done = remq("demo")
    assert done.code == 0
    for number in range(1, 7):
        assert f"\n{number}. " in done.out
    assert "What an agent puts into its system prompt" in done.out


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_demo_finds_the_insight(remq: Remq, monkeypatch: pytest.MonkeyPatch, lang: str) -> None:
    monkeypatch.delenv("REMQ_REDIS_URL")
    told = remq("demo", "--json", "--lang", lang).json
    assert set(told) == {"stored", "recall_before", "report", "recall_after"}
    assert told["stored"] >= 38
    assert set(told["report"]) == REPORT
    before = [item["kind"] for item in told["recall_before"]["items"]]
    after = [item["kind"] for item in told["recall_after"]["items"]]
    assert "insight" not in before
    assert "insight" in after
