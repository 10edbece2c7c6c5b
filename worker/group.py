"""The events stream as one of its readers sees it: take entries, take over lost ones, finish."""

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from worker.connect import BLOCK_S, Client

#: The consumer group of all writers.
GROUP = "writers"

Fields = Mapping[bytes, bytes]
Entry = tuple[bytes, Fields]


@dataclass(frozen=True, slots=True)
class Lingering:
    """An entry that has stayed with a consumer, and how often it was handed out."""

    id: bytes
    deliveries: int


class Consumer:
    """One member of the group, under a name of its own."""

    def __init__(self, client: Client, stream: str, idle_s: float) -> None:
        """`idle_s` is how long an entry may stay with a consumer before another takes it over."""
        self.client = client
        self.stream = stream
        self.idle_ms = int(idle_s * 1000)
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"

    def join(self) -> None:
        """Create the stream and its group, from the first entry on; fine if they exist."""
        try:
            self.client.xgroup_create(self.stream, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def leave(self) -> None:
        """Leave the group, unless entries still stand under this name."""
        if not self.client.xpending_range(self.stream, GROUP, "-", "+", 1, self.name):
            self.client.xgroup_delconsumer(self.stream, GROUP, self.name)

    def read(self, count: int, *, block: bool) -> list[Entry]:
        """New entries, at most `count`; with `block` it waits up to `BLOCK_S` for some."""
        answer = self.client.xreadgroup(
            GROUP,
            self.name,
            {self.stream: ">"},
            count=count,
            block=int(BLOCK_S * 1000) if block else None,
        )
        return _entries(answer)

    def finish(self, ids: Sequence[bytes]) -> None:
        """Delete and acknowledge in one step; an entry that was only acknowledged would stay."""
        if not ids:
            return
        pipe = self.client.pipeline(transaction=True)
        pipe.xdel(self.stream, *ids)
        pipe.xack(self.stream, GROUP, *ids)
        pipe.execute()

    # Entries that were handed out and not finished, by anyone.

    def unfinished(self) -> int:
        """How many there are."""
        return int(self.client.xpending(self.stream, GROUP)["pending"])

    def lingering(self, start: bytes, count: int) -> list[Lingering]:
        """Those that stayed too long with a consumer, from `start` on; also our own lost ones."""
        rows = self.client.xpending_range(self.stream, GROUP, start, "+", count, idle=self.idle_ms)
        return [Lingering(row["message_id"], int(row["times_delivered"])) for row in rows]

    def take_over(self, entry_id: bytes) -> Fields | None:
        """Claim one entry; None where another was faster, or the entry was deleted meanwhile.

        A deleted one is forgotten by the claim from 7.0 on, and comes back empty on 6.2.
        """
        for _, fields in self.client.xclaim(
            self.stream, GROUP, self.name, self.idle_ms, [entry_id]
        ):
            if fields:
                return dict(fields)
            self.client.xack(self.stream, GROUP, entry_id)
        return None

    def uncount(self, lost: Lingering) -> None:
        """Take back the delivery that `take_over` counted: the entry was not what failed."""
        self.client.xclaim(
            self.stream, GROUP, self.name, 0, [lost.id], retrycount=lost.deliveries, justid=True
        )


def _entries(answer: Any) -> list[Entry]:
    """The entries of one stream, in the shape of either protocol; deleted ones are empty."""
    streams = answer.values() if isinstance(answer, dict) else (pair[1] for pair in answer or ())
    found: list[Entry] = []
    for entries in streams:
        rows = entries[0] if entries and isinstance(entries[0], list) else entries
        found += [(row[0], row[1] or {}) for row in rows if row and row[0] is not None]
    return found
