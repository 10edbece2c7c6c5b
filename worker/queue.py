"""The RQ queue: one factory for it, and jobs that may only be ours.

A stranger who can write to the queue's server can put any hash there. So a job of ours runs the one
function its queue is for, by name, and nothing else the hash may ask for: no other function, no
callback, no webhook. Payloads are JSON, never pickle, and hold ids only.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from redis.exceptions import ResponseError
from rq import Queue, worker_registration
from rq.exceptions import NoSuchJobError, TimeoutFormatError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import decode_redis_hash, import_attribute, utcparse

from worker import connect
from worker.connect import Client
from worker.errors import RemqError
from worker.settings import Settings

log = logging.getLogger("remq.worker")

CONSOLIDATE = "worker.jobs.consolidate"
EXTRACT = "worker.jobs.extract_metadata"
EXTRACT_SUFFIX = "-extract"
#: Third argument of a pass an operator wants even while the agent is busy.
FORCE = "force"
EXTRACT_TIMEOUT_S = 120

#: How long the hash of a finished or failed job stays for people to look at.
RESULT_TTL_S = 500
FAILURE_TTL_S = 86_400
#: How long a worker without a sign of life counts as one, and about how long it waits for a server
#: that is frozen. RQ's own is seven minutes.
WORKER_TTL_S = 60

#: What of a job's hash is read. The rest could name a callback, a webhook, a job to go on with, a
#: repetition or a retry.
FIELDS = (
    "data", "origin", "description", "status", "created_at", "enqueued_at", "started_at",
    "ended_at", "last_heartbeat", "worker_name", "timeout", "result_ttl",
)  # fmt: skip
#: What RQ raises for a hash that is none of its own; an assertion for a time-out, for one.
_UNREADABLE = (
    NoSuchJobError, TimeoutFormatError, ValueError, KeyError, TypeError, AttributeError,
    AssertionError,
)  # fmt: skip


class JobRefused(RemqError):
    """A job in the queue is not one of remq's; nothing of it was run."""


class OwnJob(Job):
    """A job that runs the one function its queue is for, and nothing else its hash may ask for."""

    @classmethod
    def fetch(cls, id: str, connection: Any = None, serializer: Any = None) -> Job:  # noqa: A002 - RQ's name
        """Read a job. Raises NoSuchJobError, also for an id or a key that is none of a job's."""
        try:
            return super().fetch(id, connection, serializer)
        except (ValueError, ResponseError) as error:
            log.warning("passed over a job that cannot be read: %s", type(error).__name__)
            raise NoSuchJobError("the job cannot be read") from None

    @classmethod
    def fetch_many(
        cls, job_ids: Iterable[str], connection: Any, serializer: Any = None
    ) -> list[Job | None]:
        """Read jobs; None for each that does not exist or cannot be read."""
        return [cls._fetch_or_none(job_id, connection, serializer) for job_id in job_ids]

    @classmethod
    def _fetch_or_none(cls, job_id: str, connection: Any, serializer: Any) -> Job | None:
        try:
            return cls.fetch(job_id, connection, serializer)
        except NoSuchJobError:
            return None

    def restore(self, raw_data: Mapping[Any, Any]) -> None:
        """Read those fields of the hash that run nothing; the rest is not looked at.

        A hash that cannot be read counts as no job, so that it does not stop the worker.
        """
        try:
            row = decode_redis_hash(raw_data)  # type: ignore[arg-type]
            super().restore({name: row[name] for name in FIELDS if name in row})
        except _UNREADABLE as error:
            log.warning("passed over job %s, it cannot be read: %s", self.id, type(error).__name__)
            raise NoSuchJobError("the job's hash cannot be read") from None
        # RQ's own default is a year, and a stranger's job brings any it likes.
        self.failure_ttl = FAILURE_TTL_S

    @property  # type: ignore[misc]  # RQ's own may be set; ours follows from the payload
    def func_name(self) -> str:
        """The function's name if the payload is one of ours, else `refused`."""
        return self._allowed() or "refused"

    @property
    def func(self) -> Any:
        """The one function this job may run. Raises JobRefused."""
        allowed = self._allowed()
        if allowed is None:
            raise JobRefused(f"Job {self.id} is not one of remq's; nothing of it was run.")
        return import_attribute(allowed)

    def _allowed(self) -> str | None:
        expected = EXTRACT if self.origin.endswith(EXTRACT_SUFFIX) else CONSOLIDATE
        try:
            name, instance, args, kwargs = self.serializer.loads(self.data)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        ours = name == expected and instance is None and kwargs == {}
        return expected if ours and _plain(args) and _ARGUMENTS[expected](args) else None


