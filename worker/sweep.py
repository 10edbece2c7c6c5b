"""The sweep: a slow walk over all agents that mends what a crash left, and drops old traces."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redis.exceptions import RedisError, ResponseError

from worker.config import ConfigStore
from worker.connect import Client
from worker.dead import DeadLetters
from worker.errors import Unreadable
from worker.group import GROUP
from worker.keys import Keys
from worker.outage import is_about_data
from worker.runs import Runs
from worker.settings import Settings

log = logging.getLogger("remq.scheduler")

#: Agents mended in one stride: in a few round trips, unless insights are to be published.
STRIDE = 500
#: A consumer without entries that was silent this long belongs to a writer that is gone.
CONSUMER_GONE_S = 3600
DAY_S = 86_400


class Sweep:
    """One walk. `go_on` is asked between two strides, and ends it by a no."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        config: ConfigStore,
        runs: Runs,
        *,
        go_on: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.settings = settings
        self.config = config
        self.runs = runs
        self.keys = Keys(settings.prefix)
        self.go_on = go_on
        self.clock = clock

    def walk(self) -> None:
        """Drop old dead letters and lost consumers, then mend every agent."""
        DeadLetters(self.client, self.keys, self.settings.dead_max).forget_older(
            self.clock() - self.settings.dead_max_age_days * DAY_S
        )
        self._drop_consumers()
        forget_before = self._forget_seen_before()
        for agents in self.strides():
            self._mend(agents, forget_before)

    def strides(self) -> Iterator[list[str]]:
        """Every agent, about `STRIDE` at a time; one may come twice.

        By a cursor: pages by rank would skip some, as their order moves.
        """
        cursor = 0
        while True:
            cursor, rows = self.client.zscan(self.keys.agents, cursor, count=STRIDE)
            yield [member.decode() for member, _ in rows]
            if not cursor or not self.go_on():
                return

    def _mend(self, agents: Sequence[str], forget_before: float) -> None:
        """Mark due who is on no list though enough waits; publish insights; forget event ids."""
        if not agents:
            return
        configs = self.config.for_agents(list(agents))
        pipe = self.client.pipeline(transaction=False)
        for agent in agents:
            keys = self.keys.agent(agent)
            pipe.zcard(keys.unconsolidated)
            pipe.hgetall(keys.run)
            pipe.zremrangebyscore(keys.seen, "-inf", f"({forget_before!r}")
        answers = pipe.execute(raise_on_error=False)
        due: dict[str, float] = {}
        for number, agent in enumerate(agents):
            try:
                waiting, row = _read(answers[number * 3 : number * 3 + 3])
                at = self._next(agent, row)
            except (ResponseError, Unreadable) as error:
                if isinstance(error, ResponseError) and not is_about_data(error):
                    raise
                log.warning("cannot be mended agent=%s: %s", agent, type(error).__name__)
                continue
            if waiting >= configs[agent].min_items:
                due[agent] = at
        if due:
            self.client.zadd(self.keys.due, due, nx=True)

    def _next(self, agent: str, row: dict[bytes, bytes]) -> float:
        """When an agent's next pass may start, by its run hash; publish what it says is not yet."""
        record = self.runs.read(agent, row)
        if record.unpublished:
            self.runs.publish(agent)
        return max(self.clock(), record.not_before)

    def _forget_seen_before(self) -> float:
        """Event ids go only when older than both the setting and the oldest event in the stream.

        What arrives during the walk is younger still.
        """
        oldest = self.client.xrange(self.keys.events, count=1)
        arrived = [int(entry_id.partition(b"-")[0]) / 1000 for entry_id, _ in oldest]
        return min([self.clock() - self.settings.seen_days * DAY_S, *arrived])

    def _drop_consumers(self) -> None:
        try:
            consumers = self.client.xinfo_consumers(self.keys.events, GROUP)
        except ResponseError:
            return  # No stream or group yet: no writer has been here.
        for consumer in consumers:
            if consumer["pending"] == 0 and consumer["idle"] > CONSUMER_GONE_S * 1000:
                self.client.xgroup_delconsumer(self.keys.events, GROUP, consumer["name"])


def _read(answers: Sequence[Any]) -> tuple[int, dict[bytes, bytes]]:
    """How many items of an agent wait, and its run hash. Raises what the server refused."""
    for answer in answers:
        if isinstance(answer, RedisError):
            raise answer
    waiting, row, _ = answers
    return int(waiting), row
