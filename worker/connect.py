"""Connections of the roles and commands, and what went wrong with one in words.

Connections read bytes: one bad byte in a stranger's event must not fail a whole batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    InvalidResponse,
    MaxConnectionsError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as ServerConnectionError
from redis.exceptions import TimeoutError as ServerTimeoutError

from producer.connect import SCHEMES, shown
from producer.connect import connect as open_url
from worker.errors import SettingsError, StoreError, StoreUnavailable
from worker.settings import Settings

__all__ = [
    "BLOCK_S",
    "SCHEMES",
    "SERVER_FAULTS",
    "Client",
    "Connect",
    "ServerFault",
    "by_url",
    "in_full",
    "memory",
    "queue",
    "sentence",
    "shown",
    "spoken",
]

#: Longer than any BLOCK we ask for, so that a quiet server is not taken for a dead one.
SOCKET_TIMEOUT_S = 10.0
#: The longest a blocking read waits.
BLOCK_S = 2.0

#: A server that answers at all; `Any` since redis-py types its cluster apart from its client.
Client = Any
#: Opens a connection to a URL; for None to RQ's server: `REMQ_QUEUE_URL`, else the memory's.
Connect = Callable[[str | None], Client]

#: What redis-py raises when a server fails; a cluster's own faults are no RedisError.
SERVER_FAULTS = (RedisError, RedisClusterException)
ServerFault = RedisError | RedisClusterException


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


def queue(settings: Settings, *, retries: int = 3, timeout_s: float = SOCKET_TIMEOUT_S) -> Client:
    """Connect to RQ's server (`REMQ_QUEUE_URL`, or the memory's)."""
    url = settings.queue_place
    if url is None:
        return memory(settings)
    return by_url(url.get_secret_value(), retries=retries, timeout_s=timeout_s)


def by_url(url: str, *, retries: int = 3, timeout_s: float = SOCKET_TIMEOUT_S) -> Client:
    """Connect to a URL; nothing is sent before the first command, but to a cluster.

    Raises SettingsError for a URL of another form, StoreError where a cluster does not answer.
    """
    try:
        with spoken(url):
            return open_url(url, timeout_s=timeout_s, retries=retries)
    except ValueError as error:
        raise SettingsError(str(error)) from None


def in_full(url: SecretStr | None) -> str:
    """A server's URL with its password, to connect or to name it by; words where none is set."""
    return url.get_secret_value() if url else "the server"


@contextmanager
def spoken(url: str) -> Iterator[None]:
    """Turn a fault of the server into one sentence about `url`."""
    try:
        yield
    except SERVER_FAULTS as error:
        raise sentence(error, url) from error


def sentence(error: ServerFault, url: str) -> StoreError:
    """Say what a fault means and what to do; never with a password or a value."""
    place = shown(url)
    if isinstance(error, RedisClusterException):
        return StoreUnavailable(f"{place} is no cluster that answers ({type(error).__name__}).")
    if "NOAUTH" in str(error) or "Authentication required" in str(error):
        return StoreError(f"{place} wants a password: put it into the URL.")
    if isinstance(error, AuthenticationError) or "WRONGPASS" in str(error):
        return StoreError(
            f"{place} refused the user or password: check the URL, as in redis://user:password@host"
        )
    if isinstance(error, NoPermissionError):
        return StoreError(f"{place} does not let this user do that: check its ACL.")
    for kinds, text in _MEANINGS:
        if isinstance(error, kinds):
            return StoreUnavailable(text.format(place=place))
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
