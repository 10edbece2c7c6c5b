"""Run the command line in this process, as its entry point does."""

import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from worker.cli.root import cli
from worker.cli.session import exit_code

#: The fields of an item, of a recalled item and of a report that scripts rely on.
ITEM = {
    "id", "text", "tier", "kind", "provenance", "salience", "access_count", "last_access_ts",
    "expires_at", "ts", "entities", "topics", "last_consolidated_at",
}  # fmt: skip
REPORT = {
    "agent", "run", "started_at", "duration_s", "model", "items_reviewed", "connections_made",
    "insights_written", "salience_rerated", "skipped_reason", "steps", "insight_id", "llm_calls",
    "prompt_tokens", "completion_tokens", "risk",
}  # fmt: skip
RECALLED = {"id", "text", "tier", "kind", "provenance", "salience", "access_count", "ts", "score"}


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        assert self.code == 0, self.err
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on stdout."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


class Remq:
    """The command line in this process, as its entry point calls it."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture

    def __call__(self, *arguments: str) -> Done:
        self.capture.readouterr()
        code = exit_code(lambda: cli(list(arguments), "remq", standalone_mode=False))
        said = self.capture.readouterr()
        assert "Traceback" not in said.out + said.err
        assert "\x1b" not in said.out + said.err
        return Done(code, said.out, said.err)


def sentence(done: Done) -> str:
    """The one sentence a command that could not be done says, and nothing else."""
    assert done.code == 1, done
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert re.fullmatch(r"Error: .+[.?]", line)
    return line
