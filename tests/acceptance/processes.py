"""Start remq's processes for real, look at what they say, and end them by their ids."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis

from tests.conftest import wait_until
from worker.connect import Client

ROOT = Path(__file__).resolve().parents[2]
#: Quick settings: a quiet agent at once, a scheduler that looks often, short leases.
QUICK = {
    "REMQ_LLM": "offline",
    "REMQ_QUIET_S": "0",
    "REMQ_TICK_S": "0.1",
    "REMQ_SWEEP_S": "0.5",
    "REMQ_RECLAIM_IDLE_S": "0.5",
}
_TRACEBACK = "Traceback (most recent call last)"
_COLOUR = re.compile(r"\x1b\[")


def environment(url: str, **changes: str) -> dict[str, str]:
    """This machine's environment without any setting of remq's or of a model, and with ours."""
    foreign = ("REMQ_", "OPENAI_", "RQ_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**own, **QUICK, "REMQ_REDIS_URL": url, "PYTHONUNBUFFERED": "1", **changes}


def remq(*arguments: str, environ: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a command of remq to its end. It says nothing of a stack, and uses no colour on pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "worker", *arguments],
        env=dict(environ),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout + done.stderr
    assert _TRACEBACK not in said, said
    assert not _COLOUR.search(said), said
    return done


@dataclass
class Running:
    """A process that was started, with what it says in a file."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def said(self) -> str:
        """Everything on its stdout and stderr so far."""
        return self.log.read_text("utf-8", "replace")

    def wait_for(self, words: str, timeout_s: float = 20.0) -> None:
        """Wait until it has said something."""
        wait_until(lambda: words in self.said or self.popen.poll() is not None, timeout_s)
        assert words in self.said, self.said

    def stop(self, timeout_s: float = 10.0) -> int:
        """Ask it to stop, as a supervisor does; its exit code."""
        self.popen.terminate()
        return self.popen.wait(timeout_s)

    def kill(self) -> None:
        """End it and everything it started with kill -9: no handler runs, nothing is put away."""
        family = descendants(self.popen.pid)
        for pid in (self.popen.pid, *family):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.popen.wait(10)


class Company:
    """Processes that belong together; all of them are ended at the end."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = dict(environ)
        self.folder_of_work = ROOT
        self.running: list[Running] = []

    def start(self, *arguments: str, **changes: str) -> Running:
        """Start a role or command of remq; `changes` are variables of its environment."""
        return self.launch("-m", "worker", *arguments, **changes)

    def launch(self, *arguments: str, **changes: str) -> Running:
        """Start this Python with any arguments."""
        name = next(word for word in reversed(arguments) if not word.startswith("-"))
        log = self.folder / f"{len(self.running)}-{Path(name).name}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                [sys.executable, *arguments],
                env={**self.environ, **changes},
                cwd=self.folder_of_work,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running = Running(name, popen, log)
        self.running.append(running)
        return running

    def end(self) -> None:
        """End every process that still runs."""
        for one in self.running:
            if one.popen.poll() is None:
                one.kill()

    def logs(self) -> dict[str, str]:
        """What each process said."""
        return {one.log.stem: one.said for one in self.running}

    def check_logs(self, *secrets: str) -> None:
        """Nobody fell over with a stack trace, and nobody said what must not be said."""
        for name, said in self.logs().items():
            assert _TRACEBACK not in said, f"{name}:\n{said}"
            for secret in secrets:
                assert secret not in said, f"{name} says {secret!r}:\n{said}"


def descendants(pid: int) -> list[int]:
    """The processes a process started, and those they started."""
    parents = dict(_parents())
    found: list[int] = []
    nearest = [pid]
    while nearest:
        nearest = [child for child, parent in parents.items() if parent in nearest]
        found += nearest
    return found


def _parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent; from /proc, since small images have no `ps`."""
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=True)
        yield from (tuple(map(int, line.split())) for line in listed.stdout.splitlines())  # type: ignore[misc]
        return
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # It has ended meanwhile.
            yield int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be buried does not."""
    return pid in dict(_parents()) and bool(command_line(pid).strip())


def command_line(pid: int) -> str:
    """A process's command line, as every user of the machine can read it."""
    known = Path(f"/proc/{pid}/cmdline")
    if known.exists():
        return known.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    listed = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, check=False
    )
    return listed.stdout.decode("utf-8", "replace")


class RedisServer:
    """Debian's or your own redis-server on a free port, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client: Client = redis.Redis.from_url(self.url, socket_timeout=10)

    @staticmethod
    def program() -> str | None:
        """Where it is, or None where there is none."""
        return shutil.which("redis-server")

    def start(self) -> None:
        """Start it, with the data of the time before, and wait until it answers."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--save", "", "--appendonly", "yes"]
        with (self.folder / "redis.log").open("ab") as log:
            self.popen = subprocess.Popen([str(self.program()), *options], stdout=log)
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.exceptions.RedisError:
            return False

    def end(self) -> None:
        """Kill it."""
        self.popen.kill()
        self.popen.wait(10)
        self.client.close()


def free_ports(count: int) -> Sequence[int]:
    """Ports on 127.0.0.1 that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
