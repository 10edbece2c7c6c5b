"""Run-time settings: what an operator switches while everything runs.

A value comes from the agent's own hash, else from the hash for all, else from the environment.
`enabled` and `model` live only in Redis: off until an operator switches the pass on, and then only
with the model it was switched on for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from redis.exceptions import RedisError

from worker.connect import Client
from worker.errors import SettingsError
from worker.keys import Keys
from worker.outage import is_about_data
from worker.settings import Settings

#: Set while any agent may have settings of its own: with the switch off for all and this unset,
#: a scheduler's tick is one read.
OVERRIDES = b"overrides"


@dataclass(frozen=True, slots=True)
class Config:
    """The run-time settings in force for an agent. `interval_minutes` is minutes."""

    enabled: bool = False
    model: str = ""
    interval_minutes: float = 30.0
    window_size: int = 20
    min_items: int = 3
    max_connections: int = 5
    rerate_salience: bool = True
    extract_metadata: bool = True
    extract_on_write: bool = False

    @classmethod
    def from_settings(cls, settings: Settings) -> "Config":
        """What holds while nothing was set at run time."""
        names = {field.name for field in fields(cls)} - {"enabled", "model"}
        return cls(**{name: getattr(settings, name) for name in names})

    @property
    def interval_s(self) -> float:
        """Seconds from one pass to the next."""
        return self.interval_minutes * 60

    @property
    def backoff_s(self) -> float:
        """Seconds to the next try after a failed pass, so that a broken model burns no tokens."""
        return min(self.interval_s, 300)

    def with_row(self, row: Mapping[bytes, bytes]) -> "Config":
        """The same, changed by a hash in Redis; a value that cannot be read is passed over."""
        changes: dict[str, Any] = {}
        for field in fields(self):
            raw = row.get(field.name.encode())
            if raw is not None:
                try:
                    changes[field.name] = parse(field.name, raw.decode())
                except (SettingsError, UnicodeDecodeError):
                    continue
        return replace(self, **changes)


#: What each run-time setting is read as: a switch, a text or a number.
_KINDS: dict[str, type[Any]] = {field.name: type(field.default) for field in fields(Config)}
#: The lowest and highest a number may be; both hold.
_BOUNDS: dict[str, tuple[float, float]] = {
    "interval_minutes": (0.001, 525_600),
    "window_size": (1, 200),
    "min_items": (1, 200),
    "max_connections": (-1000, 1000),
}
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def parse(name: str, text: str) -> bool | int | float | str:
    """Read a run-time setting. Raises SettingsError naming what is wanted."""
    kind = _KINDS.get(name)
    if kind is None:
        names = ", ".join(_KINDS)
        raise SettingsError(f"There is no run-time setting {name!r}; there are {names}.")
    if kind is bool:
        value = _SWITCH.get(text.strip().lower())
        if value is None:
            raise SettingsError(f"{name} is a switch: on or off, not {text[:20]!r}.")
        return value
    if kind is str:
        return text
    low, high = _BOUNDS[name]
    try:
        count: float = kind(text)
    except ValueError:
        wanted = "a number" if kind is float else "a whole number"
        raise SettingsError(f"{name} is {wanted}, not {text[:20]!r}.") from None
    if not low <= count <= high:
        raise SettingsError(f"{name} lies between {low:g} and {high:g}, not {text[:20]}.")
    return count


class ConfigStore:
    """Reads and writes the run-time settings."""

    def __init__(self, client: Client, keys: Keys, base: Config) -> None:
        self.client = client
        self.keys = keys
        self.base = base

    def for_all(self) -> tuple[Config, bool]:
        """The settings for all, and whether any agent may have its own: one read."""
        row = self.client.hgetall(self.keys.config)
        return self.base.with_row(row), OVERRIDES in row

    def for_agent(self, agent: str) -> Config:
        """The settings in force for one agent: one round trip."""
        return self.for_agents([agent])[agent]

    def for_agents(self, agents: list[str]) -> dict[str, Config]:
        """The settings in force for each agent: one round trip.

        An agent whose own cannot be read is off: it may be the switch that is in there.
        """
        pipe = self.client.pipeline(transaction=False)
        pipe.hgetall(self.keys.config)
        for agent in agents:
            pipe.hgetall(self.keys.agent(agent).config)
        shared, *own = pipe.execute(raise_on_error=False)
        if isinstance(shared, RedisError):
            raise shared
        general = self.base.with_row(shared)
        return {
            agent: general.with_row(_readable(row)) for agent, row in zip(agents, own, strict=True)
        }

    def overrides(self) -> set[str]:
        """The agents that have settings of their own."""
        return {member.decode() for member in self.client.smembers(self.keys.overrides)}

    def set(self, values: Mapping[str, str], agent: str | None = None) -> None:
        """Set run-time settings for all or for one agent. Raises SettingsError before any write."""
        checked = {name: _stored(parse(name, text)) for name, text in values.items()}
        if agent is None:
            self.client.hset(self.keys.config, mapping=checked)
            return
        # The mark first: a crash in between costs a read, never an override that nobody sees.
        self.client.hset(self.keys.config, OVERRIDES, "1")
        self.client.sadd(self.keys.overrides, agent)
        self.client.hset(self.keys.agent(agent).config, mapping=checked)


def _readable(row: Mapping[bytes, bytes] | RedisError) -> Mapping[bytes, bytes]:
    if not isinstance(row, RedisError):
        return row
    if not is_about_data(row):
        raise row
    return {b"enabled": b"off"}


def _stored(value: bool | int | float | str) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
