"""Emit events and recall memories.

`emit` and `emit_many` take a synchronous or an asyncio client of redis-py. `Memory` is one
agent's memory as a synchronous agent uses it. redis-py is imported where a connection is made:
it takes longer to load than all the rest.
"""

import inspect
import json
import math
import os
import time
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

from producer import keys
from producer.connect import connect
from producer.event import DURABLE, EPISODIC, Event, Number, Time, check_agent

if TYPE_CHECKING:
    from redis import Redis, RedisCluster
    from redis import asyncio as aio

    SyncClient = Redis | RedisCluster
    AsyncClient = aio.Redis | aio.RedisCluster

#: The longest one BLPOP waits: below any usual socket time-out, so that waiting is no fault.
BLOCK_S = 1.0
#: The shortest: a server may round less to 0, which means for ever.
LEAST_BLOCK_S = 0.01

_UNREADABLE = "the recaller's answer cannot be read: are agent and recaller of one version?"


class RecallError(Exception):
    """A recall got no answer, or a refusal; the message is the sentence a person reads."""


class Details(TypedDict, total=False):
    """What may be said about an event besides its agent, text and tier; see `Event`."""

    kind: str
    provenance: str
    salience: Number | None
    ts: Time | None
    expires_at: Time | None
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Recalled:
    """One memory a recall found, as it was before this recall; `ts` is Unix seconds.

    `explanation` is empty unless asked for, then it holds the parts of the score: `bm25`,
    `freshness` and what else the recaller tells.
    """

    id: int
    text: str
    tier: str
    kind: str
    provenance: str
    salience: float
    access_count: int
    ts: float
    score: float
    explanation: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Self:
        """Read an item of a recaller's answer. Raises KeyError where a field is missing."""
        own = set(cls.__slots__) - {"explanation"}
        rest = {name: value for name, value in item.items() if name not in own}
        return cls(**{name: item[name] for name in own}, explanation=rest)


@overload
def emit(redis: "SyncClient", event: Event, *, prefix: str = ...) -> bytes | str: ...
@overload
def emit(redis: "AsyncClient", event: Event, *, prefix: str = ...) -> Awaitable[bytes | str]: ...
def emit(redis: Any, event: Event, *, prefix: str = keys.DEFAULT_PREFIX) -> Any:
    """Send one event; returns the stream entry's id, for an asyncio client an awaitable of it.

    Give the event an `event_id` to be able to repeat the call yourself: equal ids are stored
    once. Raises redis-py's errors.
    """
    return redis.xadd(keys.events(prefix), _identified(event).fields())


@overload
def emit_many(
    redis: "SyncClient", events: Iterable[Event], *, prefix: str = ...
) -> list[bytes | str]: ...
@overload
def emit_many(
    redis: "AsyncClient", events: Iterable[Event], *, prefix: str = ...
) -> Awaitable[list[bytes | str]]: ...
def emit_many(redis: Any, events: Iterable[Event], *, prefix: str = keys.DEFAULT_PREFIX) -> Any:
    """Send events in one round trip; returns their entries' ids, in order, as `emit` does.

    Not a transaction: after an error some may have been sent, so give them event ids before you
    repeat the call. They are held in memory until sent: hand over some hundreds at a time.
    """
    pipe = redis.pipeline(transaction=False)
    for event in events:
        pipe.xadd(keys.events(prefix), _identified(event).fields())
    return pipe.execute()


def _identified(event: Event) -> Event:
    """Give the event an id if it has none.

    Set before the first try: after a lost answer redis-py sends a command again by itself, and
    the writer stores two entries of one id once, so no repeat of ours doubles a memory.
    """
    return event if event.event_id else replace(event, event_id=os.urandom(16).hex())


