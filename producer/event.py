"""The event: what an agent hands over to be remembered, and every rule it must keep.

On the stream an event is flat fields of UTF-8 text; docs/data-model.md shows them. Whoever
builds an `Event`, an agent before it sends or the writer when it reads, applies the same checks.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

EPISODIC: Final = "episodic"
DURABLE: Final = "durable"
#: What a memory weighs when its event names no salience.
SALIENCE: Final[Mapping[str, float]] = {DURABLE: 1.0, EPISODIC: 0.6}

AGENT_CHARACTERS: Final = 128
TEXT_BYTES: Final = 65_536
KIND_CHARACTERS: Final = 32
PROVENANCE_CHARACTERS: Final = 256
EVENT_ID_CHARACTERS: Final = 128
#: Seconds up to the year 5138; in milliseconds the same number is a day of 1973.
TS_LIMIT: Final = 1e11

#: The kind of what a pass writes, and how the provenance of it begins.
INSIGHT_KIND: Final = "insight"
INSIGHT_PROVENANCE: Final = "consolidation:"

#: A fraction, Unix seconds, or an RFC 3339 time; all become floats.
Number = float | str
Time = float | str | datetime
#: A stream entry as redis-py reads it, decoded or not.
Fields = Mapping[bytes, Any] | Mapping[str, Any] | Mapping[bytes | str, Any]

_QUOTED_CHARACTERS = 40
#: What a refusal may quote: refusals are logged, and a memory's text may stand in the wrong field.
_QUOTABLE = re.compile(rf"[!-~]{{0,{_QUOTED_CHARACTERS}}}")
_NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})(e[+-]?\d{1,4})?", re.ASCII | re.I)
_NO_AGENT = re.compile(r"\s|[{}]")
#: Control characters, and halves of surrogate pairs, which UTF-8 cannot write.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TIME_WANTED = "it must be Unix seconds or an RFC 3339 time such as 2026-07-01T09:30:00Z"


class EventError(ValueError):
    """An event is refused; the message says what is wrong and what is wanted, never the text.

    `field` names the field at fault.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.field} {self.problem}"


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One thing to remember.

    - `agent`: whose memory; 1-128 printable characters without white space or braces
    - `text`: what to remember; 1-65,536 bytes of UTF-8, not blank, kept as it is
    - `tier`: `episodic` (what happened) or `durable` (facts, preferences, decisions, skills)
    - `kind`: 1-32 printable characters; any but `insight`
    - `provenance`: where it comes from; 1-256 characters without control characters
    - `salience`: 0 to 1; None: by tier, see `SALIENCE`
    - `ts`: when it happened; None: when the event arrives
    - `expires_at`: when to forget it, later than `ts`; None: never
    - `event_id`: idempotency key, 1-128 printable characters: equal ids are stored once

    Times may be given as Unix seconds, RFC 3339 text with a time zone, or an aware datetime, and
    numbers as text; what is kept are floats, in Unix seconds. Raises EventError.
    """

    agent: str
    text: str = dataclasses.field(repr=False)
    tier: str = EPISODIC
    kind: str = "note"
    provenance: str = "agent"
    salience: float | None = None
    ts: float | None = None
    expires_at: float | None = None
    event_id: str | None = None

    if TYPE_CHECKING:
        # What may be given is wider than what is kept.
        def __init__(  # noqa: PLR0913, PLR0917 - one for each field
            self,
            agent: str,
            text: str,
            tier: str = EPISODIC,
            kind: str = "note",
            provenance: str = "agent",
            salience: Number | None = None,
            ts: Time | None = None,
            expires_at: Time | None = None,
            event_id: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_agent(self.agent)
        _check_text(self.text)
        _check_tier(self.tier)
        _check_kind(self.kind)
        _check_provenance(self.provenance)
        object.__setattr__(self, "salience", _salience(self.salience))
        object.__setattr__(self, "ts", _seconds("ts", self.ts))
        object.__setattr__(self, "expires_at", _seconds("expires_at", self.expires_at))
        if self.ts is not None and self.expires_at is not None and self.expires_at <= self.ts:
            raise EventError("expires_at", "is not later than ts: a memory expires after it begins")
        if self.event_id is not None:
            _check_event_id(self.event_id)

    def fields(self) -> dict[str, str]:
        """Write the event as stream fields; what is None is left out."""
        kept = ((name, getattr(self, name)) for name in NAMES)
        return {
            name: repr(value) if isinstance(value, float) else value
            for name, value in kept
            if value is not None
        }

    @classmethod
    def from_fields(
        cls, fields: Fields, *, arrived: float | None = None, entry_id: str | None = None
    ) -> "Event":
        """Read an event off the stream; unknown fields are ignored, see `unknown_fields`.

        `arrived` (Unix seconds) and `entry_id` are those of the stream entry: they stand in for
        an absent `ts` and `event_id`, and an event that expired by then is refused. An optional
        field that is empty counts as absent. Raises EventError.
        """
        values = _decoded(fields)
        for name in _REQUIRED:
            if name not in values:
                raise EventError(name, _missing(name, fields))
        expires_at = values["expires_at"] = _seconds("expires_at", values.get("expires_at"))
        if arrived is not None and expires_at is not None and expires_at <= arrived:
            raise EventError(
                "expires_at",
                "had already passed when the event arrived: send a later time, or none",
            )
        values.setdefault("ts", arrived)
        values.setdefault("event_id", entry_id)
        return cls(**values)


#: The contract's fields, in the order they are sent.
NAMES: Final = tuple(one.name for one in dataclasses.fields(Event))
#: The same by what stands on the stream, decoded or not; bytes first, for the writer reads those.
_NAME_OF: Final[Mapping[object, str]] = {
    key: name for name in NAMES for key in (name.encode(), name)
}
_REQUIRED: Final = {
    "agent": "every event names the agent whose memory it is",
    "text": "every event says what is to be remembered",
}


def unknown_fields(fields: Fields) -> tuple[str, ...]:
    """Name the fields that are none of the contract's; bad bytes in a name come escaped."""
    return tuple(_name(key) for key in fields if key not in _NAME_OF)


