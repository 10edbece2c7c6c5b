"""`remq status` and `remq doctor`: the health of all of it, and what is set up wrong."""

import time
from typing import Any

import click
from redis.exceptions import ResponseError
from rq import worker_registration

from worker import connect
from worker.cli.memory import when
from worker.cli.session import Session, json_option, out, print_json
from worker.config import Config
from worker.dead import DeadLetters
from worker.errors import RemqError, StoreError
from worker.gate import Gate
from worker.health import server_faults
from worker.jobs import config_store
from worker.keys import Keys
from worker.models import choose_model
from worker.queue import pass_queue
from worker.runs import Runs
from worker.writer import GROUP


@click.command(epilog="\b\nExamples:\n  remq status\n  remq status --json")
@json_option
def status(as_json: bool) -> None:
    """The health of all of it in one look."""
    session = Session()
    found = _status(session)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        shown = "; ".join(value) or "none" if isinstance(value, list) else value
        out.print(f"{name:<20}{'none' if shown is None else shown}", markup=False)


def _status(session: Session) -> dict[str, Any]:
    client, settings = session.client, session.settings
    keys = Keys(settings.prefix)
    general, _ = config_store(client, settings).for_all()
    oldest = client.xrange(keys.events, count=1)
    leader = client.get(keys.leader)
    queued, queue_faults = _queued(session)
    return {
        "server": connect.shown(settings.redis_url.get_secret_value())
        if settings.redis_url
        else "",
        "prefix": settings.prefix,
        "agents": client.zcard(keys.agents),
        "events_waiting": client.xlen(keys.events),
        "oldest_event": when(int(oldest[0][0].partition(b"-")[0]) / 1000) if oldest else None,
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
        return pass_queue(session.queue_client, session.settings).count, []
    except StoreError as error:
        return None, [str(error)]


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
    waiting, faults = _queued(session)
    if faults:
        return faults
    return _worker_faults(session, waiting or 0) + _agent_queue_faults(session)


def _worker_faults(session: Session, waiting: int) -> list[str]:
    queue = pass_queue(session.queue_client, session.settings)
    if waiting and not worker_registration.get_keys(queue):
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
    if session.client.xlen(keys.events) and not _consumers(session, keys):
        faults.append("Events wait and no writer runs: start `remq writer`.")
    if (general.enabled or overrides) and not session.client.exists(keys.leader):
        faults.append("Consolidation is on and no scheduler runs: start `remq scheduler`.")
    return faults


def _consumers(session: Session, keys: Keys) -> int:
    try:
        return len(session.client.xinfo_consumers(keys.events, GROUP))
    except ResponseError:
        return 0


def _model_faults(session: Session) -> list[str]:
    general: Config = config_store(session.client, session.settings).for_all()[0]
    if not general.enabled:
        return []
    try:
        name = choose_model(session.settings).name
    except RemqError as error:
        return [str(error)]
    if name == general.model:
        return []
    return [
        f"Consolidation was switched on for {general.model}, but this environment would ask "
        f"{name}: workers started like this refuse every pass."
    ]
