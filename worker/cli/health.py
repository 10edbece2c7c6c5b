"""`remq status` and `remq doctor`: the health of all of it, and what is set up wrong."""

import time
from typing import Any

import click
from redis.exceptions import ResponseError

from worker import connect
from worker.cli.memory import when
from worker.cli.session import Session, json_option, out, print_json
from worker.dead import DeadLetters
from worker.errors import RemqError, StoreError
from worker.gate import Gate
from worker.group import GROUP
from worker.health import server_faults
from worker.keys import Keys
from worker.models import choose_model
from worker.queue import OwnQueue, pass_queue
from worker.runs import Runs
from worker.stores import config_store

#: A writer that lives reads every `BLOCK_S` (2 s); one silent for this long is gone.
WRITER_GONE_S = 10.0
#: How long a recaller may leave the oldest request where it is before none seems to run.
RECALLER_GONE_S = 2.0
LOOK_S = 0.1
#: Agents that are named in one sentence.
NAMED = 5


@click.command(epilog="\b\nExamples:\n  remq status\n  remq status --json")
@json_option
def status(as_json: bool) -> None:
    """The health of all of it in one look."""
    session = Session()
    found = _status(session)
    if as_json:
        print_json(found)
        return
    found["oldest_event"] = when(found["oldest_event"])
    for name, value in found.items():
        shown = "; ".join(value) or "none" if isinstance(value, list) else value
        out.print(f"{name:<20}{'none' if shown in (None, '') else shown}", markup=False)


def _status(session: Session) -> dict[str, Any]:
    client, settings = session.client, session.settings
    keys = Keys(settings.prefix)
    general, _ = config_store(client, settings).for_all()
    leader = client.get(keys.leader)
    queued, queue_faults = _queued(session)
    return {
        "server": connect.shown(connect.in_full(settings.redis_url)),
        "prefix": settings.prefix,
        "agents": client.zcard(keys.agents),
        "events_waiting": client.xlen(keys.events),
        "oldest_event": _oldest(client, keys),
        "events_pending": _pending(client, keys),
        "dead_letters": DeadLetters(client, keys, settings.dead_max).count(),
        "consolidation": "on" if general.enabled else "off",
        "model": general.model or None,
        "agents_due": client.zcount(keys.due, "-inf", time.time()),
        "passes_queued": queued,
        "scheduler": "leads" if leader else "none leads",
        "faults": [fault.text for fault in server_faults(client)] + queue_faults,
    }


def _queued(session: Session) -> tuple[int | None, list[str]]:
    """How many passes wait in the queue, and what is wrong with its server."""
    try:
        return pass_queue(session.open_queue(), session.settings).count, []
    except StoreError as error:
        return None, [str(error)]


def _oldest(client: connect.Client, keys: Keys) -> float | None:
    """When the event that has waited longest arrived, Unix seconds by the server's clock."""
    entries = client.xrange(keys.events, count=1)
    return int(entries[0][0].partition(b"-")[0]) / 1000 if entries else None


def _pending(client: connect.Client, keys: Keys) -> int:
    try:
        return int(client.xpending(keys.events, GROUP)["pending"])
    except ResponseError:
        return 0  # No stream or group yet: nothing was delivered.


@click.command(epilog="\b\nExamples:\n  remq doctor\n  remq doctor --json")
@json_option
def doctor(as_json: bool) -> None:
    """What is set up wrong, and how to mend it. Exit code 1 if anything is."""
    session = Session()
    session.client.ping()
    faults = [fault.text for fault in server_faults(session.client)]
    faults += _queue_faults(session)
    faults += _role_faults(session)
    faults += _model_faults(session)
    if as_json:
        print_json({"ok": not faults, "faults": faults})
    else:
        for fault in faults:
            out.print(f"- {fault}", markup=False)
        if not faults:
            out.print("Nothing is wrong.")
    if faults:
        raise click.exceptions.Exit(1)