def _name(key: bytes | str) -> str:
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else key


def _decoded(fields: Fields) -> dict[str, Any]:
    """Read the contract's fields as text; absent and empty optional ones are left out."""
    values: dict[str, Any] = {}
    for key, value in fields.items():
        name = _NAME_OF.get(key)
        if name is None or value is None:
            continue
        # A shell that fills in a variable often sends an empty one.
        if not value and name not in _REQUIRED and isinstance(value, bytes | str):
            continue
        values[name] = _text(name, value) if isinstance(value, bytes) else value
    return values


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        problem = "is not valid UTF-8: encode it as UTF-8 before it is sent"
        raise EventError(name, problem) from None


def _missing(name: str, fields: Fields) -> str:
    problem = f"is missing: {_REQUIRED[name]}"
    values = list(fields.values())
    if len(values) == 1 and _opens_json(values[0]):
        problem += "; fields stand side by side on the stream, not inside one JSON value"
    return problem


def _opens_json(value: object) -> bool:
    if isinstance(value, bytes):
        return value.lstrip().startswith(b"{")
    return isinstance(value, str) and value.lstrip().startswith("{")


def check_agent(agent: str) -> None:
    """Raise EventError unless this can be an agent's name."""
    _check_length("agent", agent, AGENT_CHARACTERS)
    if agent.isprintable() and not _NO_AGENT.search(agent):
        return
    quoted = f"{agent!r} " if _QUOTABLE.fullmatch(agent) else ""
    if "{" in agent or "}" in agent:
        raise EventError("agent", f"{quoted}holds a brace: name it without {{ and }}")
    if _NO_AGENT.search(agent):
        raise EventError("agent", f"{quoted}holds white space: name it without, e.g. with a hyphen")
    raise EventError("agent", f"{quoted}holds a character that does not print: name it without")


def _check_text(text: str) -> None:
    _check_string("text", text)
    if not text:
        raise EventError("text", f"is empty: {_REQUIRED['text']}")
    if text.isspace():
        raise EventError("text", f"is blank: {_REQUIRED['text']}")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        problem = "holds half of a surrogate pair, which UTF-8 cannot write: send whole characters"
        raise EventError("text", problem) from None
    if size > TEXT_BYTES:
        raise EventError(
            "text", f"is {size:,} bytes of UTF-8, more than {TEXT_BYTES:,}: send a summary"
        )


def _check_tier(tier: str) -> None:
    _check_string("tier", tier)
    if tier in SALIENCE:
        return
    if tier.lower() == "working":
        raise EventError(
            "tier", "'working' never leaves the agent's own process: send episodic or durable"
        )
    if tier.lower() in SALIENCE:
        raise EventError("tier", f"is {tier!r}: write it in lower case, {tier.lower()}")
    raise EventError("tier", f"is {_said(tier)}: it must be episodic or durable")


