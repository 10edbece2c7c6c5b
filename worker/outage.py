"""Sit out an outage: a server that restarts, is full or is gone for a while ends no role.

A role that meets a fault says so, waits a little longer each time, and tries again.
"""

import logging
import math
import time
from collections.abc import Callable

from redis.exceptions import ResponseError

from worker.connect import SERVER_FAULTS, ServerFault, in_full, sentence
from worker.errors import StoreError
from worker.settings import Settings

#: What a role meets when a server fails: redis-py's errors for the memory's server, and a sentence
#: that names the server where it is another, RQ's say.
FAULTS = (*SERVER_FAULTS, StoreError)
Fault = ServerFault | StoreError

#: Seconds of the first pause and of the longest; each is twice the one before.
FIRST_S = 0.1
LONGEST_S = 5.0
#: How often a pause looks whether the role was told to stop. A signal does not wake a sleep up.
LOOK_S = 0.1
#: The least time from one log line to the next, so that a fault does not fill the disk.
QUIET_S = 1.0

#: Refusals that say how the server is, not what is wrong with the data at hand. Inside a script
#: 6.2 quotes the code in the middle of its message.
_SERVER_CODES = frozenset({"OOM", "MISCONF", "NOREPLICAS", "READONLY", "BUSY", "UNKILLABLE"})


class Outage:
    """A role's account of its server's faults: at most a line a second, and growing pauses."""

    def __init__(
        self,
        log: logging.Logger,
        settings: Settings,
        *,
        stopping: Callable[[], bool],
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stopping` says whether the role was told to stop; it ends a pause."""
        self.log = log
        self.lasts = False
        self._url = in_full(settings.redis_url)
        self._stopping = stopping
        self._sleep = sleep
        self._clock = clock
        self._pause = FIRST_S
        self._told_at = -math.inf

    def wait(self, error: Fault) -> None:
        """Say what is wrong, then pause before the next try, longer each time."""
        self.lasts = True
        self.warn("%s Waiting for it.", self.said(error))
        left = self._pause
        self._pause = min(LONGEST_S, self._pause * 2)
        while left > 0 and not self._stopping():
            self._sleep(min(LOOK_S, left))
            left -= LOOK_S

    def over(self) -> None:
        """The server has answered: the next pause is a short one again."""
        if self.lasts:
            self.log.warning("the server answers again")
        self.lasts = False
        self._pause = FIRST_S

    def warn(self, text: str, *args: object) -> bool:
        """Log a line unless the last one was a moment ago; whether it was logged."""
        now = self._clock()
        if now - self._told_at < QUIET_S:
            return False
        self._told_at = now
        self.log.warning(text, *args)
        return True

    def said(self, error: Fault) -> str:
        """A fault in one sentence, without a password or a value."""
        return str(error if isinstance(error, StoreError) else sentence(error, self._url))


def is_group_gone(error: Fault) -> bool:
    """Whether stream or group are gone: the server was flushed, or replaced by an empty one."""
    # 6.2 wakes a blocked reader with UNBLOCKED when the stream is deleted.
    return isinstance(error, ResponseError) and str(error).startswith(("NOGROUP", "UNBLOCKED"))


def is_about_data(error: Fault) -> bool:
    """Whether the server refused the data at hand, e.g. a key of another type.

    Everything else says how the server is, and the same data may be taken later.
    """
    if type(error) is not ResponseError:
        return False
    words = str(error).replace("-", " ").split()
    return _SERVER_CODES.isdisjoint(words)
