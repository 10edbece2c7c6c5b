"""`remq writer|scheduler|worker|recaller`: one role each, as many as you like."""

import logging
import signal
from collections.abc import Callable, Sequence

import click

from worker import connect
from worker.cli.session import Session, json_option, log_to_stderr, out, print_json
from worker.connect import Client
from worker.errors import RemqError
from worker.health import server_faults
from worker.queue import enqueue_extraction, extract_queue, pass_queue
from worker.recaller import Recaller
from worker.scheduler import Scheduler
from worker.stores import config_store
from worker.writer import Writer

log = logging.getLogger("remq")

#: The longest a writer waits for the queue it asks for entities.
EXTRACT_WAIT_S = 2.0


def _on_signal(stop: Callable[[], None]) -> None:
    """Stop in order on SIGTERM and Ctrl-C: what was taken is finished."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


def _extraction(session: Session) -> Callable[[str, Sequence[int]], None]:
    """What a writer does after storing, where entities are wanted at once."""
    # Nothing is sent before the first use, and it is short of patience: events are stored also
    # while RQ's server is down.
    client = connect.queue(session.settings, retries=0, timeout_s=EXTRACT_WAIT_S)
    queue = extract_queue(client, session.settings)

    def extract(agent: str, ids: Sequence[int]) -> None:
        enqueue_extraction(queue, agent, ids)

    return extract


@click.command(epilog="\b\nExamples:\n  remq writer\n  remq writer --burst --json")
@click.option("--burst", is_flag=True, help="Stop when there is nothing left.")
@json_option
def writer(burst: bool, as_json: bool) -> None:
    """Store events from the stream, each once. Run as many as you like."""
    log_to_stderr(logging.WARNING if burst else logging.INFO)
    session = Session()
    settings = session.settings
    client = session.open_for_role()
    role = Writer(
        client,
        settings,
        config_store(client, settings),
        extract=_extraction(session),
    )
    _on_signal(role.stop)
    _check_server(client)
    log.info("writer started name=%s", role.name)
    tally = role.run(burst=burst)
    if as_json:
        print_json(tally.public())
    else:
        out.print(tally.sentence())


@click.command(epilog="\b\nExamples:\n  remq scheduler\n  remq scheduler --once --json")
@click.option("--once", is_flag=True, help="One tick: says what it enqueued and put off, and why.")
@json_option
def scheduler(once: bool, as_json: bool) -> None:
    """Put passes into the queue for agents that are due and idle. Several may run; one leads."""
    log_to_stderr(logging.WARNING if once else logging.INFO)
    session = Session()
    settings = session.settings
    queue = pass_queue(session.open_queue(), settings)
    client = session.client if once else session.open_for_role()
    role = Scheduler(client, queue, settings, config_store(client, settings))
    if not once:
        _on_signal(role.stop)
        _check_server(client)
        log.info("scheduler started")
        role.run()
        return
    tick = role.tick()
    if as_json:
        print_json(tick.public())
        return
    if not tick.enabled:
        out.print("Consolidation is off for every agent: `remq consolidation enable`.")
    for run in tick.enqueued:
        out.print(f"enqueued  {run['agent']}  {run['run']}", markup=False)
    for wait in tick.deferred:
        out.print(f"put off   {wait['agent']}  {wait['reason']}", markup=False)
    for warning in tick.warnings:
        out.print(f"warning   {warning}", markup=False)
    if tick.enabled and not (tick.enqueued or tick.deferred):
        out.print("No agent is due.")


@click.command(epilog="\b\nExamples:\n  remq worker\n  remq worker --burst")
@click.option("--burst", is_flag=True, help="Stop when there is nothing left.")
def worker(burst: bool) -> None:
    """Run passes from the queue, one at a time. Run as many as you like."""
    # With the jobs it brings all that a pass needs, which no other role should wait for.
    from worker import rqworker  # noqa: PLC0415

    log_to_stderr(logging.WARNING if burst else logging.INFO)
    session = Session()
    rqworker.run(session.open_queue(), session.settings, burst=burst)


@click.command(epilog="\b\nExample:\n  remq recaller")
def recaller() -> None:
    """Answer recall requests from any language. Run as many as you like."""
    log_to_stderr()
    session = Session()
    client = session.open_for_role()
    role = Recaller(client, session.settings)
    _on_signal(role.stop)
    _check_server(client)
    log.info("recaller started")
    role.run()


def _check_server(client: Client) -> None:
    """Warn loudly of a server that may lose memories; refuse one that is too old."""
    for fault in server_faults(client):
        if fault.fatal:
            raise RemqError(fault.text)
        log.warning("%s", fault.text)
