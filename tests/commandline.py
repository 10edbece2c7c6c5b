"""Run `remq` in this process, as `main` does, and look at what a caller sees."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from worker.cli.root import cli
from worker.cli.session import exit_code


@dataclass(frozen=True)
class Done:
    """What a command left: its exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one sentence on stderr with which a command failed."""
        assert self.code == 1
        assert self.out == ""
        assert self.err.count("\n") == 1
        assert self.err.startswith("Error: ")
        return self.err.removeprefix("Error: ").removesuffix("\n")


Run = Callable[..., Done]


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs one command: `run("emit", "-", stdin=b"…")`."""

    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = exit_code(lambda: cli(list(arguments), standalone_mode=False))
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return run
