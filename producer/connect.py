"""Connect to Redis or Valkey by URL, in all the forms remq knows.

redis-py is imported where a connection is made: it takes longer to load than all of producer.
"""

import re
from typing import Any
from urllib.parse import unquote, urlsplit

#: How long a connection waits for the server, to connect and for each answer.
SOCKET_TIMEOUT_S = 5.0
#: How often redis-py may send a command again; 15 s at the most for a server that hangs.
RETRIES = 2

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")

_URL_WANTED = (
    "The server's url cannot be read: it must look like redis://user:password@host:6379/0, "
    "rediss://…, unix:///path, redis+sentinel://host:26379/service/0 or redis+cluster://host:6379, "
    "with %2F for a / in a password, and so on."
)


def connect(url: str, *, timeout_s: float = SOCKET_TIMEOUT_S, retries: int = RETRIES) -> Any:
    """Make a client for the server at `url`, reading bytes.

    Takes `redis://`, `rediss://`, `unix://`, `redis+sentinel://host:port,host:port/service/db`
    and `redis+cluster://host:port`, with `user:password@` where needed. A cluster is asked for
    its nodes at once, others for nothing before the first command. `timeout_s` bounds each answer,
    `retries` is how often the client repeats a command by itself. Raises ValueError for a URL of
    another form.
    """
    from redis import Redis  # noqa: PLC0415 - 150 ms, only where a connection is made
    from redis.backoff import ExponentialBackoff  # noqa: PLC0415
    from redis.retry import Retry  # noqa: PLC0415

    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(timeout_s, SOCKET_TIMEOUT_S),
        "health_check_interval": 30,
        "retry": Retry(ExponentialBackoff(cap=1.0, base=0.05), retries),
    }
    forms: dict[str, Any] = {"redis+sentinel": _by_sentinel, "redis+cluster": _by_cluster}
    try:
        return forms.get(url.partition("://")[0], Redis.from_url)(url, **options)
    except ValueError:
        # What is at fault may be a piece of the password, so it is not quoted.
        raise ValueError(_URL_WANTED) from None


def shown(url: str) -> str:
    """A URL without its user, password and options, for people and logs."""
    return re.sub(r"//.*@", "//", url).partition("?")[0]


def _by_sentinel(url: str, **options: Any) -> Any:
    from redis.sentinel import Sentinel  # noqa: PLC0415

    service, _, database = urlsplit(url).path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    find: Any = Sentinel
    sentinel = find(_hosts(url, 26379), socket_timeout=SOCKET_TIMEOUT_S)
    return sentinel.master_for(service, db=int(database or 0), **_login(url), **options)


def _by_cluster(url: str, **options: Any) -> Any:
    from redis import cluster  # noqa: PLC0415

    node: Any = cluster.ClusterNode
    nodes = [node(host, port) for host, port in _hosts(url, 6379)]
    return cluster.RedisCluster(startup_nodes=nodes, **_login(url), **options)


def _hosts(url: str, default_port: int) -> list[tuple[str, int]]:
    places = urlsplit(url).netloc.rpartition("@")[2].split(",")
    parts = [urlsplit(f"//{place}") for place in places]
    if not all(part.hostname for part in parts):
        raise ValueError("no host")
    return [(str(part.hostname), part.port or default_port) for part in parts]


def _login(url: str) -> dict[str, Any]:
    user, _, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    return {"username": unquote(user) or None, "password": unquote(password) or None}
