"""The demo: a sample log goes the whole way of an event, on a server of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any

from pydantic import SecretStr

from producer import Event, emit_many
from worker import connect, embedded
from worker.connect import Client
from worker.memory.item import Item
from worker.memory.recall import Hit
from worker.memory.store import Link
from worker.memory.view import MemoryView
from worker.models import choose_model
from worker.queue import pass_queue
from worker.runs import Runs
from worker.scheduler import Scheduler, Tick
from worker.settings import Settings, variable
from worker.sleep.report import Report
from worker.stores import agent_memory, config_store
from worker.writer import Tally, Writer

DAYS = 5
#: For each language: whose log it is, and a question its insight helps to answer.
AGENTS = {"en": "ops-agent", "zh": "运维助手"}
QUESTIONS = {
    "en": "what holds up the region: the audit or residency?",
    "zh": "迁移和对账卡在哪里？",
}


def events(lang: str, today: datetime) -> list[Event]:
    """The sample log as events; its fifth day is yesterday."""
    first = today.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS)
    text = files("worker.demo").joinpath(f"log.{lang}.jsonl").read_text("utf-8")
    return [_event(json.loads(line), lang, first) for line in text.splitlines()]


def _event(row: dict[str, Any], lang: str, first: datetime) -> Event:
    hour, minute = row.pop("time").split(":")
    at = first + timedelta(days=row.pop("day") - 1, hours=int(hour), minutes=int(minute))
    return Event(agent=AGENTS[lang], ts=at.timestamp(), **row)


@dataclass(slots=True)
class Story:
    """One run of the demo, a step at a time."""

    lang: str
    client: Client
    settings: Settings
    environ: dict[str, str]

    @property
    def agent(self) -> str:
        """Whose memory it is."""
        return AGENTS[self.lang]

    def emit(self) -> int:
        """The agent emits its log; how many events."""
        log = events(self.lang, datetime.now().astimezone())
        emit_many(self.client, log, prefix=self.settings.prefix)
        return len(log)

    def write(self) -> Tally:
        """A writer stores what is on the stream."""
        config = config_store(self.client, self.settings)
        return Writer(self.client, self.settings, config).run(burst=True)

    def items(self) -> list[Item]:
        """Everything stored, oldest first."""
        return list(agent_memory(self.client, self.settings, self.agent).all_items())

    def links(self) -> list[Link]:
        """Every connection, once."""
        memory = agent_memory(self.client, self.settings, self.agent)
        found = {link.field: link for item_id in memory.ids() for link in memory.links(item_id)}
        return list(found.values())

    def recall(self) -> list[Hit]:
        """Ask the question, and count it as a recall."""
        memory = agent_memory(self.client, self.settings, self.agent)
        now = time.time()
        hits = MemoryView(memory).recall(QUESTIONS[self.lang], 5, now=now)
        memory.touch([hit.item.id for hit in hits], now)
        return hits

    def enable(self) -> str:
        """The operator switches the pass on; the model that will be used."""
        model = choose_model(self.settings)
        config_store(self.client, self.settings).set({"enabled": "on", "model": model.name})
        return model.name

    def schedule(self) -> Tick:
        """A scheduler looks who is due and idle."""
        queue = pass_queue(connect.queue(self.settings), self.settings)
        config = config_store(self.client, self.settings)
        return Scheduler(self.client, queue, self.settings, config).tick()

    def work(self) -> Report:
        """An RQ worker does the pass; its report."""
        # -P: what lies in the folder we were started in, a worker.py say, is none of ours.
        command = [sys.executable, "-P", "-m", "worker", "worker", "--burst"]
        subprocess.run(command, env=self.environ, check=True, stdout=subprocess.DEVNULL)
        return Runs(self.client, self.settings).reports(self.agent)[0]


@contextmanager
def stage(lang: str, base: Settings) -> Iterator[Story]:
    """An embedded server of its own, with the model offline unless REMQ_LLM=openai asks for one."""
    with embedded.server() as url:
        # The sample agent has no queue and sent its last event just now; it may sleep at once.
        changes: dict[str, Any] = {
            "llm": "openai" if base.llm == "openai" else "offline",
            "agent_queues": "",
            "quiet_s": 0,
        }
        environ = {variable(name): str(value) for name, value in changes.items()}
        environ |= {"REMQ_REDIS_URL": url, "REMQ_QUEUE_URL": url}
        places = {"redis_url": SecretStr(url), "queue_url": SecretStr(url)}
        settings = base.model_copy(update=changes | places)
        yield Story(lang, connect.memory(settings), settings, {**os.environ, **environ})
