"""Every Redis key of remq, once; docs/data-model.md tells what each holds.

All keys of one agent carry the hash tag `{agent}`, so that a cluster keeps them in one slot and a
script may touch them together. No script touches keys of two slots.
"""

from dataclasses import dataclass

from producer import keys as shared


@dataclass(frozen=True, slots=True)
class AgentKeys:
    """The keys of one agent's memory."""

    prefix: str
    agent: str

    def _key(self, name: str) -> str:
        return f"{self.prefix}:{{{self.agent}}}:{name}"

    def item(self, item_id: int | str) -> str:
        """Hash: one memory."""
        return self._key(f"item:{item_id}")

    def links(self, item_id: int | str) -> str:
        """Set: the connections that touch an item, or that an insight stands on."""
        return self._key(f"links:{item_id}")

    @property
    def ids(self) -> str:
        """String: the last item id handed out."""
        return self._key("ids")

    @property
    def rev(self) -> str:
        """String: the last revision."""
        return self._key("rev")

    @property
    def epoch(self) -> str:
        """String: a random name of this life of the memory."""
        return self._key("epoch")

    @property
    def items(self) -> str:
        """Sorted set: item ids by time."""
        return self._key("items")

    @property
    def unconsolidated(self) -> str:
        """Sorted set: item ids that wait for a pass, by time."""
        return self._key("unconsolidated")

    @property
    def expiring(self) -> str:
        """Sorted set: item ids by expiry."""
        return self._key("expiring")

    @property
    def provenance(self) -> str:
        """Sorted set, lexical: `provenance NUL id`."""
        return self._key("provenance")

    @property
    def insights(self) -> str:
        """Sorted set: ids of the insights, by time."""
        return self._key("insights")

    @property
    def seen(self) -> str:
        """Sorted set: event ids already stored, by time of storing."""
        return self._key("seen")

    @property
    def connections(self) -> str:
        """Hash: `from:to:relationship` to `insight id|run|time`."""
        return self._key("connections")

    @property
    def changes(self) -> str:
        """Stream: put, delete, touch, rerate with a revision; no text."""
        return self._key("changes")

    @property
    def run(self) -> str:
        """Hash: the claimed run, and when the next may start."""
        return self._key("run")

    @property
    def passes(self) -> str:
        """Stream: reports of passes; no text."""
        return self._key("passes")

    @property
    def config(self) -> str:
        """Hash: this agent's own run-time settings."""
        return self._key("config")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys under one prefix, and the door to each agent's."""

    prefix: str = shared.DEFAULT_PREFIX

    def agent(self, agent: str) -> AgentKeys:
        """The keys of one agent's memory."""
        return AgentKeys(self.prefix, agent)

    @property
    def events(self) -> str:
        """Stream: what agents emit; an entry is deleted once it is stored."""
        return shared.events(self.prefix)

    @property
    def dead(self) -> str:
        """Stream: refused events with the reason and the entry's id."""
        return f"{self.prefix}:dead"

    @property
    def agents(self) -> str:
        """Sorted set: every agent by the time of its last event."""
        return f"{self.prefix}:agents"

    @property
    def due(self) -> str:
        """Sorted set: agents by the time their next pass may start."""
        return f"{self.prefix}:due"

    @property
    def config(self) -> str:
        """Hash: run-time settings for all."""
        return f"{self.prefix}:config"

    @property
    def overrides(self) -> str:
        """Set: the agents that have run-time settings of their own."""
        return f"{self.prefix}:overrides"

    @property
    def leader(self) -> str:
        """String with an expiry: the scheduler that leads."""
        return f"{self.prefix}:leader"

    @property
    def insights(self) -> str:
        """Stream: every new insight, for agents to follow."""
        return f"{self.prefix}:insights"

    @property
    def recall(self) -> str:
        """List: recall requests."""
        return shared.recall(self.prefix)

    @property
    def reply_prefix(self) -> str:
        """How every reply list begins."""
        return shared.reply(self.prefix, "")
