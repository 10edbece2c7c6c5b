"""`remq dead`: events that were refused, and why."""

import click
from rich.markup import escape
from rich.table import Table

from worker.cli.session import Session, json_option, out, print_json, print_lines
from worker.dead import DeadLetters
from worker.keys import Keys


@click.group(
    epilog="""\b
Examples:
  remq dead list
  remq dead replay 1767000000000-0
  remq dead purge --yes"""
)
def dead() -> None:
    """Look at refused events, send them again, or remove them."""


def _letters() -> DeadLetters:
    session = Session()
    return DeadLetters(session.client, Keys(session.settings.prefix), session.settings.dead_max)


@dead.command("list", epilog="\b\nExample:\n  remq dead list --json")
@json_option
def list_letters(as_json: bool) -> None:
    """Every refused event with its reason, oldest first."""
    letters = _letters().list()
    if as_json:
        print_lines(letter.public() for letter in letters)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("id")
    table.add_column("agent")
    table.add_column("reason", overflow="fold", ratio=1)
    for letter in letters:
        agent = letter.fields.get(b"agent", b"").decode("utf-8", "backslashreplace")
        table.add_row(letter.id, escape(agent[:40]), escape(letter.reason))
    out.print(table if table.row_count else "No dead letters.")


@dead.command(epilog="\b\nExamples:\n  remq dead replay 1767000000000-0\n  remq dead replay --all")
@click.argument("letter_id", required=False, metavar="[ID]")
@click.option("--all", "every", is_flag=True, help="Send all of them again.")
@json_option
def replay(letter_id: str | None, every: bool, as_json: bool) -> None:
    """Send refused events again, under their own event ids."""
    if bool(letter_id) == every:
        raise click.UsageError("Name one ID, or --all.")
    letters = _letters()
    whole = (letter for letter in letters.list() if not letter.cut)
    chosen = whole if every else [letters.find(str(letter_id))]
    sent = {letter.id: letters.replay(letter) for letter in chosen}
    letters.drop(set(sent))
    if as_json:
        print_json({"replayed": len(sent), "entries": sent})
    else:
        out.print(f"Sent {len(sent)} again; the writer checks them anew.")


@dead.command(epilog="\b\nExample:\n  remq dead purge --yes")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def purge(yes: bool, as_json: bool) -> None:
    """Remove all refused events."""
    letters = _letters()
    if not yes:
        click.confirm(f"Remove {letters.count()} dead letters for good?", abort=True, err=True)
    removed = letters.purge()
    if as_json:
        print_json({"removed": removed})
    else:
        out.print(f"Removed {removed}.")
