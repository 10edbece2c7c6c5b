"""Memories for processes to work on, and the check that a pass over them happened exactly once."""

from collections import Counter
from collections.abc import Iterable

from producer import Event, emit_many
from worker.connect import Client
from worker.memory.store import AgentMemory
from worker.runs import Runs

NOTES = [
    "Billing moves to the Frankfurt region once the audit has passed",
    "Ana asked who signs off the audit of the Frankfurt region",
    "The invoice export reads from the old billing region until the audit",
    "Ben tested the backup of the Frankfurt region and it restored",
]


def send_notes(client: Client, agents: Iterable[str]) -> None:
    """Four notes of each agent."""
    emit_many(client, [Event(agent, f"{note} ({agent})") for agent in agents for note in NOTES])


def settled(memory: AgentMemory, runs: Runs) -> bool:
    """Whether a pass is over, with nothing left to do after it."""
    agent = memory.keys.agent
    record = runs.record(agent)
    over = bool(runs.reports(agent)) and record.state == "idle" and not record.unpublished
    due = memory.client.zscore(runs.keys.due, agent)
    return (
        over
        and not memory.client.zcard(memory.keys.unconsolidated)
        and (due is None or due >= record.not_before)
    )


def check_once(memory: AgentMemory, runs: Runs, *, announced: int = 1) -> None:
    """One insight, unique connections, each rise of salience once, all notes consolidated.

    `announced` is how often the insight may stand on the insights stream, with the same run.
    """
    client, agent = memory.client, memory.keys.agent
    insights = [item for item in memory.all_items() if item.kind == "insight"]
    notes = [item for item in memory.all_items() if item.kind != "insight"]
    assert (len(notes), len(insights)) == (len(NOTES), 1), agent
    assert all(note.last_consolidated_at for note in notes), agent
    (report,) = runs.reports(agent, count=10)
    assert report.insight_id == insights[0].id

    links = {link.field: link for note in notes for link in memory.links(note.id)}
    assert len(links) == client.hlen(memory.keys.connections) == report.connections_made >= 1
    assert {link.insight_id for link in links.values()} == {report.insight_id}
    degrees = Counter(end for link in links.values() for end in (link.from_id, link.to_id))
    for note in notes:
        bump = int(client.hget(memory.keys.item(note.id), "bump") or 0)
        assert bump == 10 * degrees[note.id], (agent, note.id)
        assert note.salience == min(1, round(0.6 + 0.1 * degrees[note.id], 10)), (agent, note.id)

    rows = [row for _, row in client.xrange(runs.keys.insights) if row[b"agent"] == agent.encode()]
    assert 1 <= len(rows) <= announced, agent
    assert {row[b"run"].decode() for row in rows} == {report.run}
