"""Which task queues are the agents' own: `REMQ_AGENT_QUEUES`, read once, filled in for each agent.

An entry is `kind:name`, or `kind:name@url` where the queue lies on a server of its own:

| entry | what it names |
| --- | --- |
| `rq:tasks` | an RQ queue; its keys begin with RQ's own prefix, `rq` or `RQ_KEY_PREFIX` |
| `celery:celery` | a Celery queue on a Redis broker, without `global_keyprefix` |
| `list:jobs` | a plain list that workers pop from |
| `stream:tasks/group` | a stream and the consumer group that works it off |
| `bullmq:jobs` | a BullMQ queue; `bullmq:acme:jobs` where its `prefix` option is `acme` |

`{agent}` anywhere in a name is the agent's name. What is in these queues is read by depth.py.
"""

import re
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from worker.connect import SCHEMES, shown
from worker.errors import SettingsError

KINDS = ("rq", "celery", "list", "stream", "bullmq")

#: The only schemes whose URL may name several hosts, and so hold a comma.
_MANY_HOSTS = ("redis+sentinel", "redis+cluster")
#: A comma inside a URL's list of hosts does not separate: only one before another kind does.
_COMMA = re.compile(rf",+(?=(?:{'|'.join(KINDS)}):)")
_AT_URL = re.compile(r"@(?=[A-Za-z][A-Za-z0-9+.-]*://)")
_FORM = (
    "an entry is kind:name with one of the kinds rq, celery, list, stream or bullmq, and its "
    "server behind an @ where it has one of its own, e.g. `rq:tasks`, `stream:tasks/group` or "
    "`celery:celery@redis://host:6379/1`; entries are separated by spaces or commas."
)


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """One task queue of the agents. `url` is its server; None: remq's own.

    `group` is a stream's consumer group. `prefix` is how RQ's or BullMQ's keys begin; empty: as
    they do by default.
    """

    kind: str
    name: str
    url: str | None = None
    group: str = ""
    prefix: str = ""

    def for_agent(self, agent: str) -> "QueueSpec":
        """Fill in `{agent}`. Stream and group were told apart before, so an agent may hold a /."""
        return replace(
            self,
            name=self.name.replace("{agent}", agent),
            group=self.group.replace("{agent}", agent),
        )

    @property
    def label(self) -> str:
        """The queue for people, such as `rq:tasks`; without its server."""
        if self.kind == "stream":
            return f"stream:{self.name}/{self.group}"
        if self.kind == "bullmq" and self.prefix not in {"", "bull"}:
            return f"bullmq:{self.prefix}:{self.name}"
        return f"{self.kind}:{self.name}"

    @property
    def place(self) -> str:
        """The server for people: its URL without user, password and options."""
        if self.url is None:
            return "remq's own server"
        return shown(self.url)

    def __repr__(self) -> str:
        """Show the queue without its server's password."""
        return f"QueueSpec({self.label!r}, at={self.place!r})"


def parse_queues(text: str) -> tuple[QueueSpec, ...]:
    """Read `REMQ_AGENT_QUEUES`; empty text names no queue.

    Raises SettingsError for an unknown kind, a missing name, a stream without a group, or a URL
    that cannot be read. The message counts entries rather than quoting them: a mistyped one may be
    half a password.
    """
    entries = [
        entry for word in text.split() for entry in _COMMA.split(word.strip(",")) if entry.strip()
    ]
    specs = [_spec(f"Entry {n}", entry) for n, entry in enumerate(entries, 1)]
    return tuple(dict.fromkeys(specs))


def _spec(which: str, entry: str) -> QueueSpec:
    named, url = _apart(entry)
    kind, _, name = named.partition(":")
    if kind not in KINDS:
        raise _wrong(which, "is of no known kind")
    if not name:
        raise _wrong(which, f"names no {kind} queue")
    if "," in name:
        raise _wrong(which, "has a comma within its name, or an unknown kind behind it")
    if url is not None:
        _check_url(which, url)
    if kind == "stream":
        stream, _, group = name.rpartition("/")
        if not stream or not group:
            raise _wrong(which, "names a stream without its consumer group")
        return QueueSpec(kind, stream, url, group=group)
    if kind == "bullmq":
        # BullMQ refuses a colon in a queue's name, so what stands before one is its prefix.
        prefix, colon, queue = name.rpartition(":")
        if not queue or (colon and not prefix):
            raise _wrong(which, "names no bullmq queue behind or before its colon")
        return QueueSpec(kind, queue, url, prefix=prefix)
    return QueueSpec(kind, name, url)


def _apart(entry: str) -> tuple[str, str | None]:
    """Split an entry from its URL; an @ elsewhere belongs to the name."""
    at = _AT_URL.search(entry)
    return (entry[: at.start()], entry[at.end() :]) if at else (entry, None)


def _check_url(which: str, url: str) -> None:
    """Refuse now what would otherwise fail, or show a part of a password, at the first look."""
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise _wrong(which, "has a server whose URL begins with none of " + ", ".join(SCHEMES))
    unreadable = "has a URL that cannot be read (within a password, / is %2F, # is %23, ? is %3F)"
    try:
        parts = urlsplit(f"redis://{rest}")
        hosts = parts.netloc.rpartition("@")[2].split(",")
        _ = [urlsplit(f"redis://{host}").port for host in hosts]
    except ValueError:
        # Without the reason: it may quote what stands where the port should, a cut password.
        raise _wrong(which, unreadable) from None
    if "@" in parts.path + parts.query + parts.fragment:
        raise _wrong(which, unreadable)
    if "," in parts.path or (len(hosts) > 1 and scheme not in _MANY_HOSTS):
        raise _wrong(which, "has a comma within its URL, or an unknown kind behind it")


def _wrong(which: str, what: str) -> SettingsError:
    return SettingsError(f"{which} of REMQ_AGENT_QUEUES {what}: {_FORM}")
