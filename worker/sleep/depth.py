"""How much work lies in a task queue of each kind, from the keys its library keeps in Redis.

The libraries are not imported: the agents may run another version, another key prefix, or another
language. Key names and scores are those of RQ 3.0, Celery 5.7 with kombu 5.7, and BullMQ 4 to 6
(older ones are named where they differ). A reading is one pipeline; a stream whose lag the server
does not know and Celery's table of unacknowledged messages may need a few more.

What counts, in numbers of jobs:

- queued: waiting to be taken. Work of a paused queue too: it is pending, and a resume may come any
  moment; the reason says that it is paused.
- due: delayed or retried later, and due by now + horizon. What is due after that does not count.
- running: taken, and not finished, as far as the library shows it. A plain list shows nothing;
  Celery acknowledges a task before it runs unless it has `acks_late`, so only those show.

What does not count: finished, failed, cancelled; and what waits for other jobs (RQ's deferred,
BullMQ's waiting-children), as those jobs count where they are.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from redis.exceptions import RedisError, ResponseError

from worker.connect import Client, sentence
from worker.errors import StoreUnavailable
from worker.sleep.queues import QueueSpec

#: Entries of Celery's unacknowledged messages read in one go, and the most read in one look:
#: they belong to all queues of a broker and hold whole messages.
UNACKED_PAGE = 100
UNACKED_MAX = 1000
#: Bindings of one exchange that are looked at; more than these count as leading to the queue.
BINDINGS_PAGE = 1000
#: How kombu joins a queue and a priority, and the parts of a binding.
KOMBU_SEP = "\x06\x16"


@dataclass(frozen=True, slots=True)
class Depth:
    """What is in a queue. `at_least`: there may be more; `note`: what else a person should know."""

    queued: int = 0
    due: int = 0
    running: int = 0
    at_least: bool = False
    note: str = ""

    @property
    def busy(self) -> bool:
        """Whether any of it keeps the agent awake."""
        return self.queued + self.due + self.running > 0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The queue could not be read, and counts as busy. `silent`: its server does not answer."""

    reason: str
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Unseen:
    """No key of the queue exists: it was never used there, or never under this name."""


Reading = Depth | Unreadable | Unseen


@dataclass(frozen=True, slots=True)
class Moment:
    """When a look is taken and up to when delayed work counts, in Unix seconds."""

    now: float
    until: float


def measure(spec: QueueSpec, server: Client, *, now: float, horizon_s: float) -> Reading:
    """Read one queue, already filled in for an agent. A fault of the server is a reading too.

    `server` is a client that reads bytes (`decode_responses` False).
    """
    try:
        return _KINDS[spec.kind](server, spec, Moment(now, now + horizon_s))
    except RedisError as error:
        return unreadable(error, spec)


def unreadable(error: RedisError, spec: QueueSpec) -> Unreadable:
    """Say why a queue cannot be read; without a key, a value or a password."""
    if isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE"):
        return Unreadable(
            f"a key of that name at {spec.place} holds something else; is the kind right?"
        )
    said = sentence(error, spec.place)
    return Unreadable(str(said).rstrip("."), silent=isinstance(said, StoreUnavailable))


def _ask(server: Client, *commands: tuple[Any, ...]) -> list[Any]:
    """Send commands in one trip; raises the first fault as it is."""
    answers = _try(server, *commands)
    for answer in answers:
        _raise_fault(answer)
    return answers


def _try(server: Client, *commands: tuple[Any, ...]) -> list[Any]:
    """Send commands in one trip; a fault of one stands among the answers.

    redis-py's own raising would put the key into the message.
    """
    pipeline = server.pipeline(transaction=False)
    for command, *arguments in commands:
        getattr(pipeline, command)(*arguments)
    answers: list[Any] = pipeline.execute(raise_on_error=False)
    return answers


def _raise_fault(answer: object) -> None:
    if isinstance(answer, Exception):
        raise answer


def _list(server: Client, spec: QueueSpec, _: Moment) -> Depth | Unseen:
    length = server.llen(spec.name)
    # A list without entries has no key, so an empty one cannot be told from a mistyped one.
    return Depth(queued=length) if length else Unseen()


