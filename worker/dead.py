"""Dead letters: events that were refused, with the reason in words."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from worker.batch import arrival
from worker.connect import Client
from worker.errors import MemoryNotFound, RemqError
from worker.keys import Keys

#: A value longer than an event may have can never be stored, so its beginning is enough to know it.
LONGEST_VALUE = 65_536
CUT_TO = 200
PAGE = 100

_REASON = b"_reason"
_ENTRY = b"_entry"
_CUT = b"_cut"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A refused event. `id` is its entry in the events stream, by which doubles are told apart."""

    id: str
    reason: str
    fields: dict[bytes, bytes] = field(repr=False)
    #: Whether a value was too long to be kept whole.
    cut: bool = False

    def public(self) -> dict[str, object]:
        """The shape of `dead list --json`; bytes that are no text are shown as escapes."""
        shown = {_text(name): _text(value) for name, value in self.fields.items()}
        return {"id": self.id, "reason": self.reason, "fields": shown}


class DeadLetters:
    """The stream of refused events, bounded by length and age."""

    def __init__(self, client: Client, keys: Keys, longest: int) -> None:
        self.client = client
        self.keys = keys
        self.longest = longest

    def add(self, entry_id: bytes, fields: Mapping[bytes, bytes], reason: str) -> None:
        """Record a refused event; safe to repeat, since readers tell doubles apart by the entry."""
        row = {name[:LONGEST_VALUE]: _bounded(value) for name, value in fields.items()}
        row[_REASON] = reason.encode()
        row[_ENTRY] = entry_id
        if any(len(value) > LONGEST_VALUE for value in fields.values()):
            row[_CUT] = b"1"
        self.client.xadd(self.keys.dead, row, maxlen=self.longest, approximate=True)

    def list(self) -> Iterator[DeadLetter]:
        """Every dead letter once, oldest first; none that comes up while it is read."""
        known: set[str] = set()
        for place, row in self._rows():
            letter = _letter(place, row)
            if letter.id not in known:
                known.add(letter.id)
                yield letter

    def count(self) -> int:
        """How many entries the stream has."""
        return int(self.client.xlen(self.keys.dead))

    def find(self, letter_id: str) -> DeadLetter:
        """One dead letter by its id. Raises MemoryNotFound."""
        for letter in self.list():
            if letter.id == letter_id:
                return letter
        raise MemoryNotFound(f"There is no dead letter {letter_id}; `remq dead list` shows them.")

    def replay(self, letter: DeadLetter) -> str:
        """Send a refused event again under its own event id, so that it cannot be stored twice.

        What it left out is as it was when it first arrived: the time, and the entry's id as its
        event id. The letter stays until it is dropped; the new entry's id. Raises RemqError for one
        that was too long to be kept whole: what is left of it is not what was sent.
        """
        if letter.cut:
            raise RemqError(f"Dead letter {letter.id} was too long to be kept whole; emit it anew.")
        fields = {**letter.fields}
        first = letter.id.encode()
        if not fields.get(b"event_id"):
            fields[b"event_id"] = first
        if not fields.get(b"ts"):
            fields[b"ts"] = repr(arrival(first, time.time())).encode()
        entry: bytes = self.client.xadd(self.keys.events, fields)
        return entry.decode()

    def drop(self, ids: set[str]) -> None:
        """Remove the dead letters of these ids, doubles included."""
        places = [place for place, row in self._rows() if _letter(place, row).id in ids]
        for start in range(0, len(places), PAGE):
            self.client.xdel(self.keys.dead, *places[start : start + PAGE])

    def purge(self) -> int:
        """Remove them all; how many entries."""
        return int(self.client.xtrim(self.keys.dead, maxlen=0, approximate=False))

    def forget_older(self, before: float) -> int:
        """Remove those recorded before `before` (Unix seconds); how many entries."""
        oldest = f"{int(before * 1000)}-0"
        return int(self.client.xtrim(self.keys.dead, minid=oldest, approximate=False))

    def _rows(self) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
        """The stream's entries up to what is the last one now, read page by page.

        Without that end, replaying them all would meet those refused again, and go on for ever.
        """
        newest = self.client.xrevrange(self.keys.dead, count=1)
        start = b"-"
        while newest:
            page = self.client.xrange(self.keys.dead, start, newest[0][0], PAGE)
            yield from page
            if len(page) < PAGE:
                return
            start = b"(" + page[-1][0]


def _letter(place: bytes, row: dict[bytes, bytes]) -> DeadLetter:
    fields = {name: value for name, value in row.items() if name not in {_REASON, _ENTRY, _CUT}}
    entry = row.get(_ENTRY, place).decode()
    return DeadLetter(entry, _text(row.get(_REASON, b"")), fields, cut=_CUT in row)


def _bounded(value: bytes) -> bytes:
    return value if len(value) <= LONGEST_VALUE else value[:CUT_TO] + b"... (cut)"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
