"""What tests of the writer have in common: put entries on the stream, store them, look at them."""

import itertools
from typing import Any

import redis

from worker.dead import DeadLetter, DeadLetters
from worker.group import GROUP
from worker.keys import Keys
from worker.settings import Settings
from worker.stores import config_store
from worker.writer import Tally, Writer

KEYS = Keys()
_numbers = itertools.count()


def add(client: redis.Redis, entry_id: str = "*", **fields: Any) -> bytes:
    """Put one event of alice on the stream, as a shell would; the entry's id."""
    given: Any = {"agent": "alice", "text": f"memory {next(_numbers)}", **fields}
    entry: Any = client.xadd(KEYS.events, given, id=entry_id)
    return bytes(entry)


def make_writer(client: redis.Redis, settings: Settings, **options: Any) -> Writer:
    """A writer that has joined the group."""
    writer = Writer(client, settings, config_store(client, settings), **options)
    writer.join()
    return writer


def store_all(client: redis.Redis, settings: Settings) -> Tally:
    """Have a writer store all that is on the stream."""
    return Writer(client, settings, config_store(client, settings)).run(burst=True)


def letters(client: redis.Redis) -> list[DeadLetter]:
    """Every dead letter."""
    return list(DeadLetters(client, KEYS, 10_000).list())


def pending(client: redis.Redis) -> dict[bytes, int]:
    """The entries handed out and not finished, each with its count of deliveries."""
    rows: Any = client.xpending_range(KEYS.events, GROUP, "-", "+", 10_000)
    return {row["message_id"]: row["times_delivered"] for row in rows}


def assert_nothing_left(client: redis.Redis) -> None:
    """Stream and pending entries are empty."""
    assert client.xlen(KEYS.events) == 0
    assert pending(client) == {}