def _queue_faults(session: Session) -> list[str]:
    try:
        queue = pass_queue(session.open_queue(), session.settings)
        return _worker_faults(queue) + _agent_queue_faults(session)
    except StoreError as error:
        return [str(error)]


def _worker_faults(queue: OwnQueue) -> list[str]:
    if queue.count and not queue.has_worker(time.time()):
        return ["Passes wait and no worker runs: start `remq worker`."]
    return []


def _agent_queue_faults(session: Session) -> list[str]:
    """What is odd about the agents' own queues, looked at for the newest agent."""
    keys = Keys(session.settings.prefix)
    agents = session.client.zrevrange(keys.agents, 0, 0)
    if not agents:
        return []
    agent = agents[0].decode()
    record = Runs(session.client, session.settings).record(agent)
    return list(Gate(session.client, session.settings).look(agent, record, time.time()).warnings)


def _role_faults(session: Session) -> list[str]:
    keys = Keys(session.settings.prefix)
    general, overrides = config_store(session.client, session.settings).for_all()
    faults = []
    if _lacks_writer(session, keys):
        faults.append("Events wait and no writer runs: start `remq writer`.")
    if _lacks_recaller(session.client, keys):
        faults.append("Recall requests wait and nobody takes them: start `remq recaller`.")
    if (general.enabled or overrides) and not session.client.exists(keys.leader):
        faults.append("Consolidation is on and no scheduler runs: start `remq scheduler`.")
    return faults


def _lacks_writer(session: Session, keys: Keys) -> bool:
    """Whether events wait and no writer is there to take them.

    From Redis 7.2 on `idle` counts from a consumer's last try. Before, it counts from the last read
    that brought something, so a writer without work looks dead, or has no name yet; there only an
    event tells that has waited longer than a writer leaves one, even another writer's.
    """
    oldest = _oldest(session.client, keys)
    if oldest is None:
        return False
    try:
        consumers = session.client.xinfo_consumers(keys.events, GROUP)
    except ResponseError:
        return True  # No group yet: no writer has been here.
    if any(consumer["idle"] < WRITER_GONE_S * 1000 for consumer in consumers):
        return False
    if consumers and all("inactive" in consumer for consumer in consumers):  # 7.2 or later.
        return True
    return time.time() - oldest > WRITER_GONE_S + session.settings.reclaim_idle_s


def _lacks_recaller(client: connect.Client, keys: Keys) -> bool:
    """Whether requests wait and the oldest of them stays where it is."""
    oldest = client.lindex(keys.recall, -1)
    limit = time.monotonic() + RECALLER_GONE_S
    while oldest is not None and client.lindex(keys.recall, -1) == oldest:
        if time.monotonic() >= limit:
            return True
        time.sleep(LOOK_S)
    return False


def _model_faults(session: Session) -> list[str]:
    """Where passes are on for a model that this environment would not ask, for all or for some."""
    store = config_store(session.client, session.settings)
    general, _ = store.for_all()
    own = store.for_agents(sorted(store.overrides()))
    asked = {(config.model, agent) for agent, config in own.items() if config.enabled}
    if general.enabled:
        asked.add((general.model, ""))
    if not asked:
        return []
    try:
        name = choose_model(session.settings).name
    except RemqError as error:
        return [str(error)]
    wrong: dict[str, list[str]] = {}
    for model, agent in sorted(asked):
        if model != name and not (agent and (model, "") in asked):
            wrong.setdefault(model, []).append(agent)
    return [
        f"Consolidation was switched on for {model or 'no model'}{_of(agents)}, but this "
        f"environment would ask {name}: workers started like this refuse every pass."
        for model, agents in wrong.items()
    ]


def _of(agents: list[str]) -> str:
    """` (agent alice)`; nothing for all agents."""
    if agents == [""]:
        return ""
    named = ", ".join(agents[:NAMED])
    more = f" and {len(agents) - NAMED} more" if len(agents) > NAMED else ""
    return f" (agent{'s' if len(agents) > 1 else ''} {named}{more})"
