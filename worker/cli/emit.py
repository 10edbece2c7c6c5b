"""`remq emit`: one event, or JSON lines from standard input."""

import codecs
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import click
from redis.exceptions import RedisError
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from producer import Event, EventError, emit_many
from producer import emit as send
from producer.event import NAMES, TEXT_BYTES, check_agent
from worker.cli.session import Session, err, json_option, out, print_json

#: Events sent in one round trip.
BATCH = 500
#: Refused lines told one by one; after that they are only counted.
TOLD = 20
#: A line longer than this holds no event: six bytes is the longest JSON writes of a byte of text.
LINE_BYTES = TEXT_BYTES * 6 + 65_536


@dataclass(slots=True)
class Outcome:
    """What became of the lines: how many were taken, and which were refused and why."""

    taken: int = 0
    refused: int = 0
    unknown_fields: int = 0
    reasons: list[dict[str, object]] = field(default_factory=list)

    def refuse(self, number: int, reason: str) -> None:
        """Note a refused line."""
        self.refused += 1
        if len(self.reasons) < TOLD:
            self.reasons.append({"line": number, "reason": reason})


@click.command(
    epilog="""\b
Examples:
  remq emit --agent alice "Paris office moves in May"
  remq emit --agent alice --tier durable --kind decision "Freeze starts on the 26th"
  remq emit - --agent alice < events.jsonl

A line is a JSON object with the event's fields: agent, text, tier, kind, provenance, salience, ts,
expires_at, event_id. Sending the same file again stores nothing twice."""
)
@click.option("--agent", help="Whose memory; with - it fills in a missing one.")
@click.option("--tier", help="episodic (default) or durable.")
@click.option("--kind", help="note (default), fact, preference, decision, skill, or your own.")
@click.option("--provenance", help="Where it comes from, e.g. user:42; default agent.")
@click.option("--salience", help="0 to 1; default by tier.")
@click.option("--ts", help="When it happened: Unix seconds or RFC 3339; default now.")
@click.option("--expires-at", help="When to forget it: Unix seconds or RFC 3339; default never.")
@click.option("--event-id", help="Idempotency key: equal ids are stored once.")
@json_option
@click.argument("text")
def emit(text: str, as_json: bool, **given: str | None) -> None:
    """Send one event, or with - JSON lines from standard input."""
    fields = {name: value for name, value in given.items() if value is not None}
    if text == "-":
        _emit_lines(fields, as_json)
    else:
        _emit_one(text, fields, as_json)


def _emit_one(text: str, fields: dict[str, str], as_json: bool) -> None:
    if "agent" not in fields:
        raise click.UsageError("Say whose memory it is: --agent NAME.")
    event = Event.from_fields({"text": text, **fields})
    session = Session()
    entry = send(session.client, event, prefix=session.settings.prefix)
    entry_id = entry.decode() if isinstance(entry, bytes) else str(entry)
    if as_json:
        print_json({"taken": 1, "refused": 0, "entry": entry_id})
    else:
        out.print(f"Sent as {entry_id}.")


def _emit_lines(fields: dict[str, str], as_json: bool) -> None:
    _refuse_single_fields(fields)
    agent = fields.get("agent")
    if agent is not None:
        check_agent(agent)
    session = Session()
    outcome = Outcome()
    try:
        _send_all(session, agent, _standard_input(), outcome)
    except RedisError:
        err.print(f"{outcome.taken} were taken before; sent again, they are stored once.")
        raise
    _tell(outcome, as_json)
    if outcome.refused:
        raise click.exceptions.Exit(1)


def _refuse_single_fields(fields: dict[str, str]) -> None:
    others = [name for name in fields if name != "agent"]
    if others:
        names = ", ".join("--" + name.replace("_", "-") for name in others)
        raise click.UsageError(f"With - each line brings its own fields; leave out {names}.")


def _send_all(session: Session, agent: str | None, lines: BinaryIO, outcome: Outcome) -> None:
    batch: list[Event] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("Sending", total=None)
        for event in _events(lines, agent, outcome):
            batch.append(event)
            if len(batch) == BATCH:
                _send(session, batch, outcome)
                progress.update(
                    task, description=f"{outcome.taken} taken, {outcome.refused} refused"
                )
        _send(session, batch, outcome)


def _send(session: Session, batch: list[Event], outcome: Outcome) -> None:
    if batch:
        emit_many(session.client, batch, prefix=session.settings.prefix)
        outcome.taken += len(batch)
        batch.clear()


def _events(lines: BinaryIO, agent: str | None, outcome: Outcome) -> Iterator[Event]:
    number = 0
    while raw := lines.readline(LINE_BYTES):
        number += 1
        if len(raw) == LINE_BYTES and not raw.endswith(b"\n"):
            _skip_rest(lines)
            outcome.refuse(number, "is longer than an event can be")
            continue
        # Some editors put a byte order mark before the first line; it is none of the event.
        line = raw.removeprefix(codecs.BOM_UTF8).strip()
        if not line:
            continue
        try:
            row = _object(line)
            yield _event(row, line, number, agent)
        except (EventError, _LineError) as error:
            outcome.refuse(number, str(error))
        else:
            outcome.unknown_fields += len(row.keys() - set(NAMES))


def _standard_input() -> BinaryIO:
    if sys.stdin is None:  # Closed by whoever started us.
        raise click.UsageError("There is no standard input to read lines from.")
    return sys.stdin.buffer


class _LineError(Exception):
    """A line is no event."""


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError:
        raise _LineError("is not valid UTF-8") from None
    except (ValueError, RecursionError):
        raise _LineError("is no JSON") from None
    if not isinstance(row, dict):
        raise _LineError("is no JSON object")
    return row


def _event(row: dict[str, Any], line: bytes, number: int, agent: str | None) -> Event:
    fields: dict[str, Any] = {name: row[name] for name in NAMES if row.get(name) is not None}
    if agent is not None:
        fields.setdefault("agent", agent)
    # From the line and its number: the same file again doubles nothing, equal lines stay two.
    if fields.get("event_id", "") == "":
        fields["event_id"] = _line_id(line, number, str(fields.get("agent")))
    return Event.from_fields(fields)


def _line_id(line: bytes, number: int, agent: str) -> str:
    whole = b"\0".join((str(number).encode(), agent.encode("utf-8", "replace"), line))
    return f"line:{number}:{hashlib.sha256(whole).hexdigest()[:32]}"


def _skip_rest(lines: BinaryIO) -> None:
    while (rest := lines.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _tell(outcome: Outcome, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "taken": outcome.taken,
                "refused": outcome.refused,
                "unknown_fields": outcome.unknown_fields,
                "refusals": outcome.reasons,
            }
        )
        return
    for refusal in outcome.reasons:
        err.print(f"line {refusal['line']}: {refusal['reason']}", markup=False)
    if outcome.refused > TOLD:
        err.print(f"and {outcome.refused - TOLD} more")
    left_out = (
        f", {outcome.unknown_fields} unknown fields left out" if outcome.unknown_fields else ""
    )
    out.print(f"{outcome.taken} taken, {outcome.refused} refused{left_out}.")