def _rq(server: Client, spec: QueueSpec, moment: Moment) -> Depth | Unseen:
    """RQ: registries are sorted sets by expiry (`wip`) or by due time (`scheduled`), in seconds."""
    prefix, name = spec.prefix or "rq", spec.name
    queue = f"{prefix}:queue:{name}"
    registries = ("wip", "scheduled", "finished", "failed", "deferred", "canceled", "workers")
    queued, ready, taken, due, running, suspended, known, traces = _ask(
        server,
        ("llen", queue),
        # Dependents whose turn has come, on their way to the queue.
        ("zcard", f"{prefix}:ready:{name}"),
        # Popped by a worker that serves this queue alone, not yet started.
        ("llen", f"{queue}:intermediate"),
        ("zcount", f"{prefix}:scheduled:{name}", "-inf", moment.until),
        # An execution whose heartbeats stopped is past its expiry: abandoned, not running.
        ("zcount", f"{prefix}:wip:{name}", f"({moment.now}", "+inf"),
        ("exists", f"{prefix}:suspended"),
        ("sismember", f"{prefix}:queues", queue),
        ("exists", *(f"{prefix}:{registry}:{name}" for registry in registries)),
    )
    depth = Depth(queued + ready, due, taken + running, note="RQ is suspended" if suspended else "")
    return depth if depth.busy or known or traces else Unseen()


def _stream(server: Client, spec: QueueSpec, _: Moment) -> Depth | Unseen:
    """Count what a stream's group was not given yet, and what its consumers did not acknowledge."""
    length, groups = _try(server, ("xlen", spec.name), ("xinfo_groups", spec.name))
    if length == 0 and isinstance(groups, ResponseError) and "no such key" in str(groups):
        return Unseen()
    _raise_fault(length)
    _raise_fault(groups)
    group = {found["name"]: found for found in groups}.get(spec.group.encode())
    if group is None:
        return Depth(queued=length, note=f"it has no group {spec.group} yet" if length else "")
    lag = group.get("lag")
    if lag is not None:
        return Depth(queued=max(0, lag), running=group["pending"])
    # Before Redis 7, and after an XDEL, the server does not know the lag: is there any next entry?
    after = b"(" + group["last-delivered-id"]
    following = len(server.xrange(spec.name, min=after, count=1))
    return Depth(queued=following, running=group["pending"], at_least=bool(following))


def _bullmq(server: Client, spec: QueueSpec, moment: Moment) -> Depth | Unseen:
    """BullMQ: `delayed` is scored by the due time in ms × 4096, plus a counter below 4096.

    So it is in every version, and in Bull before it. Up to version 5 a pause moves `wait` to
    `paused`; since 6 it only sets a field of `meta`. Versions 2 to 4 wake their workers by marker
    entries in the lists, `0:<milliseconds>` or `0`, which no job may be called.
    """
    base = f"{spec.prefix or 'bull'}:{spec.name}"
    last_score = (int(moment.until * 1000) + 1) * 4096 - 1
    waiting, first, held, first_held, prioritized, active, due, paused, traces = _ask(
        server,
        ("llen", f"{base}:wait"),
        ("lrange", f"{base}:wait", 0, 9),
        ("llen", f"{base}:paused"),
        ("lrange", f"{base}:paused", 0, 9),
        ("zcard", f"{base}:prioritized"),
        ("llen", f"{base}:active"),
        ("zcount", f"{base}:delayed", "-inf", last_score),
        ("hexists", f"{base}:meta", "paused"),
        ("exists", *(f"{base}:{key}" for key in ("meta", "id", "events", "completed", "failed"))),
    )
    # One marker among more than ten entries leaves the queue busy all the same.
    markers = sum(job == b"0" or job.startswith(b"0:") for job in (*first, *first_held))
    depth = Depth(
        queued=waiting + held + prioritized - markers,
        due=due,
        running=active,
        note="the queue is paused" if paused else "",
    )
    return depth if depth.busy or traces else Unseen()


@dataclass(frozen=True, slots=True)
class _Reserved:
    """A message a Celery worker holds: how it was routed, and its eta (Unix seconds) if any."""

    exchange: str
    routing_key: str
    eta: float | None


