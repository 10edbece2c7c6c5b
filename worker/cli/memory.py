"""`remq memory`: look at an agent's memories, and forget them on purpose."""

import math
import time
from datetime import UTC, datetime
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from worker.cli.session import Session, agent_option, json_option, out, print_json, print_lines
from worker.errors import MemoryNotFound, RemqError
from worker.memory import retention
from worker.memory.item import INSIGHT, Item
from worker.memory.retention import Removed
from worker.memory.store import AgentMemory
from worker.stores import agent_memory


class Finite(click.FloatRange):
    """A number in a range; `nan` and `inf` are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would go.")


@click.group(
    epilog="""\b
Examples:
  remq memory list --agent alice
  remq memory show 12 --agent alice --json
  remq memory forget --agent alice --exact user:42 --dry-run"""
)
def memory() -> None:
    """List, show, delete and forget memories."""


def _memory(agent: str) -> AgentMemory:
    session = Session()
    return agent_memory(session.client, session.settings, agent)


@memory.command("list", epilog="\b\nExample:\n  remq memory list --agent alice --json")
@agent_option
@json_option
def list_items(agent: str, as_json: bool) -> None:
    """Every memory of an agent, oldest first."""
    items = _memory(agent).all_items()
    if as_json:
        print_lines(item.public() for item in items)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "when", "tier", "kind", "salience", "recalled"):
        table.add_column(
            name, justify="right" if name in {"id", "salience", "recalled"} else "left"
        )
    table.add_column("text", overflow="fold", ratio=1)
    for item in items:
        table.add_row(
            str(item.id), when(item.ts), item.tier, escape(item.kind), f"{item.salience:.2f}",
            str(item.access_count), escape(" ".join(item.text.split())),
        )  # fmt: skip
    out.print(table if table.row_count else "No memories.")


@memory.command(epilog="\b\nExample:\n  remq memory show 12 --agent alice")
@agent_option
@click.argument("item_id", type=click.IntRange(min=1), metavar="ID")
@json_option
def show(agent: str, item_id: int, as_json: bool) -> None:
    """One memory with its connections, and for an insight its sources."""
    store = _memory(agent)
    item = store.get(item_id)
    links = [link.public() for link in store.links(item_id)]
    if as_json:
        print_json({**item.public(), "connections": links})
        return
    _print_item(item)
    for link in links:
        insight = f"  (insight {link['insight_id']})" if link["insight_id"] else ""
        line = f"  {link['from_id']} → {link['to_id']}  {link['relationship']}{insight}"
        out.print(line, markup=False)


def _print_item(item: Item) -> None:
    out.print(f"[bold]{item.id}[/bold]  {escape(item.text)}")
    details = {
        "tier": item.tier,
        "kind": item.kind,
        "provenance": item.provenance,
        "when": when(item.ts),
        "salience": f"{item.salience:.2f}",
        "recalled": str(item.access_count),
        "expires": when(item.expires_at),
        "consolidated": when(item.last_consolidated_at),
        "entities": ", ".join(item.entities),
        "topics": ", ".join(item.topics),
        "sources": ", ".join(map(str, item.source_ids)) if item.kind == INSIGHT else "",
    }
    for name, value in details.items():
        if value:
            out.print(f"  {name:<13}{value}", markup=False)


@memory.command(epilog="\b\nExample:\n  remq memory delete 12 --agent alice")
@agent_option
@click.argument("item_id", type=click.IntRange(min=1), metavar="ID")
@json_option
def delete(agent: str, item_id: int, as_json: bool) -> None:
    """Delete one memory with its connections."""
    if not _memory(agent).delete(item_id):
        raise MemoryNotFound(f"Agent {agent!r} has no memory {item_id}.")
    if as_json:
        print_json({"removed": 1, "ids": [item_id]})
    else:
        out.print(f"Deleted memory {item_id}.")


@memory.command(epilog="\b\nExample:\n  remq memory stats --agent alice --json")
@agent_option
@json_option
def stats(agent: str, as_json: bool) -> None:
    """How many memories, connections and insights there are."""
    counts = _memory(agent).counts()
    if as_json:
        print_json({"agent": agent, **counts})
        return
    for name, count in counts.items():
        out.print(f"{name:<15}{count}")


@memory.command(epilog="\b\nExample:\n  remq memory purge --agent alice --dry-run")
@agent_option
@dry_run_option
@json_option
def purge(agent: str, dry_run: bool, as_json: bool) -> None:
    """Remove the memories that have expired."""
    removed = retention.purge_expired(_memory(agent), now=time.time(), dry_run=dry_run)
    _tell(removed, dry_run, as_json)


@memory.command(epilog="\b\nExample:\n  remq memory decay --agent alice --max-age-days 30")
@agent_option
@click.option("--max-age-days", type=Finite(min=0), default=90.0, show_default=True)
@click.option("--salience-floor", type=Finite(0, 1), default=0.2, show_default=True)
@dry_run_option
@json_option
def decay(
    agent: str, max_age_days: float, salience_floor: float, dry_run: bool, as_json: bool
) -> None:
    """Remove old episodic memories of little salience."""
    removed = retention.decay_episodic(
        _memory(agent),
        now=time.time(),
        max_age_days=max_age_days,
        salience_floor=salience_floor,
        dry_run=dry_run,
    )
    _tell(removed, dry_run, as_json)


@memory.command(
    epilog="""\b
Examples:
  remq memory forget --agent alice --exact user:42
  remq memory forget --agent alice --provenance tool: --yes

A prefix names more than it seems: user:4 also names user:42."""
)
@agent_option
@click.option("--provenance", "prefix", help="Forget every provenance that begins with this.")
@click.option("--exact", help="Forget exactly this provenance.")
@click.option("--yes", is_flag=True, help="Go on where a prefix names several provenances.")
@dry_run_option
@json_option
def forget(
    agent: str, prefix: str | None, exact: str | None, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Forget every memory that came from somewhere."""
    if not (prefix or exact) or (prefix and exact):
        raise click.UsageError("Name either --provenance PREFIX or --exact PROVENANCE.")
    store = _memory(agent)
    if exact:
        _tell(retention.forget_exact(store, exact, dry_run=dry_run), dry_run, as_json)
        return
    named = retention.provenances(store, prefix or "")
    if len(named) > 1 and not (yes or dry_run):
        shown = ", ".join(f"{name} ({count})" for name, count in list(named.items())[:10])
        more = f" and {len(named) - 10} more" if len(named) > 10 else ""
        raise RemqError(
            f"The prefix names {len(named)} provenances: {shown}{more}. Nothing was forgotten; "
            "add --yes to forget them all, or name one with --exact."
        )
    removed = retention.forget_by_provenance(store, prefix or "", dry_run=dry_run)
    _tell(removed, dry_run, as_json)


def _tell(removed: Removed, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({**removed.public(), "dry_run": dry_run})
        return
    verb = "Would remove" if dry_run else "Removed"
    out.print(f"{verb} {len(removed.ids)}.")
    for provenance, count in removed.provenances.items():
        out.print(f"  {count:>6}  {provenance}", markup=False)


def when(ts: float | None) -> str:
    """A time for people, in UTC; empty for none."""
    return "" if ts is None else f"{datetime.fromtimestamp(ts, UTC):%Y-%m-%d %H:%M}"
