"""What RQ calls: one claimed pass, or one extraction on write. Arguments are ids only."""

import logging
import time
from typing import Any

from worker import connect
from worker import settings as environment
from worker.config import Config
from worker.connect import Client
from worker.consolidation import Pass, Progress, silent
from worker.errors import ModelError, PassRefused, SettingsError
from worker.gate import Gate
from worker.models import permitted_model
from worker.queue import EXTRACT_TIMEOUT_S, FORCE
from worker.runs import Runs
from worker.settings import Settings
from worker.sleep import extract
from worker.sleep.model import Model
from worker.sleep.report import Report
from worker.stores import agent_memory, config_store

log = logging.getLogger("remq.pass")


def consolidate(agent: str, token: str, *how: str) -> dict[str, Any] | None:
    """Do one claimed pass. The report also stands in the agent's ledger."""
    settings = environment.load()
    client = connect.memory(settings)
    report = run_claimed(client, settings, agent, token, force=FORCE in how)
    return None if report is None else report.public()


def extract_metadata(agent: str, *ids: str) -> int:
    """Find entities and topics of items just written; how many were annotated."""
    settings = environment.load()
    client = connect.memory(settings)
    config = config_store(client, settings).for_agent(agent)
    if not config.extract_on_write:
        return 0
    memory = agent_memory(client, settings, agent)
    try:
        model = permitted_model(settings, config)
        return extract.annotate(
            memory,
            model,
            [int(item_id) for item_id in ids],
            deadline_s=min(settings.llm_timeout_s, EXTRACT_TIMEOUT_S / 2),
            prompt_tokens=settings.prompt_tokens,
        )
    except (ModelError, PassRefused, SettingsError) as error:
        log.warning("extraction skipped agent=%s: %s", agent, error)
        return 0


def run_claimed(
    client: Client,
    settings: Settings,
    agent: str,
    token: str,
    *,
    force: bool = False,
    again_before: float | None = None,
    progress: Progress = silent,
) -> Report | None:
    """Start a claimed run and do its pass.

    None if it was put off, since the agent is busy or the pass not allowed, or if the run belongs
    to another by now; the run's record says why. `force` passes over the idle gate. With
    `again_before` (Unix seconds) the pass also looks again at what was last consolidated earlier.
    """
    runs = Runs(client, settings)
    if runs.start(agent, token) != "OK":
        log.info("run is not ours any more agent=%s run=%s", agent, token)
        return None
    config = config_store(client, settings).for_agent(agent)
    model = _admitted(runs, config, agent, token, force=force)
    if model is None:
        return None
    return Pass(
        agent_memory(client, settings, agent),
        runs,
        config,
        model,
        agent,
        token,
        deadline_s=settings.pass_deadline_s,
        call_timeout_s=settings.call_timeout_s,
        prompt_tokens=settings.prompt_tokens,
        clip_at=settings.durable_clip,
        again_before=again_before,
        progress=progress,
    ).perform()


def _admitted(runs: Runs, config: Config, agent: str, token: str, *, force: bool) -> Model | None:
    """The model that a started run may ask; None if the run was put off: not allowed, or busy."""
    settings = runs.settings
    try:
        model = permitted_model(settings, config)
        gate = None if force else Gate(runs.client, settings)
    except (PassRefused, SettingsError) as error:
        log.warning("pass refused agent=%s run=%s: %s", agent, token, error)
        # What was switched off waits for that alone: once it is on again, nothing holds it up.
        wait_s = config.backoff_s if config.enabled else 0
        runs.put_off(agent, token, str(error), time.time() + wait_s)
        return None
    if gate is not None:
        idle = gate.look(agent, runs.record(agent), time.time())
        if not idle.idle:
            runs.put_off(agent, token, idle.reason, time.time() + settings.defer_s)
            return None
    return model
