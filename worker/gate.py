"""Whether an agent is idle, asked for the settings at hand."""

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
        specs = parse_queues(self.settings.agent_queues)
        _refuse_own(specs, self.settings)
        self._gate = IdleGate(
            specs,
            connect=self._open,
            quiet_s=self.settings.quiet_s,
            horizon_s=self.settings.horizon_s,
            rq_prefix=self.settings.rq_key_prefix,
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
        if url is None:
            return connect.queue(self.settings, retries=0, timeout_s=LOOK_S)
        return connect.by_url(url, retries=0, timeout_s=LOOK_S)


def _refuse_own(specs: tuple[QueueSpec, ...], settings: Settings) -> None:
    """Refuse remq's own queue among the agents': a pass would see itself and give way for ever."""
    for own in (settings.queue, settings.queue + EXTRACT_SUFFIX):
        for spec in specs:
            here = spec.url in {None, connect.in_full(settings.queue_place)}
            if here and (spec.kind, spec.name) in {
                ("rq", own),
                ("list", f"{settings.rq_key_prefix}:queue:{own}"),
            }:
                raise SettingsError(
                    f"REMQ_AGENT_QUEUES names {spec.label}, remq's own queue: a pass would always "
                    "find itself there and give way. Name the queues that the agents work from."
                )
