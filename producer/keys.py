"""The names of streams and lists that agents and workers share; worker/keys.py builds on them."""

#: How every key begins unless `REMQ_PREFIX` says otherwise; one prefix per tenant.
DEFAULT_PREFIX = "remq"


def events(prefix: str = DEFAULT_PREFIX) -> str:
    """Stream: the events agents emit, as flat fields."""
    return f"{prefix}:events"


def recall(prefix: str = DEFAULT_PREFIX) -> str:
    """List: recall requests, one JSON object each; LPUSH to ask."""
    return f"{prefix}:recall"


def reply(prefix: str, name: str) -> str:
    """List: the one answer to one request, under a name its asker chose."""
    return f"{reply_prefix(prefix)}{name}"


def reply_prefix(prefix: str = DEFAULT_PREFIX) -> str:
    """How every reply list begins; a recaller answers nowhere else."""
    return f"{prefix}:reply:"
