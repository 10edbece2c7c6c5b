"""An outage is sat out: one line a second, growing pauses, and a stop is heard at once."""

import logging

import pytest
import redis
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
)

from worker.errors import StoreUnavailable
from worker.outage import Fault, Outage, is_about_data, is_group_gone
from worker.settings import Settings

LOG = logging.getLogger("remq.writer")


def test_a_stop_ends_the_pause_at_once(settings: Settings) -> None:
    told: list[bool] = []
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        told.append(True)

    outage = Outage(logging.getLogger(), settings, stopping=lambda: bool(told), sleep=sleep)
    for _ in range(5):
        outage.wait(redis.ConnectionError("gone"))
    assert len(pauses) == 1


def test_it_says_so_once_a_second_at_most_and_never_the_password(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    secret = Settings(redis_url="redis://me:hunter2@10.0.0.1:6379/0")
    outage = Outage(
        LOG, secret, stopping=bool,
        sleep=lambda _: None, clock=lambda: now[0],
    )  # fmt: skip
    for _ in range(30):
        outage.wait(redis.ConnectionError("Error 111 connecting to hunter2"))
        now[0] += 0.1
    outage.over()
    assert len(caplog.records) == 3 + 1
    assert caplog.messages[0] == (
        "redis://10.0.0.1:6379/0 cannot be reached: is the server running there? Waiting for it."
    )
    assert caplog.messages[-1] == "the server answers again"
    assert "hunter2" not in caplog.text


def test_the_pauses_grow_and_begin_anew_once_the_server_answers(settings: Settings) -> None:
    pauses: list[float] = []
    outage = Outage(LOG, settings, stopping=bool, sleep=pauses.append)
    for _ in range(9):
        outage.wait(redis.ConnectionError("gone"))
    # 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, then 5 s each, cut into steps of a tenth.
    assert sum(pauses) == pytest.approx(6.3 + 3 * 5)
    assert max(pauses) <= 0.1

    outage.over()
    pauses.clear()
    outage.wait(redis.ConnectionError("gone"))
    assert pauses == [0.1]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (redis.ConnectionError("x"), "cannot be reached"),
        (OutOfMemoryError("command not allowed"), "is at its memory limit"),
        (redis.ResponseError("WRONGTYPE a key of secret"), "refused a command"),
        (StoreUnavailable("redis://other cannot be reached."), "redis://other cannot be reached."),
        (RedisClusterException("secret"), "is no cluster that answers (RedisClusterException)"),
    ],
)
def test_a_fault_is_said_without_values(settings: Settings, error: Fault, said: str) -> None:
    sentence = Outage(LOG, settings, stopping=bool).said(error)
    assert said in sentence
    assert "secret" not in sentence


@pytest.mark.parametrize(
    "error",
    [
        redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        redis.ResponseError(
            "Error running script (call to f_1): @user_script:14: WRONGTYPE Operation against a key"
        ),
        redis.ResponseError("write: arguments do not fit keys"),
    ],
)
def test_what_is_wrong_with_the_data(error: Fault) -> None:
    assert is_about_data(error)


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("gone"),
        redis.TimeoutError("slow"),
        BusyLoadingError("loading"),
        ReadOnlyError("replica"),
        NoPermissionError("no"),
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        ClusterDownError("CLUSTERDOWN Hash slot not served"),
        RedisClusterException("no cluster"),
        redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"),
        redis.ResponseError("NOREPLICAS Not enough good replicas to write."),
        redis.ResponseError("BUSY Redis is busy running a script."),
        redis.ResponseError(
            "Error running script (call to f_1): @user_script:10: -OOM command not allowed"
        ),
    ],
    ids=repr,
)
def test_what_is_wrong_with_the_server(error: Fault) -> None:
    assert not is_about_data(error)
    assert not is_group_gone(error)


@pytest.mark.parametrize(
    "text",
    [
        "NOGROUP No such key 'remq:events' or consumer group 'writers' in XREADGROUP",
        "UNBLOCKED the stream key no longer exists",
    ],
)
def test_a_group_that_is_gone(text: str) -> None:
    assert is_group_gone(redis.ResponseError(text))
