"""What every command needs: settings, connections, errors in one sentence, plain output."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from producer.event import EventError, check_agent
from worker import connect
from worker import settings as environment
from worker.connect import Client
from worker.errors import RemqError
from worker.settings import Settings

#: Every control character but tab and line feed.
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")


class PlainConsole(Console):
    """For people: colour only on a terminal, and the words of a memory as they stand.

    A control character in them could speak to the terminal, and `:name:` is no picture.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """What rich does to every string it prints, after the control characters are gone."""
        return super().render_str(text.translate(_CONTROL), **options)


out = PlainConsole()
err = PlainConsole(stderr=True)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


class _Agent(click.ParamType[str]):
    name = "agent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check an agent's name as the contract does."""
        try:
            check_agent(value)
        except EventError as error:
            self.fail(f"{error}.", param, ctx)
        return str(value)


AGENT = _Agent()
agent_option = click.option("--agent", type=AGENT, required=True, help="Whose memory.")


class Session:
    """Settings and connections of one command, made when first used."""

    def __init__(self) -> None:
        self.settings: Settings = environment.load()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The memory's server."""
        if self._client is None:
            self._client = connect.memory(self.settings)
        return self._client

    def open_for_role(self) -> Client:
        """Open a connection of a role's own to the memory's server.

        It repeats nothing by itself: a role waits for its server in its own way, and must hear of
        a fault, and of a signal to stop, in between.
        """
        return connect.memory(self.settings, retries=0)

    def open_queue(self) -> Client:
        """Open a connection to RQ's server that has answered. Raises StoreError, SettingsError."""
        client = connect.queue(self.settings)
        with connect.spoken(connect.in_full(self.settings.queue_place)):
            client.ping()
        return client


def exit_code(run: Callable[[], Any]) -> int:
    """Run a command: 0 done, 1 it could not be done, 2 wrong usage; never a stack trace."""
    try:
        # click answers with the code of its own Exit, and ours answer with nothing.
        code = run()
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except click.Abort as stopped:
        # click's word for Ctrl-C, and for a question answered with no.
        err.print("Stopped.")
        return 130 if isinstance(stopped.__cause__, KeyboardInterrupt) else 1
    except BrokenPipeError:
        # Whoever read our output has gone; that is theirs to decide.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UnicodeError:
        return _say(
            "Something given, or to be printed, is not in this terminal's encoding: use UTF-8."
        )
    except (RemqError, EventError) as fault:
        return _say(str(fault))
    except connect.SERVER_FAULTS as fault:
        return _say(str(connect.sentence(fault, _server())))
    except OSError as fault:
        return _say(f"{fault.filename or 'The system'}: {fault.strerror or type(fault).__name__}.")
    return code if isinstance(code, int) else 0


def _say(sentence: str) -> int:
    first, space, rest = sentence.partition(" ")
    if first.isalpha():  # Not a URL, nor a setting's name.
        first = first[0].upper() + first[1:]
    end = "" if sentence.endswith((".", "?", "!")) else "."
    err.print(f"[red]Error:[/red] {escape(first + space + rest + end)}")
    return 1


def _server() -> str:
    return os.environ.get("REMQ_REDIS_URL", "the server")


def print_json(value: object) -> None:
    """One JSON object on one line of stdout."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_lines(values: Iterable[object]) -> None:
    """JSON lines on stdout."""
    for value in values:
        print_json(value)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Log lines for a role: time, role, what; never a memory's text."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("remq", "rq.worker", "rq.job"):
        logging.getLogger(name).setLevel(level)
