"""`remq consolidation`: switch the pass on and off, look at it, run it."""

import logging
import time
from typing import Any

import click
from rich.markup import escape
from rich.table import Table
from rq.exceptions import NoSuchJobError
from rq.job import JobStatus

from worker.cli.memory import when
from worker.cli.session import (
    AGENT,
    Session,
    agent_option,
    err,
    json_option,
    log_to_stderr,
    out,
    print_json,
)
from worker.config import Config, ConfigStore
from worker.errors import PassRefused, RemqError
from worker.gate import Gate
from worker.jobs import run_claimed
from worker.keys import Keys
from worker.models import choose_model, permitted_model, require_enabled
from worker.queue import OwnJob, OwnQueue, enqueue_pass, pass_queue
from worker.runs import Runs
from worker.sleep.report import Report
from worker.stores import config_store

one_agent_option = click.option("--agent", type=AGENT, help="Only for this agent.")
#: How long `run` looks at the queue before it says that no worker takes the job.
NO_WORKER_S = 15
POLL_S = 0.1


@click.group(
    epilog="""\b
Examples:
  remq consolidation enable
  remq consolidation status
  remq consolidation run --agent alice
  remq consolidation set interval_minutes 10"""
)
def consolidation() -> None:
    """The sleep pass: off until it is switched on here."""


@consolidation.command(
    epilog="\b\nExamples:\n  remq consolidation enable\n  remq consolidation enable --agent alice"
)
@one_agent_option
@json_option
def enable(agent: str | None, as_json: bool) -> None:
    """Switch the pass on, for all or one agent, with the model of this environment."""
    session = Session()
    model = choose_model(session.settings)
    store = config_store(session.client, session.settings)
    store.set({"enabled": "on", "model": model.name}, agent)
    if agent is not None:
        _look_again(session, agent)
    if as_json:
        print_json({"enabled": True, "agent": agent, "model": model.name})
        return
    whom = f"agent {agent}" if agent else "all agents"
    out.print(f"Consolidation is on for {whom}. Model: {model.name}.", markup=False)
    if session.settings.uses_openai:
        out.print("The memories of a pass are sent to that address.")
    if agent is None:
        _name_others(store)


def _name_others(store: ConfigStore) -> None:
    """Say which agents go by a switch and model of their own, whatever holds for all."""
    configs = store.for_agents(sorted(store.overrides()))
    for name, config in configs.items():
        state = f"on, with {config.model}" if config.enabled else "off"
        err.print(f"Agent {name} has settings of its own: {state}.", markup=False)


@consolidation.command(epilog="\b\nExample:\n  remq consolidation disable --agent alice")
@one_agent_option
@json_option
def disable(agent: str | None, as_json: bool) -> None:
    """Switch the pass off, for all or one agent, from the next tick."""
    session = Session()
    store = config_store(session.client, session.settings)
    store.set({"enabled": "off"}, agent)
    if as_json:
        print_json({"enabled": False, "agent": agent})
        return
    out.print(f"Consolidation is off for {f'agent {agent}' if agent else 'all agents'}.")
    if agent is None:
        _name_others(store)


@consolidation.command(
    "set",
    epilog="""\b
Examples:
  remq consolidation set interval_minutes 10
  remq consolidation set extract_metadata off --agent alice""",
)
@click.argument("name")
@click.argument("value")
@one_agent_option
@json_option
def set_value(name: str, value: str, agent: str | None, as_json: bool) -> None:
    """Change a setting of the pass at run time; it holds from the next tick.

    A new interval counts from the end of the next pass.
    """
    if name in {"enabled", "model"}:
        raise click.UsageError("Use `enable` and `disable`, which record the model.")
    session = Session()
    store = config_store(session.client, session.settings)
    store.set({name: value}, agent)
    held = store.for_agent(agent) if agent else store.for_all()[0]
    if as_json:
        print_json({"name": name, "value": getattr(held, name), "agent": agent})
    else:
        out.print(f"{name} is {getattr(held, name)}{f' for agent {agent}' if agent else ''}.")