def _plain(args: object) -> bool:
    return isinstance(args, list) and all(isinstance(arg, str) for arg in args)


#: Whether the arguments are those of an agent and a run, or of an agent and ids of its items.
_ARGUMENTS: Mapping[str, Callable[[list[str]], bool]] = {
    CONSOLIDATE: lambda args: len(args) == 2 or (len(args) == 3 and args[2] == FORCE),
    EXTRACT: lambda args: bool(args) and all(arg.isdecimal() and arg.isascii() for arg in args[1:]),
}


class OwnQueue(Queue):
    """A queue of our own jobs. A fault of its server is a StoreError that names that server."""

    job_class = OwnJob
    place = "RQ's server"

    def spoken(self) -> AbstractContextManager[None]:
        """Turn a fault of this queue's server into a sentence: it need not be the memory's."""
        return connect.spoken(self.place)

    @property
    def count(self) -> int:
        """How many jobs wait."""
        with self.spoken():
            return super().count

    def has_worker(self, now: float) -> bool:
        """Whether a worker that listens to this queue has given a sign of life lately.

        RQ keeps the names of workers that were killed for a while.
        """
        with self.spoken():
            names = worker_registration.get_keys(self)
            return any(now - self._heartbeat(name) < WORKER_TTL_S for name in names)

    def _heartbeat(self, worker: str) -> float:
        """When a worker gave its last sign of life, Unix seconds; 0 if that is not known."""
        told: Any = self.connection.hget(worker, "last_heartbeat")
        try:
            return utcparse(told.decode()).timestamp() if told else 0.0
        except ValueError:
            return 0.0

    @classmethod
    def lpop(
        cls, queue_keys: Sequence[str], timeout: int | None, connection: Any = None
    ) -> tuple[Any, str] | None:
        """Take the next job's id; one that is no text is read as an id that no job has."""
        taken = super().lpop(queue_keys, timeout, connection)
        return None if taken is None else (taken[0], taken[1].decode("utf-8", "replace"))


def pass_queue(client: Client, settings: Settings) -> OwnQueue:
    """The queue of passes."""
    return _queue(client, settings, settings.queue)


def extract_queue(client: Client, settings: Settings) -> OwnQueue:
    """The queue of extractions on write."""
    return _queue(client, settings, settings.queue + EXTRACT_SUFFIX)


def _queue(client: Client, settings: Settings, name: str) -> OwnQueue:
    queue = OwnQueue(name, connection=client, serializer=JSONSerializer, job_class=OwnJob)
    queue.place = connect.in_full(settings.queue_place)
    return queue


def enqueue_pass(
    queue: OwnQueue, settings: Settings, agent: str, token: str, *, force: bool = False
) -> str:
    """Put a claimed run into the queue; the job's id. `force` passes over the idle gate."""
    with queue.spoken():
        job = queue.enqueue_call(
            CONSOLIDATE,
            args=(agent, token, *((FORCE,) if force else ())),
            timeout=settings.job_timeout_s,
            result_ttl=RESULT_TTL_S,
            failure_ttl=FAILURE_TTL_S,
            description=f"remq pass {token}",
            job_id=job_id(token),
        )
    return str(job.id)


def enqueue_extraction(queue: OwnQueue, agent: str, ids: Sequence[int]) -> None:
    """Ask for the entities and topics of items just stored."""
    with queue.spoken():
        queue.enqueue_call(
            EXTRACT,
            args=(agent, *map(str, ids)),
            timeout=EXTRACT_TIMEOUT_S,
            result_ttl=0,
            failure_ttl=FAILURE_TTL_S,
            description=f"remq extraction of {len(ids)} items",
        )


def job_id(token: str) -> str:
    """The id of a run's job."""
    return f"remq-{token}"


def is_waiting(queue: OwnQueue, token: str) -> bool:
    """Whether a run's job still waits in the queue."""
    with queue.spoken():
        return queue.connection.lpos(queue.key, job_id(token)) is not None
