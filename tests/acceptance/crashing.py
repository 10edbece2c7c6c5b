"""Run remq so that a pass breaks at one point, with no word of it in the product.

    python -m tests.acceptance.crashing "after commit" kill worker

`before NAME` and `after NAME` are points around a script of a run (start, commit, published) or a
question to the offline model (metadata, connections, insight). There the pass does one of: `kill`
(kill -9 of this process and of the worker that started it) or `fault` (an error whose words hold
what no log may show).
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from worker import runs
from worker.__main__ import main
from worker.sleep.offline import OfflineModel

SECRET = "the combination is 7-4-1"


def kill() -> None:
    """End this pass and its worker as kill -9 would."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def fault() -> None:
    """Fail as a bug would that quotes a memory."""
    raise ValueError(SECRET)


def around(
    function: Callable[..., Any], name_of: Callable[..., str], point: str, do: Callable[[], None]
) -> Callable[..., Any]:
    """The same function, which does something before or after the call of that name."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        name = name_of(*args)
        if point == f"before {name}":
            do()
        answer = function(*args, **kwargs)
        if point == f"after {name}":
            do()
        return answer

    return changed


def break_at(point: str, do: Callable[[], None]) -> None:
    """Change the calls of scripts and of the model, for this process and its children."""
    script_name = lambda _client, call: str(call.script.name)  # noqa: E731
    step_name = lambda _model, question: str(question.step)  # noqa: E731
    changes: list[tuple[Any, str, Callable[..., str]]] = [
        (runs, "run_script", script_name),
        (OfflineModel, "ask", step_name),
    ]
    for owner, attribute, name_of in changes:
        setattr(owner, attribute, around(getattr(owner, attribute), name_of, point, do))


if __name__ == "__main__":
    where, what, *sys.argv[1:] = sys.argv[1:]
    break_at(where, {"kill": kill, "fault": fault}[what])
    main()