@consolidation.command(epilog="\b\nExample:\n  remq consolidation status --json")
@one_agent_option
@json_option
def status(agent: str | None, as_json: bool) -> None:
    """Settings, and for each agent what waits, when it is next, and what came of the last pass."""
    session = Session()
    store = config_store(session.client, session.settings)
    agents = [agent] if agent else _known_agents(session)
    general = store.for_agent(agent) if agent else store.for_all()[0]
    rows = [_agent_row(session, store, name) for name in agents]
    if as_json:
        print_json({**_settings(general), "agents": rows})
        return
    for name, value in _settings(general).items():
        out.print(f"{name:<19}{_shown(value)}", markup=False)
    _print_agents(rows)


def _settings(config: Config) -> dict[str, Any]:
    names = (
        "enabled", "model", "interval_minutes", "window_size", "min_items", "max_connections",
        "rerate_salience", "extract_metadata", "extract_on_write",
    )  # fmt: skip
    return {name: getattr(config, name) for name in names}


def _agent_row(session: Session, store: ConfigStore, agent: str) -> dict[str, Any]:
    runs = Runs(session.client, session.settings)
    keys = Keys(session.settings.prefix).agent(agent)
    config = store.for_agent(agent)
    record = runs.record(agent)
    due = session.client.zscore(runs.keys.due, agent)
    reports = runs.reports(agent)
    return {
        "agent": agent,
        "enabled": config.enabled,
        "pending": session.client.zcard(keys.unconsolidated),
        "next_run_at": None if due is None or not config.enabled else float(due),
        "deferred_reason": record.deferred_reason or None,
        "state": record.state,
        "last_report": reports[0].public() if reports else None,
    }


def _known_agents(session: Session) -> list[str]:
    keys = Keys(session.settings.prefix)
    return sorted(member.decode() for member in session.client.zrange(keys.agents, 0, -1))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) or "none yet"


