"""Reading what a model said. Nothing here invents content: it is taken, dropped or refused.

Lists (metadata, connections), in this order:

| the answer is                                          | and then                             |
| ------------------------------------------------------ | ------------------------------------ |
| nothing, or longer than 1,000,000 characters           | error                                |
| JSON as a whole                                        | read as it is                        |
| text with reasoning blocks                             | they go first; one never closed: error |
| ``` fences, prose or brackets around JSON              | the last list of rows in it          |
| an object that wraps one list of rows, or an empty one | that list                            |
| a list that holds nothing but one list                 | the inner list                       |
| another object, a list of other things, broken JSON    | error                                |

A row is an object with an `id` (metadata) or a `from_id` (connections). An id may be written 12,
12.0, "12", "#12" or "[#12]"; true, null and ids outside the window are not ids. A wrong row is
dropped, the others stand. Of rows about the same id the first counts. A name is a text, a number or
an object with a `name`; a lone text may stand for a list of one.

Insights: the reasoning goes (see `worker.sleep.reasoning`), then fences, labels, quotation marks
and emphasis; what is left is the sentence, on one line. What cannot be told apart from reasoning,
nothing at all, more than 1,000 characters, JSON other than a text or an object with one text, and a
refusal are errors. Less than 10 characters, or word that there is no pattern, is no insight, and no
failure either: NoInsight.

An error is an AnswerError, whose sentence quotes nothing of the answer.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from worker.errors import AnswerError, NoInsight
from worker.sleep import reasoning
from worker.sleep.model import MAX_ENTITIES, MAX_TOPICS, Connection, Metadata

MAX_ANSWER = 1_000_000
MAX_NAME = 64
MAX_RELATIONSHIP = 120
MIN_INSIGHT = 10
#: One or two sentences are far shorter; what is longer is an essay, and is not cut into a sentence.
MAX_INSIGHT = 1000
#: Places in a text from which JSON is tried, so that a hostile answer costs a bounded time.
MAX_STARTS = 64

Row = dict[str, Any]


def read_metadata(text: str, ids: Collection[int]) -> dict[int, Metadata]:
    """Read entities (at most 6) and topics (at most 4) by item, for items in `ids` alone.

    Raises AnswerError where the answer is no list of objects.
    """
    found: dict[int, Metadata] = {}
    for row in _rows(text, "id"):
        item_id = _id(row.get("id"))
        if item_id in ids and item_id not in found:
            entities = tuple(_names(row.get("entities"), MAX_ENTITIES))
            topics = tuple(_names(row.get("topics"), MAX_TOPICS))
            if entities or topics:
                found[item_id] = Metadata(entities, topics)
    return found


def read_connections(text: str, ids: Collection[int], limit: int) -> tuple[Connection, ...]:
    """Read the first `limit` connections between two different items of `ids`.

    Rows with another id, a link to itself, an empty relationship, or a repeat are dropped. Raises
    AnswerError where the answer is no list of objects.
    """
    found: dict[Connection, None] = {}
    for row in _rows(text, "from_id"):
        if len(found) >= limit:
            break
        from_id, to_id = _id(row.get("from_id")), _id(row.get("to_id"))
        relationship = row.get("relationship")
        if from_id not in ids or to_id not in ids or from_id == to_id:
            continue
        if isinstance(relationship, str) and (phrase := clean(relationship, MAX_RELATIONSHIP)):
            found[Connection(from_id, to_id, phrase)] = None
    return tuple(found)


def read_insight(text: str) -> str:
    """Read the sentence, on one line.

    Raises NoInsight where the model says there is none or says less than 10 characters, AnswerError
    where none can be read or it cannot be told apart from reasoning.
    """
    _check_size(text)
    said = _sentence_in_json(reasoning.without_blocks(text).strip("\ufeff \t\r\n"))
    said = reasoning.without_steps(reasoning.unfenced(said))
    said = _line(reasoning.bare(said))
    if reasoning.says_nothing(said):
        raise NoInsight("the model found no pattern")
    if not said:
        raise AnswerError("an answer without a sentence")
    if len(said) < MIN_INSIGHT:
        raise NoInsight(f"shorter than {MIN_INSIGHT} characters")
    if len(said) > MAX_INSIGHT:
        raise AnswerError("an essay where one or two sentences belong")
    if reasoning.is_refusal(said):
        raise AnswerError("the model declined to answer")
    return said


def clean(text: str, most: int) -> str:
    """Put a text on one line without control characters, at most `most` characters long.

    Empty where it has neither a letter nor a digit.
    """
    line = _line(text)
    if not any(letter.isalnum() for letter in line):
        return ""  # Nothing said: the example's own "..." comes back from models that copy it.
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


#: Control characters, halves of surrogate pairs, and marks that turn the reading direction round.
_UNPRINTED = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


def _line(text: str) -> str:
    return " ".join(_UNPRINTED.sub(" ", text).split())


def _check_size(text: str) -> None:
    if not text.strip():
        raise AnswerError("an empty answer")
    if len(text) > MAX_ANSWER:
        raise AnswerError(f"an answer of more than {MAX_ANSWER:,} characters")


def _rows(text: str, key: str) -> list[Row]:
    """Find the objects with a field `key` in the list that the answer is."""
    _check_size(text)
    try:
        return _list(_parsed(text), key)
    except RecursionError:
        raise AnswerError("JSON nested too deeply") from None


def _parsed(text: str) -> list[Any]:
    """Find the JSON values in a text that may be the answer, in their order."""
    whole = text.strip("\ufeff \t\r\n")
    try:
        return [_load(whole)]
    except ValueError:
        found = list(_embedded(reasoning.without_blocks(whole)))
    if not found:
        raise AnswerError("no JSON in the answer, or it is malformed")
    return found


def _load(text: str) -> Any:
    return json.loads(text, strict=False)


def _embedded(text: str) -> Iterator[Any]:
    """Each JSON list or object that stands in a text, outermost ones only."""
    decoder = json.JSONDecoder(strict=False)
    at = 0
    for _ in range(MAX_STARTS):
        start = _OPENING.search(text, at)
        if start is None:
            return
        try:
            value, at = decoder.raw_decode(text, start.start())
        except ValueError:
            at = start.end()
        else:
            yield value


_OPENING = re.compile(r"[\[{]")


def _list(values: list[Any], key: str) -> list[Row]:
    """Choose the last list of rows among `values`, else an empty list among them."""
    fault = "a single object where a list belongs"
    empty = False
    for value in reversed(values):
        rows = _unwrapped(value, key)
        if isinstance(rows, list):
            kept = [row for row in rows if isinstance(row, dict) and key in row]
            if kept:
                return kept
            empty = empty or not rows
            fault = "a list of something else than asked for"
    if empty:
        return []
    if not any(isinstance(value, dict | list) for value in values):
        fault = "neither a list nor an object"
    raise AnswerError(fault)


def _unwrapped(value: Any, key: str) -> Any:
    """Take the list that an object wraps, or the only list in a list; others as they are."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        return value[0]
    if isinstance(value, dict) and key not in value:
        lists = [inner for inner in value.values() if isinstance(inner, list)]
        if len(lists) == 1:
            return lists[0]
    return value


