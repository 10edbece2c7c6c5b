"""A connection that remembers what it sent: each write is one round trip to the server."""

from collections.abc import Iterable
from hashlib import sha1
from importlib.resources import files
from typing import Any

import hiredis
import redis

from worker.connect import Client

# redis-py's connections have no types.
Base: Any = redis.Connection


class NotedConnection(Base):  # type: ignore[misc]
    """A connection of redis-py that keeps every write in `sent`, packed as it went out."""

    def __init__(self, *, sent: list[bytes], **options: Any) -> None:
        self._kept = sent
        super().__init__(**options)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send, and keep what was sent."""
        parts = [command] if isinstance(command, str | bytes) else command
        self._kept.append(
            b"".join(part.encode() if isinstance(part, str) else part for part in parts)
        )
        super().send_packed_command(command, check_health)


def noted(client: Client) -> list[bytes]:
    """Let a client that has not connected yet note what it sends; the list that fills."""
    sent: list[bytes] = []
    client.connection_pool.connection_class = NotedConnection
    client.connection_pool.connection_kwargs["sent"] = sent
    return sent


def spelled(sent: Iterable[bytes]) -> list[list[str]]:
    """The commands of each round trip; a script stands under its own name."""
    scripts = _script_names()
    return [[_name(command, scripts) for command in _commands(one)] for one in sent]


def _commands(packed: bytes) -> Iterable[list[bytes]]:
    # A command is an array of strings, which the reader of answers reads as well.
    reader = hiredis.Reader()
    reader.feed(packed)
    while (command := reader.gets()) is not False:
        yield command


def _name(command: list[bytes], scripts: dict[str, str]) -> str:
    name = command[0].decode().upper()
    return f"{scripts[command[1].decode()]}.lua" if name == "EVALSHA" else name


def _script_names() -> dict[str, str]:
    folder = files("worker.memory").joinpath("lua")
    return {
        sha1(script.read_bytes(), usedforsecurity=False).hexdigest(): script.name.partition(".")[0]
        for script in folder.iterdir()
    }
