"""The writer: takes events off the stream, checks and clips them, stores each once.

Order for every batch: store, mark due, delete and acknowledge. Each step is safe to repeat, so a
writer may die between any two: what it left is taken over and done again.
"""

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from redis.exceptions import RedisError, ResponseError

from producer.event import Event, EventError, unknown_fields
from worker.config import ConfigStore
from worker.connect import BLOCK_S, Client
from worker.dead import DeadLetters
from worker.errors import RemqError
from worker.keys import Keys
from worker.memory.item import DURABLE
from worker.memory.scripts import Call, run_all
from worker.memory.store import AgentMemory, Written, written
from worker.memory.text import clip
from worker.settings import Settings

log = logging.getLogger("remq.writer")

GROUP = "writers"
#: Events in one script call: keeps a script under 10 ms, and its arguments under Lua's limit.
CALL_SIZE = 200
#: Redelivered entries taken up in one round, one at a time.
RECLAIM_ROUND = 100

Fields = Mapping[bytes, bytes]
Entry = tuple[bytes, Fields]


@dataclass(slots=True)
class Tally:
    """What a writer has done since it started."""

    stored: int = 0
    duplicates: int = 0
    refused: int = 0
    unknown_fields: int = 0

    def public(self) -> dict[str, int]:
        """The shape of `writer --burst --json`."""
        return asdict(self)

    def sentence(self) -> str:
        """The same for people."""
        return (
            f"{self.stored} stored, {self.duplicates} seen before, {self.refused} refused, "
            f"{self.unknown_fields} unknown fields left out."
        )


@dataclass(slots=True)
class Batch:
    """One batch sorted out: what is to be stored for each agent, and what was refused."""

    events: dict[str, list[Event]] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    refused: list[tuple[bytes, Fields, str]] = field(default_factory=list)
    unknown: int = 0


