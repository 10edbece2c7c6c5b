"""The RQ worker: runs passes, one at a time, each in a process of its own.

Start as many as you like, on as many machines as you like.
"""

import logging
import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from redis.exceptions import RedisError
from rq import Queue
from rq.exceptions import NoSuchJobError, StopRequested
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.worker import SpawnWorker, Worker

from worker import (
    connect,
    jobs,  # noqa: F401 - here, so that a forked child need not import it
)
from worker import settings as environment
from worker.connect import Client
from worker.errors import RemqError
from worker.models import choose_model
from worker.queue import WORKER_TTL_S, OwnJob, OwnQueue, extract_queue, pass_queue
from worker.settings import Settings

log = logging.getLogger("remq.worker")

#: Pause before a worker that lost its server begins again.
RESTART_PAUSE_S = 2


class OwnWorker(Worker):
    """Takes only our own jobs, and knows whether it was told to stop."""

    job_class = OwnJob
    queue_class = OwnQueue
    max_connection_wait_time = 5.0
    told_to_stop = False
    _failure = ""

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Finish the pass in hand, then stop."""
        self.told_to_stop = True
        with suppress(RedisError):  # It would also note that, on a server that may be gone.
            super().request_stop(signum, frame)  # type: ignore[no-untyped-call]

    def handle_exception(self, job: Job, *exc_info: Any) -> None:
        """Log in one sentence why a job failed."""
        self._failure = failure(exc_info[1])
        self.log.warning("job %s failed: %s", job.id, self._failure)

    def handle_job_failure(
        self,
        job: Job,
        queue: Queue,
        started_job_registry: Any = None,
        exc_string: str = "",
        execution: Execution | None = None,
    ) -> None:
        """Record the failure with our words: RQ's may quote a value, and its record is kept."""
        super().handle_job_failure(
            job, queue, started_job_registry, self._failure or exc_string, execution
        )


def failure(error: BaseException | None) -> str:
    """Say what happened and where, without what the error itself says, unless it is ours."""
    if error is None or isinstance(error, RemqError):
        return str(error or "no reason is known")
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


class ForkingWorker(OwnWorker):
    """Runs each job in a forked child, which has every heavy import already."""


class SpawningWorker(OwnWorker, SpawnWorker):
    """Runs each job in a fresh process, for systems where a fork is not safe.

    RQ's own spawning worker puts the server's password on the child's command line, where every
    user of the machine can read it; this child connects by its own environment.
    """

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Start a child that does one job."""
        environ = dict(
            os.environ,
            RQ_WORKER_ID=self.name,
            RQ_JOB_ID=job.id,
            RQ_EXECUTION_ID=self.execution.id,  # type: ignore[union-attr]
        )
        told = (self.key, job.id, queue.name, str(log.getEffectiveLevel()))
        # -P: what lies in the folder we were started in, a worker.py say, is none of ours.
        command = [sys.executable, "-P", "-m", "worker.horse", *told]
        self._horse_pid = os.posix_spawn(sys.executable, command, environ, setpgroup=0)
        self.procline(f"Spawned {self._horse_pid}")  # type: ignore[no-untyped-call]


def do_one(worker_key: str, job_id: str, queue_name: str) -> None:
    """Do one job in this process, as the child of a spawning worker, and end the process.

    Raises RemqError if the worker or the job is gone by now, StoreError if RQ's server fails.
    """
    settings = environment.load()
    with connect.spoken(connect.in_full(settings.queue_place)):
        _do_one(connect.queue(settings), worker_key, job_id, queue_name)


def _do_one(client: Client, worker_key: str, job_id: str, queue_name: str) -> None:
    kinds = {"connection": client, "job_class": OwnJob, "serializer": JSONSerializer}
    worker = SpawningWorker.find_by_key(worker_key, queue_class=OwnQueue, **kinds)
    try:
        job = OwnJob.fetch(job_id, connection=client, serializer=JSONSerializer)
        execution = Execution.fetch(os.environ["RQ_EXECUTION_ID"], job.id, connection=client)
    except (NoSuchJobError, ValueError):
        raise RemqError(f"Job {job_id} is gone; nothing of it was run.") from None
    if worker is None:
        raise RemqError(f"The worker of job {job_id} is gone; nothing of the job was run.")
    worker.executions[execution.id] = execution
    worker.main_work_horse(job, OwnQueue(queue_name, **kinds))


def forks(settings: Settings) -> bool:
    """Whether a job is run in a fork: not on macOS, where system libraries do not survive it."""
    if settings.worker_start == "auto":
        return sys.platform != "darwin"
    return settings.worker_start == "fork"


def run(client: Client, settings: Settings, *, burst: bool = False) -> None:
    """Run passes until told to stop, or with `burst` until none waits."""
    choose_model(settings)  # Heavy imports happen here, before any fork.
    logging.getLogger("rq.worker").addFilter(_ONE_LINE)
    # RQ tells us to stop by this, wherever the signal finds it.
    with suppress(StopRequested):
        while not _work(client, settings, burst=burst):
            log.warning("the worker lost RQ's server, trying again")
            time.sleep(RESTART_PAUSE_S)


def _work(client: Client, settings: Settings, *, burst: bool) -> bool:
    """Let RQ work; False if its server failed and it was not told to stop.

    Raises StoreError for a server that fails in a burst.
    """
    kind = ForkingWorker if forks(settings) else SpawningWorker
    queues = [pass_queue(client, settings), extract_queue(client, settings)]
    try:
        worker = kind(
            queues,
            connection=client,
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL_S,
            log_job_description=False,
        )
        worker.work(burst=burst, logging_level=None)
    except RedisError as error:
        # It wants its server also to say farewell.
        if burst:
            raise connect.sentence(error, connect.in_full(settings.queue_place)) from error
        return False
    return burst or worker.told_to_stop


class _OneLine(logging.Filter):
    """A server that fails is a sentence, where RQ would log its stack."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Put the error's kind in the place of its stack."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, RedisError):
            record.msg = f"{record.getMessage()} ({type(error).__name__})"
            record.args = record.exc_info = None
        return True


_ONE_LINE = _OneLine()
