"""`remq demo`: the whole way of an event, told on a terminal."""

from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from worker import settings as environment
from worker.cli.consolidation import print_report
from worker.cli.memory import when
from worker.cli.recall import hits_table
from worker.cli.session import err, json_option, out, print_json
from worker.demo.story import QUESTIONS, Story, stage
from worker.memory.item import Item
from worker.memory.recall import Hit, context, public


@click.command(
    epilog="""\b
Examples:
  remq demo
  remq demo --lang zh
  remq demo --json

No network and no key: the model is an offline stand-in, unless REMQ_LLM=openai names another."""
)
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True)
@json_option
def demo(lang: str, as_json: bool) -> None:
    """Five days of an agent's log: stored, recalled, slept on, recalled again."""
    with err.status("Starting a server") as status, stage(lang, environment.load()) as story:
        if as_json:
            print_json(_data(story))
            return
        status.stop()
        _tell(story)


def _data(story: Story) -> dict[str, Any]:
    story.emit()
    stored = story.write().stored
    before = _recalled(story, story.recall())
    story.enable()
    story.schedule()
    report = story.work()
    after = _recalled(story, story.recall())
    return {
        "stored": stored,
        "recall_before": before,
        "report": report.public(),
        "recall_after": after,
    }


def _recalled(story: Story, hits: list[Hit]) -> dict[str, Any]:
    return {
        "agent": story.agent,
        "query": QUESTIONS[story.lang],
        "items": [public(hit) for hit in hits],
        "context": context(hits),
    }


def _tell(story: Story) -> None:
    _heading("1. An agent emits five days of events to a Redis stream")
    out.print(f"{story.emit()} events sent.")
    _heading("2. A writer checks, clips and stores them, each once")
    out.print(story.write().sentence())
    out.print(_items_table(story.items()))
    _heading(f"3. Recall before: {QUESTIONS[story.lang]}")
    out.print(hits_table(story.recall()))
    _heading("4. The operator switches the sleep pass on; the scheduler finds the agent idle")
    out.print(f"Model: {story.enable()}", markup=False)
    for run in story.schedule().enqueued:
        out.print(f"Enqueued run {run['run']}", markup=False)
    _heading("5. An RQ worker does the pass: window, metadata, connections, insight, commit")
    with err.status("Sleeping"):
        report = story.work()
    print_report(report)
    for link in story.links():
        out.print(f"  {link.from_id} → {link.to_id}  {link.relationship}", markup=False)
    for item in story.items():
        if item.id == report.insight_id:
            out.print(f"\n  [bold green]{escape(item.text)}[/bold green]")
    _heading(f"6. Recall after: {QUESTIONS[story.lang]}")
    hits = story.recall()
    out.print(hits_table(hits))
    _heading("What an agent puts into its system prompt")
    out.print(context(hits), markup=False)


def _heading(text: str) -> None:
    out.print(f"\n[bold cyan]{escape(text)}[/bold cyan]")


def _items_table(items: list[Item]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "when", "tier", "kind"):
        table.add_column(name, no_wrap=True)
    width = max(20, out.width - 43)  # What the columns before it leave.
    table.add_column("text", overflow="ellipsis", no_wrap=True, ratio=1, max_width=width)
    for item in items:
        row = (str(item.id), when(item.ts), item.tier, item.kind, escape(item.text))
        table.add_row(*row, style="dim" if item.kind == "note" else "")
    return table
