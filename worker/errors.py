"""Every error remq raises on purpose.

```
RemqError                   something could not be done; the message is the sentence a person reads
├── SettingsError           a setting is wrong or contradicts another
├── StoreError              the server refused, or is not one we can work with
│   ├── StoreUnavailable    the server does not answer
│   └── Unreadable          what is stored there cannot be read
├── MemoryNotFound          no such agent, memory, dead letter or run
├── PassRefused             a pass may not start: disabled, busy, claimed, or another model
└── ModelError              a model gave no usable answer; one step of a pass is skipped
    ├── ModelUnavailable    it did not answer: refused, timed out, no such address, 4xx, 5xx
    └── AnswerError         it answered, but not with what was asked for
        └── NoInsight       it answered, and there is no new insight: nothing has failed
```

A message never holds memory text, a key or a password.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class RemqError(Exception):
    """Something could not be done; the message is the sentence a person reads."""


class SettingsError(RemqError):
    """A setting is wrong or contradicts another."""


class StoreError(RemqError):
    """The server refused, or is not one remq can work with."""


class StoreUnavailable(StoreError):
    """The server does not answer."""


class Unreadable(StoreError):
    """What is stored there cannot be read."""


class MemoryNotFound(RemqError):
    """No such agent, memory, dead letter or run."""


class PassRefused(RemqError):
    """A pass may not start: disabled, busy, claimed, or meant for another model."""


class ModelError(RemqError):
    """A model gave no usable answer; one step of a pass is skipped."""


class ModelUnavailable(ModelError):
    """The model did not answer: refused, timed out, no such address, 4xx, 5xx."""


class AnswerError(ModelError):
    """The model answered, but not with what was asked for."""


class NoInsight(AnswerError):
    """The model answered, and there is no new insight; the step is skipped, nothing has failed."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise Unreadable, which shows no value, for what a corrupt value makes its reader raise.

    `what` names it in the sentence: "The run record of agent 'alice'".
    """
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        reason = "a field is missing or holds something else"
        raise Unreadable(f"{what} cannot be read: {reason} ({type(error).__name__}).") from None