def _check_kind(kind: str) -> None:
    _check_length("kind", kind, KIND_CHARACTERS)
    if not kind.isprintable() or kind != kind.strip():
        raise EventError(
            "kind", "must be printable characters without white space around them, e.g. decision"
        )
    if kind == INSIGHT_KIND:
        raise EventError("kind", "'insight' is remq's own: choose another, e.g. fact")


def _check_provenance(provenance: str) -> None:
    _check_length("provenance", provenance, PROVENANCE_CHARACTERS)
    if _CONTROL.search(provenance):
        raise EventError(
            "provenance", "holds a control character: name the source in plain text, e.g. user:42"
        )
    if provenance.startswith(INSIGHT_PROVENANCE):
        raise EventError(
            "provenance", f"begins with '{INSIGHT_PROVENANCE}', which is remq's own: choose another"
        )


def _check_event_id(event_id: str) -> None:
    _check_length("event_id", event_id, EVENT_ID_CHARACTERS)
    if not event_id.isprintable():
        raise EventError(
            "event_id", "holds a character that does not print: use e.g. a UUID or a hash"
        )


def _check_string(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise EventError(name, f"is of type {type(value).__name__}: it must be a string")


def _check_length(name: str, value: str, most: int) -> None:
    if isinstance(value, str) and 0 < len(value) <= most:
        return
    _check_string(name, value)
    if not value:
        raise EventError(name, f"is empty: it must be 1 to {most} characters")
    raise EventError(name, f"is {len(value):,} characters long: it must be 1 to {most}")


def _salience(value: Number | None) -> float | None:
    if value is None:
        return None
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        raise EventError("salience", f"is {_said(value)}: it must be a number from 0 to 1")
    return number


def _seconds(name: str, value: Time | None) -> float | None:
    """Read a time, in any form it may be given in, as Unix seconds."""
    if value is None:
        return None
    number = None if isinstance(value, datetime) else _number(value)
    if number is None:
        return _from_calendar(name, value)
    if number < 0:
        raise EventError(name, f"is {_said(value)}: a time before 1970 cannot be stored")
    if number >= TS_LIMIT:
        unit, per_second = _unit(number)
        raise EventError(
            name,
            f"is {_said(value)}, which looks like {unit}: divide it by {per_second} "
            "to get Unix seconds",
        )
    return number


def _from_calendar(name: str, value: Time) -> float:
    """Read an RFC 3339 text or a datetime as Unix seconds."""
    moment = value
    if isinstance(value, str):
        with suppress(ValueError):
            # RFC 3339 allows a small t and z; datetime does not.
            moment = datetime.fromisoformat(value.upper())
    if not isinstance(moment, datetime):
        raise EventError(name, f"is {_said(value)}: {_TIME_WANTED}")
    if isinstance(value, str) and ":" not in value:
        raise EventError(name, f"is a day without a time of day: {_TIME_WANTED}")
    if moment.utcoffset() is None:
        raise EventError(name, "has no time zone: add Z, or an offset such as +08:00")
    seconds = moment.timestamp()
    if not 0 <= seconds < TS_LIMIT:
        raise EventError(name, "cannot be stored: it must lie between the years 1970 and 5138")
    return seconds


def _unit(number: float) -> tuple[str, str]:
    """Name the unit that makes this number a time of today, and how many make a second."""
    if number < TS_LIMIT * 1e3:
        return "milliseconds", "1,000"
    if number < TS_LIMIT * 1e6:
        return "microseconds", "1,000,000"
    return "nanoseconds", "1,000,000,000"


def _number(value: object) -> float | None:
    """Read a finite number, also from text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    # Adding zero turns -0.0 into 0.0.
    return number + 0.0 if math.isfinite(number) else None


def _said(value: object) -> str:
    """Describe a value as a refusal may: quoted if short, on one line."""
    if isinstance(value, str):
        if _QUOTABLE.fullmatch(value):
            return repr(value)
        return f"a text of {len(value):,} characters"
    if isinstance(value, int | float):
        short = isinstance(value, float) or abs(value) < 10**_QUOTED_CHARACTERS
        return repr(value) if short else "far out of range"
    return f"of type {type(value).__name__}"