_ID = re.compile(r"\s*\[?\s*#?([0-9]{1,18})\s*\]?\s*", re.ASCII)


def _id(value: object) -> int:
    """Read the id that a value means; -1, which no item has, where it means none."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and (match := _ID.fullmatch(value)):
        return int(match[1])
    return -1


def _names(value: object, most: int) -> Iterator[str]:
    """Yield the first `most` different names in a list, each short and clean."""
    seen: set[str] = set()
    for entry in value if isinstance(value, list) else [value]:
        name = clean(_name(entry), MAX_NAME)
        if name and name.casefold() not in seen and len(seen) < most:
            seen.add(name.casefold())
            yield name


def _name(entry: object) -> str:
    if isinstance(entry, dict):
        entry = entry.get("name")
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return str(entry)
    return entry if isinstance(entry, str) else ""


_JSON_START = re.compile(r'```json|\{|\[\s*(?:[{\]\["]|$)|"')


def _sentence_in_json(text: str) -> str:
    """Take a text out of JSON; any other text comes back as it is."""
    if not _JSON_START.match(text):
        return text
    try:
        texts = _texts(_load(reasoning.unfenced(text)))
    except (ValueError, RecursionError):
        texts = [text] if text.startswith('"') else []
    if len(texts) != 1:
        raise AnswerError("JSON where a sentence belongs")
    return texts[0]


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        values: Iterable[Any] = value.values() if len(value) == 1 else ()
    else:
        values = (value,)
    return [text for text in values if isinstance(text, str)]
