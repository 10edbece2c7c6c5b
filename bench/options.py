"""What the command lines of the measurements have in common."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleRenderable

from bench.machine import Facts, line

#: Columns of what is printed; a file or a pipe has none of its own.
WIDTH = 100


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """Make the parser of `python -m <name>`; all of them take --json."""
    made = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    return made


def show(
    machine: Facts,
    results: Mapping[str, Any],
    tables: Sequence[ConsoleRenderable],
    *,
    as_json: bool,
) -> None:
    """Print the tables under the machine's facts, or `results` beside them as one JSON object."""
    if as_json:
        print(json.dumps({"machine": machine, **results}))
        return
    console = Console(highlight=False, width=WIDTH)
    console.print(line(machine), soft_wrap=True)
    for table in tables:
        console.print()
        console.print(table)
