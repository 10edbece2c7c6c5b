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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from producer.event import TS_LIMIT, EventError, check_agent
from worker.connect import BLOCK_S, Client
from worker.keys import Keys
from worker.memory.recall import Hit, context, public
from worker.memory.store import AgentMemory
from worker.memory.view import MemoryView
from worker.outage import FAULTS, Outage
from worker.settings import Settings

log = logging.getLogger("remq.recaller")

#: Bytes of a request.
REQUEST_MAX = 4_194_304
#: Memories in one answer: a touch counts them all in one script.
K_MAX = 1000
CONTEXT_CHARS = 800
#: Characters of a reply list's name after the prefix.
REPLY_NAME_MAX = 256

_FAILED = "the memory's server failed: ask again."


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
            f"reply_to begins with {reply_prefix} and goes on with a name of your own, "
            f"at most {REPLY_NAME_MAX} characters."
        )
    return Request(
        _id(body),
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
    return (_id(body), str(reply_to)) if _may_reply(reply_to, reply_prefix) else None


class Recaller:
    """One recaller. Several may run side by side; each keeps the indexes of agents it serves."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`client` should repeat nothing by itself: a repeated touch counts twice."""
        self.client = client
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self.clock = clock
        self.stopping = False
        self.outage = Outage(log, settings, stopping=lambda: self.stopping)
        self._views: OrderedDict[str, MemoryView] = OrderedDict()

    def stop(self) -> None:
        """Answer what was taken, then stop."""
        self.stopping = True

    def run(self) -> None:
        """Answer until told to stop.

        A server that fails later on is waited for; one that does not answer at the start raises
        redis-py's errors.
        """
        self.client.ping()
        while not self.stopping:
            try:
                taken = self.client.brpop([self.keys.recall], timeout=BLOCK_S)
            except FAULTS as error:
                self.outage.wait(error)
                continue
            self.outage.over()
            if taken is not None:
                self.answer(taken[1])

    def answer(self, raw: bytes) -> None:
        """Answer one request. One that cannot be answered gets a sentence, if it says where to."""
        try:
            request = read_request(raw, self.keys.reply_prefix)
        except RequestError as error:
            self._refuse(raw, error)
            return
        try:
            self._serve(request)
        except FAULTS as error:
            said = self.outage.said(error)
            self.outage.warn("recall not answered agent=%s: %s", request.agent, said)
            with suppress(*FAULTS):
                self._reply(request.reply_to, {"id": request.id, "ok": False, "error": _FAILED})

    def _refuse(self, raw: bytes, error: RequestError) -> None:
        self.outage.warn("refused a recall request: %s", error)
        whom = address(raw, self.keys.reply_prefix)
        if whom is None:
            return
        try:
            self._reply(whom[1], {"id": whom[0], "ok": False, "error": str(error)})
        except FAULTS as fault:
            self.outage.warn("refusal not told: %s", self.outage.said(fault))

    def _serve(self, request: Request) -> None:
        """Find, answer, count: nothing of it once nobody waits any more."""
        deadline = request.deadline
        if deadline is None:
            deadline = self.clock() + self.settings.recall_deadline_s
        hits = self.hits(request) if self.clock() <= deadline else []
        if self.clock() > deadline:
            self.outage.warn("dropped a late recall request agent=%s", request.agent)
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
        memory = AgentMemory(self.client, self.keys.agent(agent), feed_max=self.settings.feed_max)
        try:
            memory.touch([hit.item.id for hit in hits], self.clock())
        except FAULTS as error:
            self.outage.warn("recall not counted agent=%s: %s", agent, self.outage.said(error))

    def _reply(self, reply_to: str, body: Mapping[str, object]) -> None:
        pipe = self.client.pipeline(transaction=True)
        # ASCII: an id may hold half of a surrogate pair, which UTF-8 cannot write.
        pipe.rpush(reply_to, json.dumps(body))
        pipe.expire(reply_to, self.settings.reply_ttl_s)
        pipe.execute()


def _body(raw: bytes) -> dict[str, Any]:
    if len(raw) > REQUEST_MAX:
        raise RequestError("the request is too large.")
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise RequestError("the request is no JSON.") from None
    if not isinstance(body, dict):
        raise RequestError("the request is no JSON object.")
    return body


def _no_constant(name: str) -> None:
    """Python would read NaN and Infinity, and write them back into answers that others cannot."""
    raise ValueError(name)


def _id(body: Mapping[str, Any]) -> str | int | float | None:
    """The asker's own name of the request; a structure is not echoed."""
    value = body.get("id")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) else None


def _may_reply(reply_to: object, prefix: str) -> bool:
    """Only lists of replies: an answer must not be written into any other key."""
    if not isinstance(reply_to, str) or not reply_to.startswith(prefix):
        return False
    try:
        reply_to.encode()
    except UnicodeEncodeError:
        return False
    return 1 <= len(reply_to) - len(prefix) <= REPLY_NAME_MAX


def _given(body: Mapping[str, Any], name: str, default: object) -> Any:
    """A field; null counts as left out."""
    value = body.get(name)
    return default if value is None else value


def _whole(body: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = _given(body, name, default)
    # Some languages write every number with a point.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{name} is a whole number from 1 on.")
    return min(value, most)


def _switch(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = _given(body, name, default)
    if not isinstance(value, bool):
        raise RequestError(f"{name} is true or false.")
    return value


def _time(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > TS_LIMIT:
        raise RequestError(f"{name} is a time in Unix seconds.")
    return float(value)
