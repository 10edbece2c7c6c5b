"""The writer: takes events off the stream, checks and clips them, stores each once.

Order for every batch: store, mark due, delete and acknowledge. Each step is safe to repeat, so a
writer may die between any two: what it left is taken over and done again.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from redis.exceptions import RedisError

from worker.batch import Batch, Share, sort_out
from worker.config import Config, ConfigStore
from worker.connect import Client
from worker.dead import DeadLetters
from worker.errors import RemqError
from worker.group import Consumer, Entry, Fields, Lingering
from worker.keys import Keys
from worker.memory.scripts import Call, run_all
from worker.memory.store import AgentMemory, written
from worker.outage import FAULTS, Fault, Outage, is_about_data, is_group_gone
from worker.settings import Settings

__all__ = ["Tally", "Writer"]

log = logging.getLogger("remq.writer")

#: Events in one script call: keeps a script under 10 ms, and its arguments under Lua's limit.
CALL_SIZE = 200
#: Redelivered entries taken up in one round, one at a time.
RECLAIM_ROUND = 100
#: How long extraction is left alone after a fault, so that a dead queue does not slow storing down.
EXTRACT_PAUSE_S = 30
#: From one look to the next at what other writers hold, while a burst waits for them.
BURST_LOOK_S = 0.05


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


class Writer:
    """One member of the consumer group. Any number run side by side."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        config: ConfigStore,
        *,
        extract: Callable[[str, Sequence[int]], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`extract` asks for entities and topics of an agent's new items, given their ids."""
        self.client = client
        self.settings = settings
        self.config = config
        self.extract = extract
        self.clock = clock
        self.keys = Keys(settings.prefix)
        self.dead = DeadLetters(client, self.keys, settings.dead_max)
        self.consumer = Consumer(client, self.keys.events, settings.reclaim_idle_s)
        self.outage = Outage(log, settings, stopping=lambda: self.stopping)
        self.tally = Tally()
        self.stopping = False
        self._joined = False
        self._place = b"-"
        self._extract_from = 0.0
        #: Refusals since the last line about them.
        self._untold = 0

    @property
    def name(self) -> str:
        """This writer's name in the consumer group."""
        return self.consumer.name

    def stop(self) -> None:
        """Finish the batch in hand, then stop."""
        self.stopping = True

    def run(self, *, burst: bool = False) -> Tally:
        """Take events until told to stop, or with `burst` until none is left.

        An entry another consumer holds counts as left until it is stored or was taken over.
        A server that fails later on is waited for, but by a burst; one that does not answer at the
        start raises redis-py's errors.
        """
        self.join()
        while not self.stopping:
            try:
                if not self._round(burst=burst):
                    break
                self.outage.over()
            except FAULTS as error:
                self._meet(error, burst=burst)
        self._leave()
        return self.tally

    def join(self) -> None:
        """Create the consumer group if there is none."""
        self.consumer.join()
        self._joined = True

    def _meet(self, error: Fault, *, burst: bool) -> None:
        """Make good for a lost group, wait for a failing server; a burst raises instead."""
        if is_group_gone(error):
            # Begin again from the first entry; stored events are known by their ids.
            self._joined = False
            self.outage.warn("the consumer group is gone, creating it again")
        elif burst:
            raise error
        else:
            self.outage.wait(error)

    def _leave(self) -> None:
        """Leave the group if the server answers; a name left behind does no harm."""
        if not self.outage.lasts:
            with suppress(*FAULTS):
                self.consumer.leave()

    def _round(self, *, burst: bool) -> bool:
        """Take over what lingers, then take new events; whether to go on."""
        if not self._joined:
            self.join()
        busy = self.reclaim()
        if not self.stopping:
            busy += self.take(block=not burst)
        if not burst or busy:
            return True
        if not self.consumer.unfinished():
            return False
        time.sleep(BURST_LOOK_S)
        return True

    def take(self, *, block: bool) -> int:
        """Take and store one batch of new events; how many."""
        entries = self.consumer.read(self.settings.batch, block=block)
        if entries:
            self.store(entries)
        return len(entries)

    def reclaim(self) -> int:
        """Take over entries that stayed too long with a consumer, also our own lost ones; how many.

        One at a time, so that an event which kills its reader raises no neighbour's count of
        deliveries. The place in the list is carried on from call to call and wraps around.
        """
        lingering = self.consumer.lingering(self._place, RECLAIM_ROUND)
        full = len(lingering) == RECLAIM_ROUND
        self._place = b"(" + lingering[-1].id if full else b"-"
        for lost in lingering:
            if self.stopping:
                break
            self._take_over(lost)
        return len(lingering)

    def _take_over(self, lost: Lingering) -> None:
        """Store one entry that another reader left; one handed out too often is a dead letter."""
        fields = self.consumer.take_over(lost.id)
        if fields is None:
            return
        if lost.deliveries >= self.settings.max_deliveries:
            self._give_up(lost, fields)
            return
        try:
            self.store([(lost.id, fields)])
        except FAULTS:
            # The server's fault, not the event's: an outage must not make dead letters.
            with suppress(*FAULTS):
                self.consumer.uncount(lost)
            raise

    def _give_up(self, lost: Lingering, fields: Fields) -> None:
        reason = f"it was handed out {lost.deliveries} times, and no writer got it done"
        self.dead.add(lost.id, fields, reason)
        self.consumer.finish([lost.id])
        self.tally.refused += 1
        log.warning("gave up on event entry=%s: %s", lost.id.decode(), reason)

    def store(self, entries: list[Entry]) -> None:
        """Store a batch: write, mark due, record what was refused, then delete and acknowledge.

        An agent whose memory refuses it keeps nobody else's events from being stored: its own stay
        unacknowledged. Where that was the server's fault, its error is raised in the end.
        """
        batch = sort_out(entries, self.settings, self.clock())
        self._write(batch)
        self._mark(batch)
        for entry_id, fields, reason in batch.refused:
            self.dead.add(entry_id, fields, reason)
        self.consumer.finish(batch.done)
        self._count(batch)
        self._extract(batch)
        self._raise_faults(batch)

    def _write(self, batch: Batch) -> None:
        """Store each agent's share, each event once."""
        self._reserve(batch)
        calls: list[Call] = []
        owners: list[Share] = []
        for agent, share in batch.stored.items():
            new = self._calls(agent, share)
            calls += new
            owners += [share] * len(new)
        for share, answer in zip(owners, run_all(self.client, calls), strict=True):
            if isinstance(answer, RedisError):
                share.fault = answer
            else:
                share.written.append(written(answer))

    def _reserve(self, batch: Batch) -> None:
        """Have ids handed out for every event, in one round trip."""
        pipe = self.client.pipeline(transaction=False)
        for agent, share in batch.shares.items():
            pipe.incrby(self.keys.agent(agent).ids, len(share.events))
        answers = pipe.execute(raise_on_error=False) if batch.shares else []
        for share, last in zip(batch.shares.values(), answers, strict=True):
            if isinstance(last, RedisError):
                share.fault = last
            else:
                share.first_id = int(last) - len(share.events) + 1

    def _calls(self, agent: str, share: Share) -> list[Call]:
        memory = AgentMemory(self.client, self.keys.agent(agent), feed_max=self.settings.feed_max)
        now = self.clock()
        return [
            memory.write_call(share.events[at : at + CALL_SIZE], share.first_id + at, now)
            for at in range(0, len(share.events), CALL_SIZE)
        ]

    def _mark(self, batch: Batch) -> None:
        """Note each agent's last event, and when its next pass may start if enough waits."""
        stored = batch.stored
        if not stored:
            return
        configs = self._configs(list(stored))
        now = self.clock()
        due = {
            agent: max(now, share.written[-1].not_before)
            for agent, share in stored.items()
            if share.written[-1].waiting >= configs[agent].min_items
        }
        for agent, share in stored.items():
            share.extract = configs[agent].enabled and configs[agent].extract_on_write
        heard_of = {agent: share.arrived for agent, share in stored.items()}
        pipe = self.client.pipeline(transaction=False)
        pipe.zadd(self.keys.agents, heard_of, gt=True)
        if due:
            pipe.zadd(self.keys.due, due, lt=True)
        pipe.execute()

    def _configs(self, agents: list[str]) -> dict[str, Config]:
        """The run-time settings of each agent: one read, two where any has its own."""
        shared, any_own = self.config.for_all()
        return self.config.for_agents(agents) if any_own else dict.fromkeys(agents, shared)

    def _count(self, batch: Batch) -> None:
        for share in batch.stored.values():
            self.tally.stored += sum(part.stored for part in share.written)
            self.tally.duplicates += sum(part.duplicates for part in share.written)
        self.tally.unknown_fields += batch.unknown
        self.tally.refused += len(batch.refused)
        if batch.refused:
            self._untold += len(batch.refused)
            entry_id, _, reason = batch.refused[-1]
            told = self.outage.warn(
                "events refused: %d; the last entry=%s: %s", self._untold, entry_id.decode(), reason
            )
            self._untold = 0 if told else self._untold

    def _extract(self, batch: Batch) -> None:
        """Ask for entities and topics of what was just stored. A fault never blocks a write."""
        if self.extract is None or self.clock() < self._extract_from:
            return
        for agent, share in batch.stored.items():
            if not (share.extract and any(part.stored for part in share.written)):
                continue
            try:
                self.extract(agent, range(share.first_id, share.first_id + len(share.events)))
            except (*FAULTS, RemqError) as error:
                self._extract_from = self.clock() + EXTRACT_PAUSE_S
                self.outage.warn(
                    "extraction not asked for agent=%s: %s", agent, type(error).__name__
                )
                return

    def _raise_faults(self, batch: Batch) -> None:
        """Say which agents' events stay unacknowledged; raise where it is the server's fault."""
        for agent, share in batch.shares.items():
            if share.fault is None:
                continue
            if not is_about_data(share.fault):
                raise share.fault
            said = self.outage.said(share.fault)
            self.outage.warn("events stay unstored agent=%s: %s", agent, said)
