"""`remq up`: everything on one machine, in one process tree."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import click

from worker import connect, embedded
from worker.cli.session import Session, err, out
from worker.errors import RemqError

ROLES = ("writer", "scheduler", "worker", "recaller")
#: How long the roles have to finish what they took, and after a second word to drop it.
STOP_S = 30.0
DROP_S = 5.0
LOOK_S = 0.5


@click.command(
    epilog="""\b
Examples:
  remq up
  remq up --data-dir ~/remq-data
  REMQ_REDIS_URL=redis://127.0.0.1:6379/0 remq up"""
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the embedded server keeps its data; default REMQ_DATA_DIR, .remq.",
)
def up(data_dir: Path | None) -> None:
    """Start writer, scheduler, worker and recaller; a server too where no URL is set."""
    session = Session()
    stop = threading.Event()
    # Also when the terminal is closed: the roles have sessions of their own and would stay.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        url = session.settings.redis_url
        if url is None:
            folder = data_dir or Path(session.settings.data_dir)
            place = stack.enter_context(embedded.server(folder.expanduser()))
            out.print(f"Embedded server, data in {folder}", markup=False)
        else:
            place = url.get_secret_value()
        with connect.spoken(place):
            connect.by_url(place).ping()
        environ = {**os.environ, "REMQ_REDIS_URL": place}
        roles = {name: _start(name, environ) for name in ROLES}
        out.print(f"Emit to {connect.shown(place)}  (REMQ_REDIS_URL)", markup=False)
        out.print("Ctrl-C stops everything.")
        try:
            _watch(roles, stop)
        finally:
            _end(roles)


def _start(role: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    # A group of its own: Ctrl-C in the terminal reaches us, and we end the roles in order. -P: what
    # lies in the folder we were started in, a worker.py say, must not be taken for ours.
    command = [sys.executable, "-P", "-m", "worker", role]
    return subprocess.Popen(command, env=environ, start_new_session=True)


def _watch(roles: dict[str, subprocess.Popen[bytes]], stop: threading.Event) -> None:
    while not stop.wait(LOOK_S):
        for role, process in roles.items():
            if process.poll() is not None:
                raise RemqError(
                    f"The {role} ended (exit code {process.returncode}), so everything was "
                    "stopped; its last log lines say why."
                )


def _end(roles: dict[str, subprocess.Popen[bytes]]) -> None:
    err.print("Stopping.")
    for process in roles.values():
        if process.poll() is None:
            process.terminate()
    limit = time.monotonic() + STOP_S
    for process in roles.values():
        if _ended(process, max(0.0, limit - time.monotonic())):
            continue
        # Told twice, a worker also ends the child that does its pass.
        process.terminate()
        if not _ended(process, DROP_S):
            process.kill()
            process.wait()


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True
