"""The command line in this process, with something on its standard input."""

import io

import pytest

from tests.cli.command_line import Done, Remq


class Run(Remq):
    """Runs one command: `run("emit", "-", stdin=b"…")`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]
    ) -> None:
        super().__init__(capture)
        self.monkeypatch = monkeypatch
        monkeypatch.setenv("COLUMNS", "200")

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return super().__call__(*arguments)
