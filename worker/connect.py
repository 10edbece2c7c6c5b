"""Open connections to Redis or Valkey, and say in words what went wrong.

Connections read bytes: one bad byte in a stranger's event must not fail a whole batch.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError as ServerConnectionError,
    InvalidResponse,
    MaxConnectionsError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError as ServerTimeoutError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from worker.errors import SettingsError, StoreError, StoreUnavailable
from worker.settings import Settings

#: Longer than any BLOCK we ask for, so that a quiet server is not taken for a dead one.
SOCKET_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
#: The longest a blocking read waits.
BLOCK_S = 2.0

#: A server that answers at all; `Any` since redis-py types its cluster apart from its client.
Client = Any

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")


def memory(settings: Settings, *, retries: int = 3) -> Client:
    """Connect to the memory's server (`REMQ_REDIS_URL`).

    `retries` is how often the client library repeats a command by itself; 0 for commands that
    must not run twice. Raises SettingsError where no URL is set or its form is unknown.
    """
    if settings.redis_url is None:
        raise SettingsError(
            "REMQ_REDIS_URL is not set: name the server, e.g. redis://127.0.0.1:6379/0, "
            "or start one with `remq up`."
        )
    return by_url(settings.redis_url.get_secret_value(), retries=retries)


def queue(settings: Settings) -> Client:
    """Connect to RQ's server (`REMQ_QUEUE_URL`, or the memory's)."""
    if settings.queue_url is None:
        return memory(settings)
    return by_url(settings.queue_url.get_secret_value())


def by_url(url: str, *, retries: int = 3, timeout_s: float = SOCKET_TIMEOUT_S) -> Client:
    """Connect to `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or `redis+cluster://`.

    Nothing is sent before the first command. Raises SettingsError for a URL of another form.
    """
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(timeout_s, CONNECT_TIMEOUT_S),
        "health_check_interval": 30,
        "retry": Retry(ExponentialBackoff(cap=1.0, base=0.05), retries),
    }
    scheme = url.partition("://")[0]
    try:
        if scheme in {"redis", "rediss", "unix"}:
            return redis.Redis.from_url(url, **options)
        if scheme == "redis+sentinel":
            return _by_sentinel(url, options)
        if scheme == "redis+cluster":
            return _cluster(url, options)
    except ValueError as error:
        raise SettingsError(f"The server's URL {shown(url)} cannot be read: {error}.") from None
    raise SettingsError(
        f"The server's URL {shown(url)} has an unknown form: it begins with one of "
        + ", ".join(f"{name}://" for name in SCHEMES)
        + "."
    )


def shown(url: str) -> str:
    """A URL without its user and password, for people and logs."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


def _hosts(
    url: str, default_port: int
) -> tuple[list[tuple[str, int]], str | None, str | None, str]:
    """Split a URL of several hosts into hosts, user, password and path."""
    rest = url.partition("://")[2].partition("?")[0]
    places, _, path = rest.partition("/")
    login, at, hosts = places.rpartition("@")
    one = urlsplit(f"redis://{login}@x") if at else None
    pairs = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":") if re.search(r":\d+$", host) else (host, "", "")
        if not name:
            raise ValueError("a host is missing")
        pairs.append((name.strip("[]"), int(port) if port else default_port))
    return pairs, (one and one.username) or None, (one and one.password) or None, path


def _by_sentinel(url: str, options: dict[str, Any]) -> Client:
    hosts, user, password, path = _hosts(url, 26379)
    service, _, database = path.partition("/")
    if not service:
        raise ValueError("it names no service, as in redis+sentinel://host:26379/mymaster/0")
    sentinel = Sentinel(hosts, socket_timeout=CONNECT_TIMEOUT_S)
    return sentinel.master_for(
        service, db=int(database or 0), username=user, password=password, **options
    )


def _cluster(url: str, options: dict[str, Any]) -> Client:
    hosts, user, password, _ = _hosts(url, 6379)
    nodes = [ClusterNode(host, port) for host, port in hosts]
    with spoken(url):
        return RedisCluster(startup_nodes=nodes, username=user, password=password, **options)


@contextmanager
def spoken(url: str) -> Iterator[None]:
    """Turn a fault of the server into one sentence about `url`."""
    try:
        yield
    except RedisError as error:
        raise sentence(error, url) from error


def sentence(error: RedisError, url: str) -> StoreError:
    """Say what a fault means and what to do; never with a password or a value."""
    place = shown(url)
    if isinstance(error, AuthenticationError) or "WRONGPASS" in str(error):
        return StoreError(
            f"{place} refused the user or password: check the URL, as in redis://user:password@host"
        )
    if isinstance(error, NoPermissionError):
        return StoreError(f"{place} does not let this user do that: check its ACL.")
    for kinds, text in _MEANINGS:
        if isinstance(error, kinds):
            return StoreUnavailable(text.format(place=place))
    if isinstance(error, ResponseError) and "NOAUTH" in str(error):
        return StoreError(f"{place} wants a password: put it into the URL.")
    return StoreError(f"{place} refused a command ({type(error).__name__}): {_first_word(error)}.")


_MEANINGS: tuple[tuple[type[RedisError] | tuple[type[RedisError], ...], str], ...] = (
    (InvalidResponse, "{place} does not speak Redis: check the host and port."),
    (BusyLoadingError, "{place} is still loading its data: try again in a moment."),
    (ReadOnlyError, "{place} is a read-only replica: name the primary, or use redis+sentinel://."),
    (OutOfMemoryError, "{place} is at its memory limit: raise maxmemory or free some."),
    (MaxConnectionsError, "{place} takes no more connections."),
    (ServerTimeoutError, "{place} did not answer in time: is the server overloaded or frozen?"),
    (ServerConnectionError, "{place} cannot be reached: is the server running there?"),
)


def _first_word(error: RedisError) -> str:
    """The error's code alone, e.g. MISCONF: the rest may quote a value."""
    words = str(error).split()
    return words[0] if words and words[0].isupper() else "see the server's log"


#: Opens a connection to a URL, or to the memory's own server for None.
Connect = Callable[[str | None], Client]
