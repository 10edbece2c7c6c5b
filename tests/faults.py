"""Clients that die or fall ill at a chosen command, to see what is left behind."""

import math
from collections.abc import Callable
from typing import Any

import redis


class Died(BaseException):
    """The process that held this client is gone."""


class Mortal(redis.Redis):
    """A client that works for `commands` round trips and dies at the next.

    With `answered` the server has still done that one: only the answer is never seen.
    """

    commands: float = math.inf
    answered = False

    def execute_command(self, *args: Any, **options: Any) -> Any:
        command: Any = super().execute_command
        return self._live(lambda: command(*args, **options))

    def pipeline(self, *args: Any, **options: Any) -> Any:
        pipe: Any = super().pipeline(*args, **options)
        execute = pipe.execute
        pipe.execute = lambda **how: self._live(lambda: execute(**how))
        return pipe

    def _live(self, command: Callable[[], Any]) -> Any:
        self.commands -= 1
        if self.commands >= 0:
            return command()
        if self.answered:
            command()
        raise Died


class Ill(redis.Redis):
    """A client whose commands raise `error` while `ill` says so, given the command's name.

    A pipeline is asked about by the names of its commands, each once.
    """

    error: Exception = redis.ConnectionError("gone")
    ill: Callable[[str], bool] = staticmethod(lambda _: False)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if self.ill(str(args[0])):
            raise self.error
        command: Any = super().execute_command
        return command(*args, **options)

    def pipeline(self, *args: Any, **options: Any) -> Any:
        pipe: Any = super().pipeline(*args, **options)
        execute = pipe.execute

        def run(**how: Any) -> Any:
            names = dict.fromkeys(str(command[0][0]) for command in pipe.command_stack)
            if self.ill(" ".join(names)):
                raise self.error
            return execute(**how)

        pipe.execute = run
        return pipe


def mortal(url: str) -> Mortal:
    """A client that lives until told otherwise."""
    client = Mortal.from_url(url)
    assert isinstance(client, Mortal)
    return client


def ill(url: str, error: Exception | None = None) -> Ill:
    """A client that is well until told otherwise."""
    client = Ill.from_url(url)
    assert isinstance(client, Ill)
    client.error = error or client.error
    return client
