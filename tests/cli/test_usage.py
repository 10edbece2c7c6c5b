"""Every help has an example; wrong usage is exit code 2."""

import re
from collections.abc import Iterator, Sequence

import click
import pytest

from tests.cli.command_line import Remq
from worker.cli.root import COMMANDS, cli


def commands(group: click.Command = cli, path: Sequence[str] = ()) -> Iterator[list[str]]:
    """Every command, with its words."""
    yield list(path)
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, [*path, name])


# Help.


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_help_has_an_example(remq: Remq, words: list[str]) -> None:
    done = remq(*words, "--help")
    assert done.code == 0
    _, _, examples = done.out.partition("Example")
    assert re.search(rf"remq {' '.join(words)}".rstrip() + r"\b", examples), done.out


def test_there_are_the_commands_others_rely_on() -> None:
    words = {" ".join(one) for one in commands()}
    assert set(COMMANDS) <= words
    assert {
        "consolidation enable", "consolidation disable", "consolidation status",
        "consolidation run", "memory list", "memory show", "memory delete", "memory stats",
        "memory purge", "memory decay", "memory forget", "dead list", "dead replay", "dead purge",
    } <= words  # fmt: skip


def test_the_version_is_told(remq: Remq) -> None:
    assert remq("--version").out.startswith("remq")


# Wrong usage: exit code 2.


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sing", "No such command 'sing'"),
        ("recall billing", "Missing option '--agent'"),
        ("recall --agent alice", "Missing argument 'QUERY'"),
        ("recall --agent alice billing -k 0", "0 is not in the range"),
        ("recall --agent alice billing -k -1", "-1 is not in the range"),
        ("recall --agent alice billing -k many", "'many' is not a valid integer"),
        ("recall --agent {a} billing", "holds a brace"),
        ("memory show 0 --agent alice", "0 is not in the range"),
        ("memory forget --agent alice", "Name either --provenance PREFIX or --exact"),
        ("memory forget --agent alice --exact a --provenance b", "Name either"),
        ("memory decay --agent alice --salience-floor 2", "2.0 is not in the range"),
        ("dead replay", "Name one ID, or --all"),
        ("dead replay 1-0 --all", "Name one ID, or --all"),
        ("consolidation set enabled on", "Use `enable` and `disable`"),
        ("consolidation run --agent alice --here --no-wait", "leave out --no-wait"),
        ("demo --lang fr", "'fr' is not one of"),
    ],
)
def test_wrong_usage_is_exit_code_2(remq: Remq, line: str, says: str) -> None:
    done = remq(*line.split())
    assert done.code == 2
    assert says in done.err
    assert done.out == ""
