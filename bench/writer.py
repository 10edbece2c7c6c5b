"""Events a second of one writer, against one redis-py producer that pipelines the same events.

Both run in one process on one embedded server, in turn, round after round, so that whatever else
the machine does hits both. The producer sends fields made beforehand and does nothing else, which
is the least a client of redis-py can do. The writer takes those very entries off the stream; its
time runs from its first command to the answer to its last acknowledgement.
"""

import gc
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from rich import box
from rich.console import Group
from rich.table import Table

from bench.events import mean_bytes, sampled
from bench.machine import facts
from bench.options import count, parser, show
from worker import connect, embedded
from worker import settings as environment
from worker.connect import Client
from worker.group import Entry
from worker.keys import Keys
from worker.settings import Settings
from worker.stores import config_store
from worker.writer import Writer

EVENTS = 20_000
ROUNDS = 5
#: A small number of agents makes few, large script calls; a large one many small ones.
AGENTS = (1, 50)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a number of events took: seconds by the clock, and of processor on both sides."""

    wall_s: float
    client_s: float
    server_s: float


@dataclass(frozen=True, slots=True)
class Side:
    """Medians of one side: events a second, and microseconds of processor for each event."""

    per_s: int
    client_us: float
    server_us: float

    @classmethod
    def of(cls, costs: Sequence[Cost], events: int) -> "Side":
        """The medians over all rounds."""
        return cls(
            round(events / median(cost.wall_s for cost in costs)),
            round(median(cost.client_s for cost in costs) / events * 1e6, 1),
            round(median(cost.server_s for cost in costs) / events * 1e6, 1),
        )


@dataclass(frozen=True, slots=True)
class Result:
    """One comparison. `ratio` is writer / producer: the median over rounds, then the extremes."""

    agents: int
    events: int
    batch: int
    text_bytes: int
    rounds: int
    producer: Side
    writer: Side
    ratio: float
    ratio_low: float
    ratio_high: float


class TimedWriter(Writer):
    """A writer that notes when its last batch was acknowledged."""

    ended: float = 0.0

    def store(self, entries: list[Entry]) -> None:
        """Store a batch and look at the clock."""
        super().store(entries)
        self.ended = time.perf_counter()


def compare(client: Client, agents: int, events: int, batch: int, rounds: int) -> Result:
    """Let producer and writer take turns, `rounds` times after one that does not count."""
    settings = environment.load(batch=batch)
    made = sampled(events, agents)
    rows = [event.fields() for event in made]
    # What stands ready here is no load of either side: it stays out of the collector's sight.
    gc.collect()
    gc.freeze()
    sent: list[Cost] = []
    stored: list[Cost] = []
    for _ in range(rounds + 1):
        client.flushall()
        sent.append(_measured(client, lambda: _produce(client, rows, batch)))
        stored.append(_measured(client, lambda: _write(client, settings, events)))
    sent, stored = sent[1:], stored[1:]
    ratios = [one.wall_s / other.wall_s for one, other in zip(sent, stored, strict=True)]
    return Result(
        agents,
        events,
        batch,
        mean_bytes(made),
        rounds,
        Side.of(sent, events),
        Side.of(stored, events),
        round(median(ratios), 2),
        round(min(ratios), 2),
        round(max(ratios), 2),
    )


def _produce(client: Client, rows: Sequence[dict[str, str]], batch: int) -> float:
    stream = Keys().events
    for start in range(0, len(rows), batch):
        pipe = client.pipeline(transaction=False)
        for row in rows[start : start + batch]:
            pipe.xadd(stream, row)
        pipe.execute()
    return time.perf_counter()


def _write(client: Client, settings: Settings, events: int) -> float:
    writer = TimedWriter(client, settings, config_store(client, settings))
    tally = writer.run(burst=True)
    if tally.stored != events or client.xlen(writer.keys.events):
        raise RuntimeError(f"of {events} events: {tally.sentence()}")
    return writer.ended


def _measured(client: Client, work: Callable[[], float]) -> Cost:
    """What `work` takes; it answers with the time at which it was done."""
    gc.collect()
    server_s, client_s = _server_seconds(client), _own_seconds()
    began = time.perf_counter()
    ended = work()
    client_s = _own_seconds() - client_s
    return Cost(ended - began, client_s, _server_seconds(client) - server_s)


def _own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _server_seconds(client: Client) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def table(results: Sequence[Result]) -> Group:
    """The results for people."""
    first = results[0]
    shown = Table(box=box.MARKDOWN)
    shown.add_column("agents", justify="right")
    shown.add_column("")
    for name in ("events/s", "client µs/event", "server µs/event", "ratio", "lowest-highest"):
        shown.add_column(name, justify="right")
    for one in results:
        shown.add_row(str(one.agents), "producer", *_cells(one.producer), "1", "")
        span = f"{one.ratio_low:.2f}-{one.ratio_high:.2f}"
        shown.add_row("", "writer", *_cells(one.writer), f"{one.ratio:.2f}", span)
    heading = (
        f"Writer against producer: {first.events:,} events, {first.text_bytes} bytes of text each, "
        f"batches of {first.batch}, medians of {first.rounds} rounds"
    )
    return Group(heading, shown)


def _cells(side: Side) -> tuple[str, str, str]:
    return f"{side.per_s:,}", f"{side.client_us:.1f}", f"{side.server_us:.1f}"


def measure(
    client: Client,
    agents: Sequence[int] = AGENTS,
    *,
    events: int = EVENTS,
    batch: int | None = None,
    rounds: int = ROUNDS,
) -> list[Result]:
    """Compare for each number of agents; `batch` None is the writer's default."""
    size = batch or environment.load().batch
    return [compare(client, count, events, size, rounds) for count in agents]


def main() -> None:
    """Measure on an embedded server and print."""
    reader = parser("bench.writer", __doc__)
    reader.add_argument("--events", type=count, default=EVENTS, help="default: %(default)s")
    reader.add_argument(
        "--batch", type=count, choices=range(1, 1001), metavar="N", help="default: the writer's own"
    )
    reader.add_argument("--agents", type=count, nargs="+", default=AGENTS, help="default: 1 50")
    reader.add_argument("--rounds", type=count, default=ROUNDS, help="default: %(default)s")
    options = reader.parse_args()
    with embedded.server() as url:
        client = connect.by_url(url)
        machine = facts(client)
        results = measure(
            client,
            options.agents,
            events=options.events,
            batch=options.batch,
            rounds=options.rounds,
        )
    figures = {"writer": [asdict(one) for one in results]}
    show(machine, figures, [table(results)], as_json=options.json)


if __name__ == "__main__":
    main()