class Memory:
    """The memory of one agent: notes for now, events to remember, recall.

    Talks through `redis`, a synchronous client of redis-py, or else connects at first need to
    `url`, or to `REMQ_REDIS_URL`. `prefix` is that of the keys (None: `REMQ_PREFIX`, or `remq`).
    A recall waits `timeout_s` seconds for its answer. Usable in a `with` statement, which
    closes a connection made here. Raises EventError for a name no agent can have, ValueError for
    settings that cannot work, and redis-py's errors where the server fails.
    """

    def __init__(
        self,
        agent: str,
        redis: "SyncClient | None" = None,
        *,
        url: str | None = None,
        prefix: str | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        check_agent(agent)
        if redis is not None and url is not None:
            raise ValueError("Give Memory a client or a url, not both.")
        if inspect.iscoroutinefunction(getattr(redis, "execute_command", None)):
            raise ValueError("Memory needs a synchronous client; with redis.asyncio use emit().")
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise ValueError("timeout_s must be a number of seconds above 0.")
        self.agent = agent
        self.prefix = prefix or os.environ.get("REMQ_PREFIX") or keys.DEFAULT_PREFIX
        self.timeout_s = timeout_s
        self._given: Any = redis
        self._own: Any = None
        self._url = url
        self._working: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection made here; a client that was given stays open."""
        if self._own is not None:
            self._own.close()
            self._own = None

    # Working memory: this process only, never sent anywhere.

    def note_working(self, text: str) -> None:
        """Note something for the present cycle."""
        self._working.append(text)

    @property
    def working(self) -> tuple[str, ...]:
        """The notes of the present cycle, oldest first."""
        return tuple(self._working)

    def end_cycle(self) -> None:
        """Drop the notes."""
        self._working.clear()

    # Remembering.

    def episodic(self, text: str, **details: Unpack[Details]) -> str:
        """Remember what happened; returns the event's id. Raises EventError before any sending."""
        return self._remember(Event(self.agent, text, EPISODIC, **details))

    def durable(self, text: str, **details: Unpack[Details]) -> str:
        """Remember a fact, preference, decision or skill; else as `episodic`."""
        return self._remember(Event(self.agent, text, DURABLE, **details))

    def _remember(self, event: Event) -> str:
        event = _identified(event)
        emit(self._client, event, prefix=self.prefix)
        return str(event.event_id)

    # Recalling, by the list protocol of `remq recaller`.

    def recall(
        self, query: str, k: int = 5, *, touch: bool = True, explain: bool = False
    ) -> list[Recalled]:
        """Find the `k` memories that matter most for `query`, best first; empty when none matches.

        `touch` counts the recall on each of them, `explain` asks for the parts of the score.
        Raises RecallError.
        """
        answer = self._ask(query, k, touch=touch, explain=explain)
        try:
            return [Recalled.from_item(item) for item in answer["items"]]
        except (AttributeError, KeyError, TypeError):
            raise RecallError(_UNREADABLE) from None

    def recall_context(self, query: str, k: int = 4, max_chars: int = 800) -> str:
        """Recall as a block of text for a system prompt; "" when nothing matches.

        At most `k` memories in `max_chars` characters, a `- (kind) text` line each. Raises
        RecallError.
        """
        context = self._ask(query, k, max_chars=max_chars).get("context")
        if not isinstance(context, str):
            raise RecallError(_UNREADABLE)
        return context

    def _ask(self, query: str, k: int, **options: object) -> dict[str, Any]:
        """Put one request on the list and wait for its answer. Raises RecallError."""
        name = os.urandom(16).hex()
        reply_to = keys.reply(self.prefix, name)
        request = json.dumps(
            {
                "id": name,
                "agent": self.agent,
                "query": query,
                "k": k,
                "reply_to": reply_to,
                "deadline": time.time() + self.timeout_s,
                **options,
            }
        )
        client = self._client
        client.lpush(keys.recall(self.prefix), request)
        raw = self._wait(client, reply_to)
        if raw is None:
            self._withdraw(client, request, reply_to)
            raise RecallError(
                f"no answer within {self.timeout_s:g} s: is `remq recaller` running against this "
                f"server, with the prefix {self.prefix!r}?"
            )
        return _answer(raw)

    def _wait(self, client: Any, reply_to: str) -> bytes | str | None:
        """Wait for the answer, as it stands on the list; None after `timeout_s`."""
        limit = client.get_connection_kwargs().get("socket_timeout")
        longest = min(BLOCK_S, limit / 2) if limit else BLOCK_S
        end = time.monotonic() + self.timeout_s
        while (left := end - time.monotonic()) > 0:
            row = client.blpop([reply_to], timeout=max(LEAST_BLOCK_S, min(left, longest)))
            if row:
                value: bytes | str = row[1]
                return value
        return None

    def _withdraw(self, client: Any, request: str, reply_to: str) -> None:
        """Take back what nobody answered, so that neither question nor answer stays behind."""
        from redis.exceptions import RedisError  # noqa: PLC0415 - loaded by the client already

        # That no answer came is what the caller has to know; the rest expires by itself.
        with suppress(RedisError):
            client.lrem(keys.recall(self.prefix), 1, request)
            client.delete(reply_to)

    @property
    def _client(self) -> Any:
        if self._given is not None:
            return self._given
        if self._own is None:
            url = self._url or os.environ.get("REMQ_REDIS_URL")
            if not url:
                raise ValueError(
                    "REMQ_REDIS_URL is not set: name the server there, e.g. "
                    "redis://127.0.0.1:6379/0, or give Memory a client or a url."
                )
            self._own = connect(url)
        return self._own


def _answer(raw: bytes | str) -> dict[str, Any]:
    """Read a recaller's answer. Raises RecallError with its sentence where it refused."""
    try:
        answer = json.loads(raw)
    except ValueError:
        raise RecallError(_UNREADABLE) from None
    if not isinstance(answer, dict):
        raise RecallError(_UNREADABLE)
    if answer.get("ok") is not True:
        raise RecallError(str(answer.get("error") or "the recaller refused without a reason"))
    return answer
