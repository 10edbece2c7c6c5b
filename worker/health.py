"""What is set up wrong on the server, in words, and how to mend it."""

import re
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from worker.connect import Client

OLDEST = (6, 2)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. A fatal one keeps a role from starting."""

    text: str
    fatal: bool = False


def server_faults(client: Client) -> list[Fault]:
    """Look at version, eviction, persistence and memory. A server that hides them gets a word.

    Raises RedisError where the server does not answer.
    """
    faults: list[Fault] = []
    try:
        info = _info(client)
    except ResponseError as error:
        return [Fault(f"The server does not let us look at INFO ({type(error).__name__}).")]
    version = tuple(int(part) for part in re.findall(r"\d+", str(info.get("redis_version")))[:2])
    if version and version < OLDEST:
        faults.append(Fault("The server is older than Redis 6.2: remq needs 6.2 or later.", True))
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        faults.append(
            Fault(
                f"The server may evict memories (maxmemory-policy {policy}): "
                "set it to noeviction, or memories will vanish without a trace."
            )
        )
    if not int(info.get("aof_enabled", 0)):
        faults.append(
            Fault(
                "The server keeps no append-only file: a restart may lose memories. "
                "Set appendonly yes."
            )
        )
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if limit and used > 0.9 * limit:
        faults.append(
            Fault(f"The server's memory is {100 * used // limit} % full: raise maxmemory.")
        )
    return faults


def _info(client: Client) -> dict[str, Any]:
    info: dict[str, Any] = client.info()
    # A cluster answers for each node; the first speaks for all, since they are set up alike.
    first = next(iter(info.values()), None)
    return first if isinstance(first, dict) and "redis_version" in first else info
