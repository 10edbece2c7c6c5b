"""What a pass asks of a model, and what it gets back."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """The three questions of a pass, in their order."""

    METADATA = "metadata"
    CONNECTIONS = "connections"
    INSIGHT = "insight"


@dataclass(frozen=True, slots=True)
class WindowItem:
    """One memory as a model sees it.

    `id` is the item's number within its agent, `ts` Unix seconds. `entities` and `topics` are what
    the metadata step of the same pass (or an earlier one) found; empty before.
    """

    id: int
    text: str
    kind: str
    ts: float
    entities: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


#: The most names and tags that one memory gets.
MAX_ENTITIES = 6
MAX_TOPICS = 4


@dataclass(frozen=True, slots=True)
class Metadata:
    """What is named in one memory (at most 6 entities) and what it is about (2 to 4 topics)."""

    entities: tuple[str, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Connection:
    """A directed, non-obvious relation between two memories of one window."""

    from_id: int
    to_id: int
    relationship: str


@dataclass(frozen=True, slots=True)
class Question:
    """One step's question about a window.

    `items` are newest first. `connections` (for the insight) are those the same pass found.
    `limit` is the most connections wanted; at least 1.
    """

    step: Step
    items: tuple[WindowItem, ...]
    connections: tuple[Connection, ...] = ()
    limit: int = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, word for word, and what it cost (0 tokens where unknown)."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Model(Protocol):
    """Something that answers the questions of a pass.

    `name` is what status, reports and `enable` show: `offline`, or `<model> at <base URL>`
    without credentials.
    """

    @property
    def name(self) -> str:
        """What status, reports and `enable` show."""
        ...

    def ask(self, question: Question, *, deadline_s: float) -> Answer:
        """Answer within `deadline_s` seconds in all, or raise ModelError."""
        ...
