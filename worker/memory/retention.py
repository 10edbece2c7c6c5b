"""Forgetting: always the operator's, explicit, never silent."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from worker.memory.item import EPISODIC, Item
from worker.memory.store import AgentMemory

DAY_S = 86_400
#: Sorts after every provenance that begins like the one before it.
_LAST = b"\xff"


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed, or with a dry run would be: ids, and how many memories of each origin."""

    ids: tuple[int, ...]
    provenances: dict[str, int]

    def public(self) -> dict[str, object]:
        """The shape of `memory purge|decay|forget --json`."""
        return {"removed": len(self.ids), "ids": list(self.ids), "provenances": self.provenances}


def purge_expired(memory: AgentMemory, *, now: float, dry_run: bool = False) -> Removed:
    """Remove every item whose `expires_at` is not after `now`."""
    ids = memory.client.zrangebyscore(memory.keys.expiring, "-inf", now)
    return _remove(memory, memory.items(int(member) for member in ids), dry_run=dry_run)


def decay_episodic(
    memory: AgentMemory,
    *,
    now: float,
    max_age_days: float = 90,
    salience_floor: float = 0.2,
    dry_run: bool = False,
) -> Removed:
    """Remove episodic items older than `max_age_days` with salience at or below the floor."""
    oldest = now - max_age_days * DAY_S
    members = memory.client.zrangebyscore(memory.keys.items, "-inf", f"({oldest!r}")
    faded = (
        item
        for item in memory.items(int(member) for member in members)
        if item.tier == EPISODIC and item.salience <= salience_floor
    )
    return _remove(memory, faded, dry_run=dry_run, salience_at_most=salience_floor)


def provenances(memory: AgentMemory, prefix: str) -> dict[str, int]:
    """The provenances that begin with `prefix`, each with how many memories it has."""
    return dict(Counter(provenance for provenance, _ in _by_prefix(memory, prefix)))


def forget_by_provenance(memory: AgentMemory, prefix: str, *, dry_run: bool = False) -> Removed:
    """Remove every item whose provenance begins with `prefix`: `user:4` also names `user:42`."""
    ids = [item_id for _, item_id in _by_prefix(memory, prefix)]
    return _remove(memory, memory.items(ids), dry_run=dry_run)


def forget_exact(memory: AgentMemory, provenance: str, *, dry_run: bool = False) -> Removed:
    """Remove every item of exactly this provenance."""
    ids = [item_id for found, item_id in _by_prefix(memory, provenance) if found == provenance]
    return _remove(memory, memory.items(ids), dry_run=dry_run)


def _by_prefix(memory: AgentMemory, prefix: str) -> Iterator[tuple[str, int]]:
    start = prefix.encode()
    members = memory.client.zrangebylex(
        memory.keys.provenance, b"[" + start, b"[" + start + _LAST if start else "+"
    )
    for member in members:
        provenance, _, item_id = member.decode().rpartition("\0")
        yield provenance, int(item_id)


def _remove(
    memory: AgentMemory,
    items: Iterable[Item],
    *,
    dry_run: bool,
    salience_at_most: float | None = None,
) -> Removed:
    ids: list[int] = []
    counts: Counter[str] = Counter()
    for item in items:
        if dry_run or memory.delete(item.id, salience_at_most=salience_at_most):
            ids.append(item.id)
            counts[item.provenance] += 1
    return Removed(tuple(ids), dict(sorted(counts.items())))
