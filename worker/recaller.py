"""The recaller: answers recall requests that arrive on a list, from any language.

Requests are LPUSHed and taken from the other end, oldest first. An answer is pushed with its expiry
in one step, so that one nobody fetches does not stay.
"""

import json
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from producer.event import EventError, check_agent
from worker.connect import BLOCK_S, Client
from worker.keys import Keys
from worker.memory.recall import Hit, context, public
from worker.memory.store import AgentMemory
from worker.memory.view import MemoryView
from worker.settings import Settings

log = logging.getLogger("remq.recaller")

#: Bytes of a request.
REQUEST_MAX = 4_194_304
K_MAX = 1000
CONTEXT_K = 4
CONTEXT_CHARS = 800


class RequestError(Exception):
    """A recall request cannot be answered; the message is the sentence the asker gets."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question. `deadline` is Unix seconds: later than that nobody waits for the answer."""

    id: object
    agent: str
    query: str
    reply_to: str
    k: int = 5
    max_chars: int = CONTEXT_CHARS
    touch: bool = True
    explain: bool = False
    deadline: float | None = None


def read_request(raw: bytes, reply_prefix: str) -> Request:
    """Check a request. Raises RequestError; `address` finds whom to tell."""
    body = _body(raw)
    agent, query = body.get("agent", ""), body.get("query")
    try:
        check_agent(agent)
    except EventError as error:
        raise RequestError(f"{error}.") from None
    if not isinstance(query, str):
        raise RequestError("query is missing: it is the text to look for.")
    reply_to = body.get("reply_to")
    if not _may_reply(reply_to, reply_prefix):
        raise RequestError(
            f"reply_to begins with {reply_prefix} and goes on with a name of your own."
        )
    return Request(
        body.get("id"),
        agent,
        query,
        str(reply_to),
        k=_whole(body, "k", 5, K_MAX),
        max_chars=_whole(body, "max_chars", CONTEXT_CHARS, 1_000_000),
        touch=_switch(body, "touch", True),
        explain=_switch(body, "explain", False),
        deadline=_time(body, "deadline"),
    )


def address(raw: bytes, reply_prefix: str) -> tuple[object, str] | None:
    """The id and reply list of a request that may be faulty elsewhere; None if there is none."""
    try:
        body = _body(raw)
    except RequestError:
        return None
    reply_to = body.get("reply_to")
    return (body.get("id"), str(reply_to)) if _may_reply(reply_to, reply_prefix) else None


class Recaller:
    """One recaller. Several may run side by side; each keeps the indexes of agents it serves."""

    def __init__(
        self,
        client: Client,
        touching: Client,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`touching` is a connection without retries: a repeated touch counts twice."""
        self.client = client
        self.touching = touching
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self.clock = clock
        self.stopping = False
        self._views: OrderedDict[str, MemoryView] = OrderedDict()

    def stop(self) -> None:
        """Answer what was taken, then stop."""
        self.stopping = True

    def run(self) -> None:
        """Answer until told to stop."""
        while not self.stopping:
            taken = self.client.brpop([self.keys.recall], timeout=BLOCK_S)
            if taken is not None:
                self.answer(taken[1])

    def answer(self, raw: bytes) -> None:
        """Answer one request. A faulty one gets its sentence, if it says where to."""
        try:
            request = read_request(raw, self.keys.reply_prefix)
        except RequestError as error:
            whom = address(raw, self.keys.reply_prefix)
            log.info("refused a recall request: %s", error)
            if whom is not None:
                self._reply(whom[1], {"id": whom[0], "ok": False, "error": str(error)})
            return
        deadline = request.deadline or self.clock() + self.settings.recall_deadline_s
        hits = self.hits(request) if self.clock() <= deadline else []
        if self.clock() > deadline:
            log.info("dropped a late recall request agent=%s", request.agent)
            return
        self._reply(
            request.reply_to,
            {
                "id": request.id,
                "ok": True,
                "items": [public(hit, explain=request.explain) for hit in hits],
                "context": context(hits, request.max_chars),
            },
        )
        if request.touch:
            self._touch(request.agent, hits)

    def hits(self, request: Request) -> list[Hit]:
        """The best memories for a request."""
        view = self._view(request.agent)
        hits = view.recall(request.query, request.k, now=self.clock())
        if view.at.rev == 0:
            del self._views[request.agent]  # Nobody's memory: questions must not fill our own.
        return hits

    def _view(self, agent: str) -> MemoryView:
        view = self._views.pop(agent, None)
        if view is None:
            memory = AgentMemory(
                self.client, self.keys.agent(agent), feed_max=self.settings.feed_max
            )
            view = MemoryView(memory)
        self._views[agent] = view
        while len(self._views) > self.settings.recaller_agents:
            self._views.popitem(last=False)
        return view

    def _touch(self, agent: str, hits: list[Hit]) -> None:
        memory = AgentMemory(self.touching, self.keys.agent(agent), feed_max=self.settings.feed_max)
        try:
            memory.touch([hit.item.id for hit in hits], self.clock())
        except RedisError as error:
            log.warning("recall not counted agent=%s: %s", agent, type(error).__name__)

    def _reply(self, reply_to: str, body: Mapping[str, object]) -> None:
        pipe = self.client.pipeline(transaction=True)
        pipe.rpush(reply_to, json.dumps(body, ensure_ascii=False))
        pipe.expire(reply_to, self.settings.reply_ttl_s)
        pipe.execute()


def _body(raw: bytes) -> dict[str, Any]:
    if len(raw) > REQUEST_MAX:
        raise RequestError("the request is too large.")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise RequestError("the request is no JSON.") from None
    if not isinstance(body, dict):
        raise RequestError("the request is no JSON object.")
    return body


def _may_reply(reply_to: object, prefix: str) -> bool:
    """Only lists of replies: an answer must not be written into any other key."""
    if not isinstance(reply_to, str) or not reply_to.startswith(prefix):
        return False
    return 1 <= len(reply_to) - len(prefix) <= 256 and "{" not in reply_to


def _whole(body: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{name} is a whole number from 1 on.")
    return min(value, most)


def _switch(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"{name} is true or false.")
    return value


def _time(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RequestError(f"{name} is a time in Unix seconds.")
    return float(value)
