"""`remq recall`: ask an agent's memory, in this process."""

import time

import click
from redis.exceptions import RedisError
from rich.markup import escape
from rich.table import Table

from worker import connect
from worker.cli.session import Session, agent_option, err, json_option, out, print_json
from worker.memory.recall import Hit, context, public
from worker.memory.view import MemoryView
from worker.recaller import K_MAX
from worker.stores import agent_memory

CONTEXT_K = 4


@click.command(
    epilog="""\b
Examples:
  remq recall --agent alice "billing region"
  remq recall --agent alice "结算区域" -k 3 --explain
  remq recall --agent alice "billing" --context --no-touch"""
)
@agent_option
@click.argument("query")
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    help="How many, at most 1,000; default 5, with --context 4.",
)
@click.option("--explain", is_flag=True, help="Show what each score is made of.")
@click.option("--context", "as_context", is_flag=True, help="Print the block for a system prompt.")
@click.option("--no-touch", is_flag=True, help="Do not count this as a recall.")
@json_option
def recall(
    agent: str,
    query: str,
    k: int | None,
    explain: bool,
    as_context: bool,
    no_touch: bool,
    as_json: bool,
) -> None:
    """Find the memories that answer a query; facts and insights compete alike."""
    session = Session()
    now = time.time()
    # A shell may hand over bytes that are no text; they match nothing, and no JSON can hold them.
    query = query.encode(errors="replace").decode()
    view = MemoryView(agent_memory(session.client, session.settings, agent))
    hits = view.recall(query, min(K_MAX, k or (CONTEXT_K if as_context else 5)), now=now)
    if not no_touch and view.at.rev:
        _touch(session, agent, hits, now)
    block = context(hits)
    if as_json:
        items = [public(hit, explain=explain) for hit in hits]
        print_json({"agent": agent, "query": query, "items": items, "context": block})
    elif as_context:
        out.print(block, markup=False)
    elif hits:
        out.print(hits_table(hits, explain=explain))
    else:
        known = "No memory matches." if view.at.rev else f"Agent {agent} has no memory yet."
        out.print(known, markup=False)


def _touch(session: Session, agent: str, hits: list[Hit], now: float) -> None:
    """Count the recall; that it could not be counted does not keep the answer back."""
    touching = connect.memory(session.settings, retries=0)
    try:
        agent_memory(touching, session.settings, agent).touch([hit.item.id for hit in hits], now)
    except RedisError as error:
        err.print(f"This recall was not counted ({type(error).__name__}).", markup=False)


def hits_table(hits: list[Hit], *, explain: bool = False) -> Table:
    """Hits as a table for people."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("score", *(("bm25", "salience", "recalled", "fresh") if explain else ())):
        table.add_column(name, justify="right")
    for name in ("id", "kind"):
        table.add_column(name)
    table.add_column("text", overflow="fold", ratio=1)
    for hit in hits:
        parts = (hit.bm25, hit.item.salience, hit.access, hit.freshness) if explain else ()
        numbers = [f"{value:.3f}" for value in (hit.score, *parts)]
        table.add_row(
            *numbers,
            str(hit.item.id),
            escape(hit.item.kind),
            escape(" ".join(hit.item.text.split())),
        )
    return table
