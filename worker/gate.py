"""Whether an agent is idle, asked for the settings at hand."""

import os
from dataclasses import dataclass, field

from worker import connect
from worker.connect import Client
from worker.errors import SettingsError
from worker.keys import Keys
from worker.queue import EXTRACT_SUFFIX
from worker.runs import RunRecord
from worker.settings import Settings
from worker.sleep.idle import Idle, IdleGate
from worker.sleep.queues import QueueSpec, parse_queues

#: The longest one look at an agent's queue may take.
LOOK_S = 2.0


@dataclass(slots=True)
class Gate:
    """The idle gate of one process; its connections to the agents' queues are made once.

    Raises SettingsError where `REMQ_AGENT_QUEUES` cannot be read, or names remq's own queue.
    """

    client: Client
    settings: Settings
    _gate: IdleGate = field(init=False)

    def __post_init__(self) -> None:
        rq_prefix = os.environ.get("RQ_KEY_PREFIX", "rq")
        specs = parse_queues(self.settings.agent_queues)
        _refuse_own(specs, self.settings, rq_prefix)
        self._gate = IdleGate(
            specs,
            connect=self._open,
            quiet_s=self.settings.quiet_s,
            horizon_s=self.settings.horizon_s,
            rq_prefix=rq_prefix,
        )

    def look(self, agent: str, record: RunRecord, now: float) -> Idle:
        """Look at the agent's queues, or without any at how long it has been quiet."""
        last_event = self.client.zscore(Keys(self.settings.prefix).agents, agent)
        return self._gate.look(
            agent,
            now=now,
            last_event_at=None if last_event is None else float(last_event),
            last_recall_at=record.last_recall_at or None,
        )

    def _open(self, url: str | None) -> Client:
        """Open a queue's server, RQ's where it names none. A slow one must not hold us up."""
        return connect.by_url(url or _own_url(self.settings), retries=0, timeout_s=LOOK_S)


def _own_url(settings: Settings) -> str:
    own = settings.queue_url or settings.redis_url
    return own.get_secret_value() if own else ""


def _refuse_own(specs: tuple[QueueSpec, ...], settings: Settings, rq_prefix: str) -> None:
    """Refuse remq's own queue among the agents': a pass would see itself and give way for ever."""
    for own in (settings.queue, settings.queue + EXTRACT_SUFFIX):
        for spec in specs:
            here = spec.url in {None, _own_url(settings)}
            if here and (spec.kind, spec.name) in {
                ("rq", own),
                ("list", f"{rq_prefix}:queue:{own}"),
            }:
                raise SettingsError(
                    f"REMQ_AGENT_QUEUES names {spec.label}, remq's own queue: a pass would always "
                    "find itself there and give way. Name the queues that the agents work from."
                )
