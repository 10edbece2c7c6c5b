"""The queue takes our own jobs only: whatever else stands there runs nothing."""

import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
import redis
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.webhook import Webhook

from tests.strangers import HOSTILE, PLANT, QUEUE, REFUSED, UNREADABLE, Pickled, fetch, plant, put
from worker.queue import (
    CONSOLIDATE,
    EXTRACT,
    FAILURE_TTL_S,
    FORCE,
    JobRefused,
    OwnJob,
    OwnQueue,
    enqueue_extraction,
    enqueue_pass,
    extract_queue,
    is_waiting,
    pass_queue,
)
from worker.rqworker import failure, forks
from worker.settings import Settings


@pytest.fixture
def queue(client: redis.Redis, settings: Settings) -> OwnQueue:
    """The queue of passes."""
    return pass_queue(client, settings)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that appears if a stranger's function runs, here or in a process started here."""
    place = tmp_path / "planted"
    monkeypatch.setenv(PLANT, str(place))
    return place


# What a job may be.


def test_a_pass_is_a_job_of_ours(queue: OwnQueue, settings: Settings) -> None:
    job = fetch(queue.connection, enqueue_pass(queue, settings, "alice", "token-1"))
    assert (job.func_name, list(job.args), job.kwargs) == (CONSOLIDATE, ["alice", "token-1"], {})
    forced = fetch(queue.connection, enqueue_pass(queue, settings, "bob", "token-2", force=True))
    assert list(forced.args) == ["bob", "token-2", FORCE]


def test_an_extraction_is_a_job_of_ours(client: redis.Redis, settings: Settings) -> None:
    queue = extract_queue(client, settings)
    enqueue_extraction(queue, "alice", [3, 4])
    (name,) = queue.get_job_ids()
    job = fetch(client, name)
    assert (job.func_name, list(job.args)) == (EXTRACT, ["alice", "3", "4"])


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_job_is_refused(client: redis.Redis, planted: Path, name: str) -> None:
    job = fetch(client, put(client, name, REFUSED[name]))
    assert job.func_name == "refused"
    with pytest.raises(JobRefused, match=name):
        job.perform()
    assert not planted.exists()


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_hash_that_cannot_be_read_is_no_job(client: redis.Redis, name: str) -> None:
    put(client, name, UNREADABLE[name])
    with pytest.raises(NoSuchJobError):
        fetch(client, name)
    assert OwnJob.fetch_many([name], client, JSONSerializer) == [None]


@pytest.mark.parametrize("name", ["no such job", "a:b", "../x", "ключ", ""])
def test_an_id_that_rq_would_not_give_is_no_job(client: redis.Redis, name: str) -> None:
    with pytest.raises(NoSuchJobError):
        fetch(client, name)


def test_a_key_that_is_no_hash_is_no_job(client: redis.Redis) -> None:
    client.set("rq:job:odd", "text")
    with pytest.raises(NoSuchJobError):
        fetch(client, "odd")


def test_nothing_else_in_the_hash_of_a_pass_is_read(
    queue: OwnQueue, settings: Settings, planted: Path
) -> None:
    name = enqueue_pass(queue, settings, "alice", "token-1")
    hook = Webhook("http://127.0.0.1:9/", "finished")
    strange: dict[Any, Any] = {
        "success_callback_name": HOSTILE,
        "failure_callback_name": HOSTILE,
        "stopped_callback_name": HOSTILE,
        "webhooks": json.dumps([hook.to_dict()]),
        "dependency_ids": '["other"]',
        "group_id": "group",
        "rate_limit_key": "limit",
        "rate_limit_concurrency": 1,
        "retries_left": 3,
        "repeats_left": 3,
        "meta": pickle.dumps(Pickled()),
        "result": pickle.dumps(Pickled()),
        "failure_ttl": -1,
        "ttl": 1,
    }
    queue.connection.hset(f"rq:job:{name}", mapping=strange)
    job = fetch(queue.connection, name)
    assert job.func_name == CONSOLIDATE
    assert (job.success_callback, job.failure_callback, job.stopped_callback) == (None, None, None)
    assert (job.webhooks, job.retries_left, job.repeats_left) == ([], None, None)
    assert (job.dependency_ids, job.group_id, job.rate_limit_key, job.meta) == ([], None, None, {})
    assert job.failure_ttl == FAILURE_TTL_S
    assert not planted.exists()


def test_rq_itself_would_run_them_all(client: redis.Redis, planted: Path) -> None:
    """So that the tests above prove something: the same hashes do harm with RQ's own classes."""
    with_json: dict[str, Any] = {"connection": client, "serializer": JSONSerializer}
    for name in ("os-system", "another-function"):
        Job.fetch(put(client, name, REFUSED[name]), **with_json).perform()
        assert planted.exists()
        planted.unlink()
    job = Job.fetch(put(client, "callbacks", REFUSED["callbacks"]), **with_json)
    callbacks: list[Any] = [job.success_callback, job.failure_callback, job.stopped_callback]
    assert callbacks == [plant] * 3
    _ = Job.fetch(put(client, "a-pickle", REFUSED["a-pickle"]), connection=client).func_name
    assert planted.exists()


# What is told.


def test_a_job_holds_ids_only(queue: OwnQueue, settings: Settings) -> None:
    name = enqueue_pass(queue, settings, "alice", "token-1")
    row: dict[Any, Any] = queue.connection.hgetall(f"rq:job:{name}")
    assert (
        zlib.decompress(row[b"data"])
        == b'["worker.jobs.consolidate", null, ["alice", "token-1"], {}]'
    )
    assert row[b"description"] == b"remq pass token-1"
    assert int(row[b"failure_ttl"]) == FAILURE_TTL_S <= 86_400


def test_a_failure_is_told_without_what_the_error_says() -> None:
    try:
        float("the combination is 7")
    except ValueError as error:
        told = failure(error)
    assert told.startswith("ValueError in test_queue.py, line ")
    assert "combination" not in told
    assert failure(JobRefused("A sentence of ours.")) == "A sentence of ours."
    assert failure(None) == "no reason is known"


def test_a_job_waits_until_it_is_taken(queue: OwnQueue, settings: Settings) -> None:
    assert not is_waiting(queue, "token-1")
    enqueue_pass(queue, settings, "bob", "token-0")
    enqueue_pass(queue, settings, "alice", "token-1")
    assert is_waiting(queue, "token-1")
    assert not is_waiting(queue, "token")
    queue.connection.lpop(QUEUE, 2)
    assert not is_waiting(queue, "token-1")


@pytest.mark.parametrize(
    ("start", "platform", "expected"),
    [
        ("auto", "linux", True),
        ("auto", "darwin", False),
        ("fork", "darwin", True),
        ("spawn", "linux", False),
    ],
)
def test_a_worker_forks_where_that_is_safe(
    monkeypatch: pytest.MonkeyPatch, start: str, platform: str, expected: bool
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    assert forks(Settings(worker_start=start)) is expected


def test_there_is_one_serializer(client: redis.Redis, settings: Settings) -> None:
    for queue in (pass_queue(client, settings), extract_queue(client, settings)):
        assert queue.serializer is JSONSerializer
        assert queue.job_class is OwnJob
