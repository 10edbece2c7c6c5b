"""The RQ queue: one factory for it, and jobs that may only be ours.

A stranger who can write to the queue's server can put any hash there. So a job of ours runs the one
function its queue is for, by name, and nothing else the hash may ask for: no other function, no
callback, no webhook. Payloads are JSON, never pickle, and hold ids only.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.utils import import_attribute

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


class JobRefused(RemqError):
    """A job in the queue is not one of remq's; nothing of it was run."""


class OwnJob(Job):
    """A job that runs the one function its queue is for, and no callback or webhook."""

    def restore(self, raw_data: Mapping[Any, Any]) -> None:
        """Read the hash, and drop whatever in it would run something else.

        A hash that cannot be read counts as no job, so that it does not stop the worker.
        """
        try:
            super().restore(raw_data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("passed over an unreadable job: %s", type(error).__name__)
            raise NoSuchJobError("the job's hash cannot be read") from None
        self._success_callback_name = None
        self._failure_callback_name = None
        self._stopped_callback_name = None
        self.webhooks = []
        self.repeats_left = None

    @property  # type: ignore[misc]  # RQ's own may be set; ours follows from the payload
    def func_name(self) -> str:
        """The function's name if the payload is one of ours, else `refused`."""
        return self._allowed() or "refused"

    @property
    def func(self) -> Any:
        """The one function this job may run. Raises JobRefused."""
        allowed = self._allowed()
        if allowed is None:
            raise JobRefused(f"Job {self.id} in queue {self.origin!r} is not one of remq's.")
        return import_attribute(allowed)

    def _allowed(self) -> str | None:
        expected = EXTRACT if self.origin.endswith(EXTRACT_SUFFIX) else CONSOLIDATE
        try:
            name, instance, args, kwargs = self.serializer.loads(self.data)
        except (ValueError, TypeError, AttributeError):
            return None
        plain = isinstance(args, list) and all(isinstance(arg, str) for arg in args)
        ours = name == expected and instance is None and plain and kwargs == {}
        return expected if ours else None


class OwnQueue(Queue):
    """A queue of our own jobs."""

    job_class = OwnJob


def pass_queue(client: Client, settings: Settings) -> OwnQueue:
    """The queue of passes."""
    return _queue(client, settings.queue)


def extract_queue(client: Client, settings: Settings) -> OwnQueue:
    """The queue of extractions on write."""
    return _queue(client, settings.queue + EXTRACT_SUFFIX)


def _queue(client: Client, name: str) -> OwnQueue:
    return OwnQueue(name, connection=client, serializer=JSONSerializer, job_class=OwnJob)


def enqueue_pass(
    queue: OwnQueue, settings: Settings, agent: str, token: str, *, force: bool = False
) -> str:
    """Put a claimed run into the queue; the job's id. `force` passes over the idle gate."""
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
    return queue.connection.lpos(queue.key, job_id(token)) is not None