def _print_agents(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("agent", "pending", "next", "last pass", "put off"):
        table.add_column(name, justify="right" if name == "pending" else "left", overflow="fold")
    for row in rows:
        last = row["last_report"]
        told = ""
        if last is not None:
            told = last["skipped_reason"] or f"{last['insights_written']} insight"
            told = f"{when(last['started_at'])} {told}"
        at = "off" if not row["enabled"] else when(row["next_run_at"]) or "nothing due"
        table.add_row(
            escape(row["agent"]), str(row["pending"]), at, escape(told),
            escape(row["deferred_reason"] or ""),
        )  # fmt: skip
    out.print()
    out.print(table if rows else "No agent has sent an event yet.")


@consolidation.command(
    epilog="""\b
Examples:
  remq consolidation run --agent alice           through the queue, waits for the report
  remq consolidation run --agent alice --here    in this process
  remq consolidation run --agent alice --force   even while the agent is busy"""
)
@agent_option
@click.option("--here", is_flag=True, help="In this process, not through the queue.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the report.")
@click.option("--force", is_flag=True, help="Even while the agent is busy.")
@json_option
def run(agent: str, here: bool, no_wait: bool, force: bool, as_json: bool) -> None:
    """Do one pass now."""
    if here and no_wait:
        raise click.UsageError("--here does the pass at once; leave out --no-wait.")
    log_to_stderr(logging.ERROR)
    session = Session()
    runs = Runs(session.client, session.settings)
    config = config_store(session.client, session.settings).for_agent(agent)
    # Through the queue, the worker's environment names the model, and the worker checks it.
    if here:
        permitted_model(session.settings, config)
    else:
        require_enabled(config)
    if not force:
        _refuse_while_busy(session, runs, agent)
    if here:
        token = _claim(runs, agent)
        report: Report | None = _run_here(session, agent, token, as_json=as_json)
    else:
        # Before the claim: a run whose job reaches no queue would stand in the way.
        queue = pass_queue(session.open_queue(), session.settings)
        token = _claim(runs, agent)
        job = enqueue_pass(queue, session.settings, agent, token, force=force)
        report = None if no_wait else _wait(session, runs, queue, job, agent, token)
    if report is None:
        if as_json:
            print_json({"agent": agent, "run": token, "queued": True})
        else:
            out.print(f"Queued as run {token}.")
        return
    if as_json:
        print_json(report.public())
    else:
        print_report(report)


def _refuse_while_busy(session: Session, runs: Runs, agent: str) -> None:
    idle = Gate(session.client, session.settings).look(agent, runs.record(agent), time.time())
    for warning in idle.warnings:
        err.print(f"Warning: {warning}", markup=False)
    if not idle.idle:
        raise PassRefused(
            f"The pass is put off, since the agent is busy: {idle.reason}. --force runs it anyway."
        )


def _claim(runs: Runs, agent: str) -> str:
    record = runs.record(agent)
    claim = runs.claim(agent, gone=record.token if record.state == "queued" else "", force=True)
    if not claim.taken:
        raise PassRefused("A pass of this agent is running already; wait for its report.")
    return claim.token


def _run_here(session: Session, agent: str, token: str, *, as_json: bool) -> Report:
    def progress(step: str, state: str) -> None:
        if not as_json:
            err.print(f"  {step:<12}{state}", markup=False)

    try:
        report = run_claimed(
            session.client, session.settings, agent, token, force=True, progress=progress
        )
    except KeyboardInterrupt:
        # Else the run would count as running until its lease is over.
        Runs(session.client, session.settings).put_off(agent, token, "stopped", time.time())
        raise
    if report is None:
        raise PassRefused("The run was taken over by another process; nothing was changed here.")
    return report


def _wait(
    session: Session, runs: Runs, queue: OwnQueue, job: str, agent: str, token: str
) -> Report:
    """Wait for a worker's report."""
    limit = time.monotonic() + session.settings.lease_s
    nobody = time.monotonic() + NO_WORKER_S
    with err.status("Waiting for a worker"):
        while time.monotonic() < limit:
            state = _state_of(queue, job)
            if state in {None, JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED}:
                return _report_of(runs, agent, token)
            if state == JobStatus.QUEUED and time.monotonic() > nobody:
                raise RemqError(
                    "No worker has taken the pass yet: is `remq worker` running? It stays queued."
                )
            time.sleep(POLL_S)
    raise RemqError("The pass has not ended in time; `remq consolidation status` shows it later.")


def _state_of(queue: OwnQueue, job: str) -> JobStatus | None:
    """How far RQ is with a job; None if it has lost it."""
    try:
        with queue.spoken():
            found = OwnJob.fetch(job, connection=queue.connection, serializer=queue.serializer)
    except NoSuchJobError:
        return None
    return found.get_status(refresh=False)


def _report_of(runs: Runs, agent: str, token: str) -> Report:
    for report in runs.reports(agent, count=20):
        if report.run == token:
            return report
    reason = runs.record(agent).deferred_reason or "another run has taken over"
    raise PassRefused(f"The pass was not done: {reason.rstrip('.')}.")


def print_report(report: Report) -> None:
    """A report for people."""
    out.print(
        f"Model {report.model}, {report.duration_s:.1f} s, {report.llm_calls} calls", markup=False
    )
    for step, state in report.public()["steps"].items():
        out.print(f"  {step:<13}{state}", markup=False)
    out.print(
        f"{report.items_reviewed} reviewed, {report.connections_made} connections, "
        f"{report.insights_written} insight, {report.salience_rerated} raised"
    )
    if report.skipped_reason:
        out.print(f"Skipped: {report.skipped_reason}", markup=False)


def _look_again(session: Session, agent: str) -> None:
    """Bring an agent that was put off while disabled back to the next tick."""
    runs = Runs(session.client, session.settings)
    session.client.zadd(runs.keys.due, {agent: time.time()}, lt=True)