def _celery(server: Client, spec: QueueSpec, moment: Moment) -> Depth | Unreadable | Unseen:
    """Celery: a list for each priority; `unacked` holds what workers took, of all queues.

    A worker takes tasks with a later eta at once and holds them, so they are found there.
    """
    name = spec.name
    # kombu's default steps are 0, 3, 6 and 9; `priority_steps` may name the others.
    lists = [name, *(f"{name}{KOMBU_SEP}{priority}" for priority in range(1, 10))]
    *lengths, own_exchange, bound, (cursor, page) = _ask(
        server,
        *(("llen", key) for key in lists),
        ("exists", f"_kombu.binding.{name}"),
        ("sismember", "_kombu.binding.celery", f"celery{KOMBU_SEP}{KOMBU_SEP}{name}"),
        ("hscan", "unacked", 0, None, UNACKED_PAGE),
    )
    queued, read = sum(lengths), len(page)
    held = _held(server, name, page.values())
    while cursor and read < UNACKED_MAX and not _counted(held, moment).busy:
        cursor, page = server.hscan("unacked", cursor, count=UNACKED_PAGE)
        read += len(page)
        held += _held(server, name, page.values())
    depth = _counted(held, moment, queued=queued, at_least=bool(cursor))
    if cursor and not depth.busy:
        return Unreadable(
            f"the broker holds more unacknowledged messages than the {UNACKED_MAX} looked at"
        )
    return depth if depth.busy or held or own_exchange or bound else Unseen()


def _counted(
    held: list[_Reserved], moment: Moment, *, queued: int = 0, at_least: bool = False
) -> Depth:
    etas = [message.eta for message in held]
    return Depth(
        queued=queued,
        due=sum(eta is not None and moment.now < eta <= moment.until for eta in etas),
        running=sum(eta is None or eta <= moment.now for eta in etas),
        at_least=at_least,
    )


def _held(server: Client, name: str, values: Iterable[bytes]) -> list[_Reserved]:
    """Pick the messages of one queue out of those that workers hold."""
    messages = [_reserved(name, value) for value in values]
    # Through a named exchange a message carries a routing key, which need not be a queue's name.
    routed = {m.exchange for m in messages if m.exchange and m.routing_key != name}
    exchanges = sorted(routed)
    keys = [f"_kombu.binding.{exchange}" for exchange in exchanges]
    answers = _ask(server, *(("sscan", key, 0, None, BINDINGS_PAGE) for key in keys))
    bindings = dict(zip(exchanges, answers, strict=True))
    return [
        message
        for message in messages
        if message.routing_key == name
        or (message.exchange and _leads(bindings[message.exchange], message.routing_key, name))
    ]


def _reserved(name: str, value: bytes) -> _Reserved:
    """Read a value of `unacked`: JSON of message, exchange and routing key.

    What is none of kombu's own making counts as the queue's: it cannot be told whose it is.
    """
    try:
        message, exchange, routing_key = json.loads(value)
        return _Reserved(str(exchange or ""), str(routing_key), _eta(message["headers"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _Reserved("", name, None)


def _eta(headers: dict[str, Any]) -> float | None:
    """Read a message's eta, in Unix seconds; without an offset it is UTC, Celery's default."""
    if not headers.get("eta"):
        return None
    eta = datetime.fromisoformat(headers["eta"])
    return (eta if eta.tzinfo else eta.replace(tzinfo=UTC)).timestamp()


def _leads(scanned: tuple[int, list[bytes]], routing_key: str, name: str) -> bool:
    """Whether an exchange's bindings lead from a routing key to a queue; unknown counts as yes."""
    cursor, bindings = scanned
    for binding in bindings:
        key, _, rest = binding.decode(errors="replace").partition(KOMBU_SEP)
        pattern, _, queue = rest.partition(KOMBU_SEP)
        # A topic: * is a word, # any words. The shell's * is both, and so at worst says yes.
        matches = fnmatchcase(routing_key, key.replace("#", "*")) if pattern else key == routing_key
        if queue == name and matches:
            return True
    return bool(cursor)


_KINDS: dict[str, Callable[[Client, QueueSpec, Moment], Reading]] = {
    "rq": _rq,
    "celery": _celery,
    "list": _list,
    "stream": _stream,
    "bullmq": _bullmq,
}
