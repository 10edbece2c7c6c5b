"""Jobs that a stranger may put into the queue by raw Redis commands: none of them may run."""

import json
import os
import pickle
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
from rq.job import Job
from rq.serializers import JSONSerializer

from worker.queue import CONSOLIDATE, EXTRACT, OwnJob

#: A hash's fields; a stranger's names are any bytes.
Fields = Mapping[Any, Any]

QUEUE = "rq:queue:remq"
HOSTILE = "tests.strangers.plant"
#: Where `plant` leaves its file.
PLANT = "REMQ_TEST_PLANT"


def plant(*_: Any, **__: Any) -> None:
    """What a stranger would like to have run: it leaves a file behind."""
    Path(os.environ[PLANT]).touch()


class Pickled:
    """An object that runs `plant` when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return plant, ()


def payload(name: object, *args: object, instance: object = None, **kwargs: object) -> bytes:
    """A job's data as RQ writes it: the function's name, an instance, arguments."""
    return zlib.compress(json.dumps([name, instance, args, kwargs]).encode())


def put(client: redis.Redis, name: str, fields: Fields) -> str:
    """Put a job into the queue as a stranger would, by raw commands; its id."""
    row = {"origin": "remq", "created_at": "2026-01-01T00:00:00.000000Z", **fields}
    client.hset(f"rq:job:{name}", mapping=row)
    client.rpush(QUEUE, name)
    return name


def fetch(client: redis.Redis, name: str) -> Job:
    """Read a job the way the worker does."""
    return OwnJob.fetch(name, connection=client, serializer=JSONSerializer)


#: Jobs that can be read, and are not ours.
REFUSED: dict[str, Fields] = {
    "os-system": {"data": payload("os.system", f"touch ${PLANT}")},
    "another-function": {"data": payload(HOSTILE)},
    "ours-in-the-wrong-queue": {"data": payload(EXTRACT, "alice", "1")},
    "ours-with-an-instance": {"data": payload(CONSOLIDATE, "alice", "1", instance=HOSTILE)},
    "ours-with-keywords": {"data": payload(CONSOLIDATE, "alice", "1", force=True)},
    "ours-without-arguments": {"data": payload(CONSOLIDATE)},
    "ours-with-numbers": {"data": payload(CONSOLIDATE, "alice", 1)},
    "ours-with-another-word": {"data": payload(CONSOLIDATE, "alice", "1", "please")},
    "a-pickle": {"data": zlib.compress(pickle.dumps((HOSTILE, Pickled(), (), {})))},
    "a-bare-pickle": {"data": pickle.dumps(Pickled())},
    "no-json": {"data": b"\x00\xff"},
    "json-without-end": {"data": b"[" * 100_000},
    "a-number": {"data": b"7"},
    "four-letters": {"data": b'"abcd"'},
    "no-origin": {"data": payload(HOSTILE), "origin": ""},
    "callbacks": {
        "data": payload(HOSTILE),
        "success_callback_name": HOSTILE,
        "failure_callback_name": HOSTILE,
        "stopped_callback_name": HOSTILE,
    },
    "to-be-tried-again": {"data": payload(HOSTILE), "retries_left": 9, "repeats_left": 9},
    "bad-webhooks": {"data": payload(HOSTILE), "webhooks": "{"},
    "bad-retries": {"data": payload(HOSTILE), "retries_left": "many", "retry_intervals": "{"},
}
#: Hashes that are no job.
UNREADABLE: dict[str, Fields] = {
    "no-data": {},
    "bad-status": {"data": payload(HOSTILE), "status": "dancing"},
    "bad-timeout": {"data": payload(HOSTILE), "timeout": "soon"},
    "bad-number": {"data": payload(HOSTILE), "result_ttl": "long"},
    "bad-time": {"data": payload(HOSTILE), "enqueued_at": "yesterday"},
    "bad-text": {"data": payload(HOSTILE), "description": b"\xff"},
    "bad-name": {"data": payload(HOSTILE), b"\xff": "x"},
}
