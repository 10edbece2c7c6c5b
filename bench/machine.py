"""The facts without which a figure means nothing: the machine, the versions, the day."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from worker.connect import Client

Facts = dict[str, str | int]


def facts(client: Client) -> Facts:
    """Cores, processor, Python, client library, server and date (UTC)."""
    info = client.info("server")
    name = info.get("server_name", "redis")
    release = info.get(f"{name}_version", info["redis_version"])
    durable = client.config_get("appendonly", "appendfsync")
    aof = durable["appendfsync"] if durable["appendonly"] == "yes" else "off"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count() or 0,
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "redis-py": version("redis"),
        "hiredis": version("hiredis"),
        "server": f"{name} {release}, AOF {aof}",
    }


def _processor() -> str:
    """The processor's name where the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def line(machine: Facts) -> str:
    """The facts in one line."""
    named = ("python", "redis-py", "hiredis")
    versions = ", ".join(f"{name} {machine[name]}" for name in named)
    return (
        f"{machine['date']}, {machine['cores']} cores of {machine['processor']}, "
        f"{machine['system']}, {versions}, {machine['server']}"
    )
