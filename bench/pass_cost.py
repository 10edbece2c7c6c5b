"""What a pass costs without the model's share: milliseconds, round trips, commands.

Each pass runs on a fresh agent of 20 memories, from the start of its claimed run to its report, as
a worker does it; claiming and RQ are left out. The model answers at once, from memory, but words
each question as one over the network would. Nothing else of the pass is left out.
"""

import gc
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from unittest import mock

from rich import box
from rich.console import Group
from rich.table import Table

from bench.events import sampled
from bench.machine import facts
from bench.options import count, parser, show
from bench.trips import noted, spelled
from producer import Event
from worker import connect, embedded, jobs
from worker import settings as environment
from worker.connect import Client
from worker.memory.scripts import run
from worker.memory.text import clip
from worker.runs import Runs
from worker.settings import Settings
from worker.sleep import prompts
from worker.sleep.model import Answer, Question, Step
from worker.sleep.report import OK
from worker.stores import agent_memory

PASSES = 200
MEMORIES = 20
CONNECTIONS = 5
#: What a pass may cost, at most.
AIM_MS = 15.0
AIM_TRIPS = 10


@dataclass(frozen=True, slots=True)
class Result:
    """Milliseconds over all passes; round trips and commands of one, which all have alike.

    `commands` are those the server ran, commands of scripts included. `connecting_trips` come
    before a worker's first pass on a new connection.
    """

    passes: int
    memories: int
    ms: float
    ms_p95: float
    round_trips: int
    commands: int
    connecting_trips: int
    trips: list[list[str]]


class ScriptedModel:
    """Answers from memory, at once: every item tagged, five connections, one insight."""

    name = "scripted"

    def __init__(self, items: int) -> None:
        rows = [
            {"id": n, "entities": ["Billing", f"Person {n}"], "topics": ["region", "audit"]}
            for n in range(1, items + 1)
        ]
        links = [
            {"from_id": n, "to_id": n + 1, "relationship": "explains why it was put off"}
            for n in range(1, CONNECTIONS + 1)
        ]
        self._answers = {
            Step.METADATA: json.dumps(rows),
            Step.CONNECTIONS: json.dumps(links),
            Step.INSIGHT: "Whatever touches Billing waits for the audit of the new region.",
        }

    def ask(self, question: Question, *, deadline_s: float) -> Answer:
        """Word the question, and answer it."""
        prompts.messages(question)
        return Answer(self._answers[question.step], 1000, 100)


def measure(url: str, passes: int = PASSES) -> Result:
    """Do `passes` passes that count, after one that warms up and one that is looked at."""
    settings = environment.load(redis_url=url, agent_queues="", quiet_s=0)
    client = connect.memory(settings)
    sent = noted(client)
    client.ping()
    connecting = len(sent) - 1
    client.flushall()
    events = [_clipped(event, settings) for event in sampled(MEMORIES, 1)]
    with mock.patch.object(jobs, "permitted_model", return_value=ScriptedModel(MEMORIES)):
        _timed(client, settings, "warm-up", events)
        token = _claimed(client, settings, "looked-at", events)
        client.config_resetstat()
        sent.clear()
        _perform(client, settings, "looked-at", token)
        trips = spelled(sent)
        commands = _commands_run(client)
        times = sorted(_timed(client, settings, f"agent-{n}", events) for n in range(passes))
    return Result(
        passes,
        MEMORIES,
        round(median(times), 2),
        round(times[int(passes * 0.95)], 2),
        len(trips),
        commands,
        connecting,
        trips,
    )


def _timed(client: Client, settings: Settings, agent: str, events: Sequence[Event]) -> float:
    """Do one pass on a fresh agent; the milliseconds it took."""
    token = _claimed(client, settings, agent, events)
    gc.collect()
    began = time.perf_counter()
    _perform(client, settings, agent, token)
    return (time.perf_counter() - began) * 1000


def _claimed(client: Client, settings: Settings, agent: str, events: Sequence[Event]) -> str:
    """Store the memories of a fresh agent and claim its run, as writer and scheduler do."""
    memory = agent_memory(client, settings, agent)
    run(client, memory.write_call(events, memory.reserve(len(events)), time.time()))
    return Runs(client, settings).claim(agent).token


def _perform(client: Client, settings: Settings, agent: str, token: str) -> None:
    report = jobs.run_claimed(client, settings, agent, token)
    if report is None or set(report.steps.values()) != {OK} or report.insights_written != 1:
        raise RuntimeError(f"the pass did not do its work: {report}")


def _clipped(event: Event, settings: Settings) -> Event:
    return replace(event, text=clip(event.text, settings.episodic_clip), ts=time.time())


def _commands_run(client: Client) -> int:
    """What the server has run since its statistics were reset, commands of scripts included."""
    rows: dict[str, dict[str, int]] = client.info("commandstats")
    return sum(row["calls"] for name, row in rows.items() if "config" not in name)


def table(result: Result) -> Group:
    """The result for people."""
    shown = Table(box=box.MARKDOWN)
    for name in ("", "measured", "aim"):
        shown.add_column(name, justify="right" if name else "left")
    shown.add_row("median, ms", f"{result.ms:.1f}", f"{AIM_MS:.0f}")
    shown.add_row("95th percentile, ms", f"{result.ms_p95:.1f}", "")
    shown.add_row("round trips", str(len(result.trips)), str(AIM_TRIPS))
    shown.add_row("round trips to connect, before it", str(result.connecting_trips), "")
    shown.add_row("commands the server ran, those of scripts too", str(result.commands), "")
    heading = (
        f"A pass over {result.memories} memories without the model's share, {result.passes} passes"
    )
    return Group(heading, shown)


def trips_table(result: Result) -> Group:
    """Every round trip of one pass."""
    shown = Table("trip", "commands", box=box.MARKDOWN)
    for number, trip in enumerate(result.trips, 1):
        times = Counter(trip).items()
        shown.add_row(str(number), ", ".join(f"{n} x {one}" if n > 1 else one for one, n in times))
    return Group("Its round trips", shown)


def main() -> None:
    """Measure on an embedded server and print."""
    reader = parser("bench.pass_cost", __doc__)
    reader.add_argument("--passes", type=count, default=PASSES, help="default: %(default)s")
    options = reader.parse_args()
    with embedded.server() as url:
        machine = facts(connect.by_url(url))
        result = measure(url, options.passes)
    tables = [table(result), trips_table(result)]
    show(machine, {"pass": asdict(result)}, tables, as_json=options.json)


if __name__ == "__main__":
    main()
