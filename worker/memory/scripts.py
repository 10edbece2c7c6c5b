"""Load the Lua scripts, and call them by the names their first two lines declare.

A script file begins with its signature, so that it also runs under redis-cli as it stands:

```
local seen, items = unpack(KEYS)
local now, id = unpack(ARGV)
```

A signature that ends in `-- ...` takes any number of further keys or arguments.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from worker.connect import Client

_SIGNATURE = re.compile(r"^local ([\w, ]+) = unpack\((KEYS|ARGV)\)( -- \.\.\.)?")

Argument = str | bytes | int | float


@dataclass(frozen=True, slots=True)
class Call:
    """A script with its keys and arguments in order, ready to be sent."""

    script: "Script"
    keys: tuple[str, ...]
    args: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file and the names of its keys and arguments."""

    name: str
    source: str
    sha: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    open_keys: bool
    open_args: bool

    @classmethod
    def load(cls, name: str) -> "Script":
        """Read `lua/<name>.lua`."""
        source = files("worker.memory").joinpath("lua", f"{name}.lua").read_text("utf-8")
        keys, args = (_signature(name, line) for line in source.splitlines()[:2])
        digest = sha1(source.encode(), usedforsecurity=False).hexdigest()
        return cls(name, source, digest, keys[0], args[0], keys[1], args[1])

    def call(
        self,
        keys: Mapping[str, str],
        args: Mapping[str, Argument],
        *,
        more_keys: Sequence[str] = (),
        more_args: Sequence[Argument] = (),
    ) -> Call:
        """Bind keys and arguments by name; a wrong or missing name is a TypeError."""
        if set(keys) != set(self.keys) or set(args) != set(self.args):
            raise TypeError(f"{self.name} takes {self.keys} and {self.args}")
        if (more_keys and not self.open_keys) or (more_args and not self.open_args):
            raise TypeError(f"{self.name} takes no further keys or arguments")
        return Call(
            self,
            (*(keys[name] for name in self.keys), *more_keys),
            (*(args[name] for name in self.args), *more_args),
        )


def _signature(name: str, line: str) -> tuple[tuple[str, ...], bool]:
    match = _SIGNATURE.match(line)
    if match is None:
        raise ValueError(f"{name}.lua does not begin with its signature")
    return tuple(match[1].split(", ")), match[3] is not None


def run(client: Client, call: Call) -> Any:
    """Run one script and return its answer."""
    try:
        return client.execute_command(
            "EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args
        )
    except NoScriptError:
        return client.execute_command(
            "EVAL", call.script.source, len(call.keys), *call.keys, *call.args
        )


def run_all(client: Client, calls: Sequence[Call]) -> list[Any]:
    """Run several scripts in one round trip; each is atomic by itself.

    A server that has forgotten a script is taught it again by EVAL. A failed call stands as its
    exception in the list.
    """
    if not calls:
        return []
    pipe = client.pipeline(transaction=False)
    for call in calls:
        pipe.execute_command("EVALSHA", call.script.sha, len(call.keys), *call.keys, *call.args)
    answers: list[Any] = pipe.execute(raise_on_error=False)
    return [
        _again(client, call) if isinstance(answer, NoScriptError) else answer
        for call, answer in zip(calls, answers, strict=True)
    ]


def _again(client: Client, call: Call) -> Any:
    try:
        return run(client, call)
    except ResponseError as error:
        return error