class Writer:
    """One member of the consumer group. Any number run side by side."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        config: ConfigStore,
        *,
        extract: Callable[[str, Sequence[int]], None] | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.config = config
        self.keys = Keys(settings.prefix)
        self.dead = DeadLetters(client, self.keys, settings.dead_max)
        self.extract = extract
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.tally = Tally()
        self.stopping = False
        self._place = b"-"

    def stop(self) -> None:
        """Finish the batch in hand, then stop."""
        self.stopping = True

    def run(self, *, burst: bool = False) -> Tally:
        """Take events until told to stop, or with `burst` until none is left.

        An entry another consumer holds counts as left until it is stored or was taken over.
        """
        self.create_group()
        while not self.stopping:
            try:
                busy = self.reclaim() + self.take(block=not burst)
            except ResponseError as error:
                if not str(error).startswith("NOGROUP"):
                    raise
                # A flushed or replaced server: begin again; stored events are known by their ids.
                log.warning("consumer group is gone, creating it again")
                self.create_group()
                continue
            if burst and not busy and not self.pending():
                break
        self._leave()
        return self.tally

    def create_group(self) -> None:
        """Create the stream and its group, from the first entry on; fine if they exist."""
        try:
            self.client.xgroup_create(self.keys.events, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def pending(self) -> int:
        """Entries delivered to any writer and not yet stored. Waits a moment if there are some."""
        count = int(self.client.xpending(self.keys.events, GROUP)["pending"])
        if count:
            time.sleep(0.05)
        return count

    def take(self, *, block: bool) -> int:
        """Take and store one batch of new events; how many."""
        answer = self.client.xreadgroup(
            GROUP,
            self.name,
            {self.keys.events: ">"},
            count=self.settings.batch,
            block=int(BLOCK_S * 1000) if block else None,
        )
        entries = [entry for stream in _streams(answer) for entry in stream]
        if entries:
            self.store(entries)
        return len(entries)

    def reclaim(self) -> int:
        """Take over entries that stayed too long with a consumer, also our own lost ones; how many.

        One at a time, so that an event which kills its reader raises no neighbour's count of
        deliveries. The place in the list is carried on from call to call and wraps around.
        """
        waiting = self.client.xpending_range(
            self.keys.events,
            GROUP,
            self._place,
            "+",
            RECLAIM_ROUND,
            idle=int(self.settings.reclaim_idle_s * 1000),
        )
        for entry in waiting:
            if self.stopping:
                break
            self._redelivered(entry["message_id"], int(entry["times_delivered"]))
        full = len(waiting) == RECLAIM_ROUND
        self._place = b"(" + waiting[-1]["message_id"] if full else b"-"
        return len(waiting)

    def store(self, entries: list[Entry]) -> None:
        """Store a batch: write, mark due, record what was refused, then delete and acknowledge."""
        batch = self.sort(entries)
        self.write(batch)
        for entry_id, fields, reason in batch.refused:
            self.dead.add(entry_id, fields, reason)
        self._acknowledge([entry_id for entry_id, _ in entries])
        self.tally.refused += len(batch.refused)
        self.tally.unknown_fields += batch.unknown
        for entry_id, _, reason in batch.refused:
            log.info("refused event entry=%s: %s", entry_id.decode(), reason)

    def sort(self, entries: list[Entry]) -> Batch:
        """Check and clip each event; bad ones harm no neighbour."""
        batch = Batch()
        for entry_id, fields in entries:
            arrived = int(entry_id.partition(b"-")[0]) / 1000
            batch.unknown += len(unknown_fields(fields))
            try:
                event = Event.from_fields(fields, arrived=arrived, entry_id=entry_id.decode())
            except EventError as error:
                batch.refused.append((entry_id, fields, str(error)))
                continue
            batch.events.setdefault(event.agent, []).append(self._clipped(event))
            batch.arrived[event.agent] = max(arrived, batch.arrived.get(event.agent, 0))
        return batch

    def write(self, batch: Batch) -> None:
        """Store the events of a batch, each once, and mark the agents whose pass may come due."""
        if not batch.events:
            return
        first_ids = self._reserve(batch)
        calls, owners = self._calls(batch, first_ids)
        outcomes: dict[str, Written] = {}
        for agent, answer in zip(owners, run_all(self.client, calls), strict=True):
            if isinstance(answer, RedisError):
                raise answer
            outcomes[agent] = outcome = written(answer)
            self.tally.stored += outcome.stored
            self.tally.duplicates += outcome.duplicates
        self._mark(batch, outcomes)
        for agent, events in batch.events.items():
            if outcomes[agent].stored:
                self._extract(agent, first_ids[agent], len(events))

    def _extract(self, agent: str, first_id: int, count: int) -> None:
        """Ask for entities and topics of what was just stored. A fault never blocks a write."""
        if self.extract is None:
            return
        try:
            self.extract(agent, range(first_id, first_id + count))
        except (RedisError, RemqError) as error:
            log.warning("extraction not asked for agent=%s: %s", agent, type(error).__name__)

    def _clipped(self, event: Event) -> Event:
        durable = event.tier == DURABLE
        limit = self.settings.durable_clip if durable else self.settings.episodic_clip
        text = clip(event.text, limit)
        return event if text is event.text else replace(event, text=text)

    def _reserve(self, batch: Batch) -> dict[str, int]:
        pipe = self.client.pipeline(transaction=False)
        for agent, events in batch.events.items():
            pipe.incrby(self.keys.agent(agent).ids, len(events))
        lasts = zip(batch.events.items(), pipe.execute(), strict=True)
        return {agent: int(last) - len(events) + 1 for (agent, events), last in lasts}

    def _calls(self, batch: Batch, first_ids: dict[str, int]) -> tuple[list[Call], list[str]]:
        now = time.time()
        calls: list[Call] = []
        owners: list[str] = []
        for agent, events in batch.events.items():
            memory = AgentMemory(
                self.client, self.keys.agent(agent), feed_max=self.settings.feed_max
            )
            for start in range(0, len(events), CALL_SIZE):
                part = events[start : start + CALL_SIZE]
                calls.append(memory.write_call(part, first_ids[agent] + start, now))
                owners.append(agent)
        return calls, owners

    def _mark(self, batch: Batch, outcomes: dict[str, Written]) -> None:
        """Note each agent's last event, and when its next pass may start if enough waits."""
        now = time.time()
        shared, _ = self.config.for_all()
        pipe = self.client.pipeline(transaction=False)
        for agent, outcome in outcomes.items():
            pipe.zadd(self.keys.agents, {agent: batch.arrived[agent]}, gt=True)
            if outcome.waiting >= shared.min_items:
                pipe.zadd(self.keys.due, {agent: max(now, outcome.not_before)}, lt=True)
        pipe.execute()

    def _redelivered(self, entry_id: bytes, deliveries: int) -> None:
        """Take over and store one entry; one delivered too often is a dead letter.

        The claim goes to one of several writers that try. An entry that was deleted meanwhile is
        forgotten by the claim from 7.0 on, and comes back empty on 6.2.
        """
        idle_ms = int(self.settings.reclaim_idle_s * 1000)
        claimed = self.client.xclaim(self.keys.events, GROUP, self.name, idle_ms, [entry_id])
        for _, fields in claimed:
            if not fields:
                self.client.xack(self.keys.events, GROUP, entry_id)
            elif deliveries >= self.settings.max_deliveries:
                reason = f"it was delivered {deliveries} times and never stored"
                self.dead.add(entry_id, fields, reason)
                self._acknowledge([entry_id])
                self.tally.refused += 1
                log.warning("gave up on event entry=%s: %s", entry_id.decode(), reason)
            else:
                self.store([(entry_id, fields)])

    def _acknowledge(self, ids: list[bytes]) -> None:
        """Delete and acknowledge in one step; an entry that was only acknowledged would stay."""
        pipe = self.client.pipeline(transaction=True)
        pipe.xdel(self.keys.events, *ids)
        pipe.xack(self.keys.events, GROUP, *ids)
        pipe.execute()

    def _leave(self) -> None:
        """Take this consumer off the group, unless entries still stand under its name."""
        held = self.client.xpending_range(self.keys.events, GROUP, "-", "+", 1, self.name)
        if not held:
            self.client.xgroup_delconsumer(self.keys.events, GROUP, self.name)


def _streams(answer: Any) -> list[list[Entry]]:
    """The entries of each stream, in the shape of either protocol; deleted ones are empty."""
    streams = answer.values() if isinstance(answer, dict) else (pair[1] for pair in answer or ())
    found = []
    for entries in streams:
        rows = entries[0] if entries and isinstance(entries[0], list) else entries
        found.append([(row[0], row[1] or {}) for row in rows if row and row[0] is not None])
    return found
