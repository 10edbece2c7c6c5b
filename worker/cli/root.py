"""The tree of commands. A command's module is imported when it is called, to start quickly."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

import click

#: Each command and where it lives, in the order `--help` shows them.
COMMANDS = {
    "demo": "worker.cli.demo:demo",
    "up": "worker.cli.up:up",
    "emit": "worker.cli.emit:emit",
    "recall": "worker.cli.recall:recall",
    "memory": "worker.cli.memory:memory",
    "consolidation": "worker.cli.consolidation:consolidation",
    "dead": "worker.cli.dead:dead",
    "status": "worker.cli.health:status",
    "doctor": "worker.cli.health:doctor",
    "writer": "worker.cli.roles:writer",
    "scheduler": "worker.cli.roles:scheduler",
    "worker": "worker.cli.roles:worker",
    "recaller": "worker.cli.roles:recaller",
}


class LazyGroup(click.Group):
    """A group whose commands are imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command's name."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: Any = getattr(import_module(module), name)
        return command if isinstance(command, click.Command) else None


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  remq demo                                  the whole way, on an embedded server
  remq up                                    everything on this machine
  remq emit --agent alice "Paris office moves in May"
  remq recall --agent alice "when does the office move?"
  remq consolidation enable                  let idle agents sleep on their memories

Settings are environment variables (REMQ_REDIS_URL and others); docs/settings.md lists them.""",
)
@click.version_option(version("remq"), prog_name="remq")
def cli() -> None:
    """Active memory for AI agents: store events, sleep on them while idle, recall what matters."""
