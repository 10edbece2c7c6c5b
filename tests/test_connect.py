"""Which server a connection leads to, and a fault of it in one sentence."""

import pytest
import redis
from redis.exceptions import RedisClusterException

from worker import connect
from worker.connect import ServerFault
from worker.errors import SettingsError, StoreError, StoreUnavailable
from worker.settings import Settings

PLACE = "redis://me:hunter2@10.0.0.1:6379/0"


@pytest.mark.parametrize(
    "fault",
    [
        RedisClusterException("Redis Cluster cannot be connected: hunter2"),
        redis.ConnectionError("Error 111 connecting to hunter2"),
    ],
    ids=repr,
)
def test_a_fault_is_spoken_of_without_the_password(fault: ServerFault) -> None:
    named = r"^redis://10\.0\.0\.1:6379/0 "
    with pytest.raises(StoreUnavailable, match=named) as said, connect.spoken(PLACE):
        raise fault
    assert "hunter2" not in str(said.value)


def test_what_is_no_fault_of_the_server_passes() -> None:
    with pytest.raises(StoreError, match="own sentence"), connect.spoken(PLACE):
        raise StoreError("own sentence")


def test_without_a_queue_server_it_is_the_memory_s() -> None:
    def port(settings: Settings) -> int:
        return int(connect.queue(settings).connection_pool.connection_kwargs["port"])

    assert port(Settings(redis_url="redis://127.0.0.1:1", queue_url=None)) == 1
    assert port(Settings(redis_url="redis://127.0.0.1:1", queue_url="redis://127.0.0.1:2")) == 2
    with pytest.raises(SettingsError, match="REMQ_REDIS_URL is not set"):
        connect.queue(Settings(redis_url=None, queue_url=None))
