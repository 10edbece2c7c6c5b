"""`REMQ_AGENT_QUEUES`: which task queues are the agents' own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import SettingsError
from worker.sleep.queues import QueueSpec, parse_queues


def labels(text: str) -> list[str]:
    return [spec.label for spec in parse_queues(text)]


def test_every_kind_is_read_from_one_line() -> None:
    text = "rq:tasks celery:celery list:jobs stream:tasks/group bullmq:jobs"
    assert labels(text) == text.split()
    assert parse_queues("stream:tasks/group") == (QueueSpec("stream", "tasks", group="group"),)


@pytest.mark.parametrize("text", ["", "  ", ",", " , \n"])
def test_nothing_names_no_queue(text: str) -> None:
    assert parse_queues(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "rq:a list:b",
        "rq:a,list:b",
        "rq:a, list:b",
        "rq:a ,list:b",
        " rq:a\n\tlist:b,",
        "rq:a,,list:b",
    ],
)
def test_spaces_and_commas_separate(text: str) -> None:
    assert labels(text) == ["rq:a", "list:b"]


def test_a_queue_named_twice_is_asked_once() -> None:
    assert labels("rq:a rq:a rq:b") == ["rq:a", "rq:b"]


def test_a_queue_may_stand_on_a_server_of_its_own() -> None:
    (spec,) = parse_queues("celery:celery@redis://broker:6379/1")
    assert (spec.name, spec.url) == ("celery", "redis://broker:6379/1")
    (spec,) = parse_queues("rq:someone@home")
    assert (spec.name, spec.url) == ("someone@home", None)


def test_a_comma_inside_a_list_of_hosts_does_not_separate() -> None:
    first, second, third = parse_queues(
        "rq:a@redis+sentinel://:pw@h1:26379,h2:26379/main/0,list:b,rq:c@redis+cluster://h3:1,h4:2"
    )
    assert first.url == "redis+sentinel://:pw@h1:26379,h2:26379/main/0"
    assert (second.label, second.url) == ("list:b", None)
    assert third.url == "redis+cluster://h3:1,h4:2"


def test_a_name_may_hold_colons_and_slashes() -> None:
    assert parse_queues("rq:high:tasks")[0].name == "high:tasks"
    assert parse_queues("list:app:jobs/today")[0].name == "app:jobs/today"
    assert parse_queues("stream:app/tasks/group") == (
        QueueSpec("stream", "app/tasks", group="group"),
    )


def test_bullmq_takes_its_prefix_in_front() -> None:
    (spec,) = parse_queues("bullmq:{acme}:jobs")
    assert (spec.prefix, spec.name, spec.label) == ("{acme}", "jobs", "bullmq:{acme}:jobs")


def test_the_agents_name_is_filled_in() -> None:
    (spec,) = parse_queues("rq:tasks-{agent}-{agent}")
    assert spec.for_agent("alice").label == "rq:tasks-alice-alice"
    (spec,) = parse_queues("stream:tasks:{agent}/{agent}")
    filled = spec.for_agent("team/alice:1")
    assert (filled.name, filled.group) == ("tasks:team/alice:1", "team/alice:1")
    assert parse_queues("rq:{other}")[0].for_agent("alice").name == "{other}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kafka:tasks", "no known kind"),
        ("tasks", "no known kind"),
        ("RQ:tasks", "no known kind"),
        ("rq:", "names no rq queue"),
        ("rq", "names no rq queue"),
        ("rq:@redis://host:6379", "names no rq queue"),
        ("bullmq::jobs", "names no bullmq queue"),
        ("bullmq:acme:", "names no bullmq queue"),
        ("stream:tasks", "without its consumer group"),
        ("stream:tasks/", "without its consumer group"),
        ("stream:/group", "without its consumer group"),
        ("rq:a,kafka:b", "comma"),
        ("rq:a@redis://host:6379/0,kafka:b", "comma"),
        ("rq:a@redis://h1:1,h2:2/0", "comma"),
        ("rq:a@http://host", "none of redis, rediss"),
        ("rq:a@redis://host:port/0", "cannot be read"),
        ("rq:a@redis+sentinel://h1:1,h2:x/main", "cannot be read"),
        ("rq:a@redis://[::1/0", "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_queues(f"list:fine {text}")
    sentence = str(refusal.value)
    assert sentence.startswith("Entry 2 of REMQ_AGENT_QUEUES")
    assert why in sentence
    assert "rq, celery, list, stream or bullmq" in sentence
    assert "`rq:tasks`" in sentence
    assert "\n" not in sentence


SECRET = "s3cr3t-word"


@pytest.mark.parametrize(
    "text",
    [
        f"rq:a@redis://user:{SECRET}@host:6379/0",
        f"rq:a@redis://:{SECRET}@host:6379/0?protocol=3",
        f"rq:a@redis://:x%2F{SECRET}@host:6379/0",
        f"rq:a@redis+sentinel://user:{SECRET}@h1:1,h2:2/main/0",
        f"rq:a@unix://user:{SECRET}@/run/redis.sock",
    ],
)
def test_a_password_is_never_shown(text: str) -> None:
    (spec,) = parse_queues(text)
    assert SECRET in (spec.url or "")
    for shown in (spec.label, spec.place, repr(spec), str(spec.for_agent("alice"))):
        assert SECRET not in shown
    assert "@" not in spec.place
    assert "host" in spec.place or "h1:1,h2:2" in spec.place or "redis.sock" in spec.place


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{SECRET}@host:6379",
        f"rq:a@http://:{SECRET}@host",
        f"rq:a@redis://:{SECRET}/x@host:6379/0",
        f"rq:a@redis://:1/{SECRET}@host:6379/0",
        f"rq:a@redis://:x?{SECRET}@host:6379/0",
        f"rq:a@redis://:x#{SECRET}@host:6379/0",
        f"rq:a@redis://:cut {SECRET}@host:6379/0",
        f"rq:a@redis://:cut,{SECRET}@host:x/0",
    ],
)
def test_a_password_is_not_in_a_refusal_either(text: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_queues(text)
    assert SECRET not in str(refusal.value)
    assert refusal.value.__cause__ is None


@given(st.text(max_size=60) | st.text(alphabet="rqlist:,@/ {agent}redis", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        specs = parse_queues(text)
    except SettingsError:
        return
    assert all(spec.name and spec.for_agent("alice").label for spec in specs)
    assert parse_queues(" ".join(_again(spec) for spec in specs)) == specs


def _again(spec: QueueSpec) -> str:
    return spec.label + (f"@{spec.url}" if spec.url else "")
