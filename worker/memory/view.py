"""Recall from a view of the changes feed: always what was stored before the question.

Before each answer one round trip reads where the memory stands and what has changed since. Another
epoch, a revision behind our own or a hole in the feed mean a rebuild: an empty feed alone proves
nothing, since after a flush or a trim reading it is silent.
"""

import logging
from collections.abc import Mapping

from worker.memory.recall import Hit, MemoryIndex
from worker.memory.store import AgentMemory, Position

log = logging.getLogger("remq.recall")

#: Changes read at once; further behind, a rebuild is as cheap.
CATCH_UP = 5000

Entry = tuple[bytes, Mapping[bytes, bytes]]


class MemoryView:
    """One agent's memories as an index that follows the server."""

    def __init__(self, memory: AgentMemory) -> None:
        self.memory = memory
        self.index = MemoryIndex()
        self.at = Position("", 0)

    def recall(self, query: str, k: int, *, now: float) -> list[Hit]:
        """The best `k` memories for a query, with values as they are before it is counted."""
        self.refresh()
        return self.index.rank(query, k, now=now)

    def refresh(self) -> None:
        """Catch up with the server."""
        stands, feed = self._read()
        if stands == self.at:
            return
        if self._continues(stands, feed) and self._follow(feed):
            self.at = stands
        else:
            self._rebuild()

    def _follow(self, feed: list[Entry]) -> bool:
        """Apply the changes in order; False for one that is none of ours."""
        try:
            for _, change in feed:
                self._apply(change)
        except (KeyError, ValueError) as error:
            log.warning(
                "unreadable change agent=%s: %s", self.memory.keys.agent, type(error).__name__
            )
            return False
        return True

    def _read(self) -> tuple[Position, list[Entry]]:
        keys = self.memory.keys
        # One transaction, so that position and feed belong together.
        pipe = self.memory.client.pipeline(transaction=True)
        pipe.get(keys.epoch)
        pipe.get(keys.rev)
        pipe.xrange(keys.changes, f"({self.at.rev}-0", "+", CATCH_UP)
        epoch, rev, feed = pipe.execute()
        return Position((epoch or b"").decode(), int(rev or 0)), feed

    def _continues(self, stands: Position, feed: list[Entry]) -> bool:
        """Whether the feed holds every revision from ours to where the memory stands."""
        same_life = stands.epoch == self.at.epoch and stands.rev >= self.at.rev
        return same_life and len(feed) == stands.rev - self.at.rev

    def _rebuild(self) -> None:
        """Read the whole memory. What changes meanwhile is caught up with at the next look."""
        at, index = self.memory.position(), MemoryIndex()
        for item in self.memory.all_items():
            index.put(item)
        # Together and last, so that a read which fails half-way leaves no half an index.
        self.at, self.index = at, index
        log.info("index built agent=%s items=%d", self.memory.keys.agent, len(self.index))

    def _apply(self, change: Mapping[bytes, bytes]) -> None:
        """Apply one entry of the feed. An item that is gone by now has its own entry further on."""
        parts = change[b"data"].decode().split(",")
        match change[b"op"]:
            case b"put":
                for item in self.memory.items(int(part) for part in parts):
                    self.index.put(item)
            case b"delete":
                for part in parts:
                    self.index.remove(int(part))
            case b"touch":
                for part in parts:
                    item_id, _, count = part.partition(":")
                    self.index.touch(int(item_id), int(count), float(change[b"at"]))
            case b"rerate":
                for part in parts:
                    item_id, _, salience = part.partition(":")
                    self.index.rerate(int(item_id), float(salience))
            case _:
                raise ValueError("unknown operation")
