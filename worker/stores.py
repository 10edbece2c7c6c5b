"""An agent's memory and the run-time settings, for the settings of this process.

Apart from the jobs that use them too: a command that only reads loads neither RQ nor a model.
"""

from worker.config import Config, ConfigStore
from worker.connect import Client
from worker.keys import Keys
from worker.memory.store import AgentMemory
from worker.settings import Settings


def config_store(client: Client, settings: Settings) -> ConfigStore:
    """The run-time settings on a server, over those of this environment."""
    return ConfigStore(client, Keys(settings.prefix), Config.from_settings(settings))


def agent_memory(client: Client, settings: Settings, agent: str) -> AgentMemory:
    """One agent's memory on a server."""
    return AgentMemory(client, Keys(settings.prefix).agent(agent), feed_max=settings.feed_max)
