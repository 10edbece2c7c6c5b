"""The contract of an event, rule by rule."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.event import SALIENCE, TS_LIMIT, Event, EventError, unknown_fields

ARRIVED = 1_767_225_600.0  # 2026-01-01T00:00:00Z
SECRET = "the launch code is 0000"


def event(**fields: Any) -> Event:
    """An event that is right but for what a test says."""
    return Event(**{"agent": "alice", "text": SECRET, **fields})


def refusal(**fields: Any) -> EventError:
    with pytest.raises(EventError) as caught:
        event(**fields)
    return caught.value


def received(fields: Mapping[Any, Any], **entry: Any) -> Event:
    """An event as the writer reads it off the stream, right but for what a test says."""
    return Event.from_fields({b"agent": b"alice", b"text": SECRET.encode(), **fields}, **entry)


class TestWhatAnEventHolds:
    def test_agent_and_text_suffice(self) -> None:
        assert dataclasses.asdict(Event("alice", "Billing moves")) == {
            "agent": "alice",
            "text": "Billing moves",
            "tier": "episodic",
            "kind": "note",
            "provenance": "agent",
            "salience": None,
            "ts": None,
            "expires_at": None,
            "event_id": None,
        }

    def test_it_cannot_be_changed(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            event().text = "other"  # type: ignore[misc]

    def test_a_changed_copy_is_checked_as_well(self) -> None:
        assert dataclasses.replace(event(), tier="durable").tier == "durable"
        with pytest.raises(EventError):
            dataclasses.replace(event(), tier="working")

    def test_its_repr_keeps_the_text_out_of_logs(self) -> None:
        assert SECRET not in repr(event())

    def test_salience_by_tier(self) -> None:
        assert SALIENCE == {"durable": 1.0, "episodic": 0.6}


class TestAgent:
    @pytest.mark.parametrize(
        "agent",
        ["a", "alice", "team-7/alice@example.org", "小红", "Zoë", "🦊", "a:b*?[c]", "x" * 128],
    )
    def test_taken(self, agent: str) -> None:
        assert event(agent=agent).agent == agent

    @pytest.mark.parametrize(
        ("agent", "reason"),
        [
            ("", "agent is empty: it must be 1 to 128 characters"),
            ("x" * 129, "agent is 129 characters long: it must be 1 to 128"),
            ("al ice", "agent holds white space: name it without, e.g. with a hyphen"),
            ("alice\n", "agent holds white space"),
            ("al\u3000ice", r"agent holds white space"),
            ("al\xa0ice", r"agent holds white space"),
            ("{alice}", "agent '{alice}' holds a brace: name it without { and }"),
            ("alice}", "agent 'alice}' holds a brace"),
            ("al\x00ice", r"agent holds a character that does not print"),
            ("al\u200bice", r"agent holds a character that does not print"),
            ("al\ud800ice", r"agent holds a character that does not print"),
            ("x" * 50 + " ", "agent holds white space"),
            (7, "agent is of type int: it must be a string"),
            (None, "agent is of type NoneType: it must be a string"),
        ],
    )
    def test_refused(self, agent: object, reason: str) -> None:
        error = refusal(agent=agent)
        assert str(error).startswith(reason)
        assert error.field == "agent"


class TestText:
    @pytest.mark.parametrize(
        "text",
        [
            "a",
            "  kept as it is, white space and all \n",
            "nul \x00 and bell \x07 are kept",
            "账单迁移到新区域",
            "x" * 65_536,
            "€" * 21_845,  # 65,535 bytes
        ],
        ids=["short", "white space", "control characters", "Chinese", "limit", "limit in bytes"],
    )
    def test_taken_unchanged(self, text: str) -> None:
        assert event(text=text).text == text

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "text is empty: every event says what is to be remembered"),
            (" \n\t\u3000", "text is blank: every event says what is to be remembered"),
            ("x" * 65_537, "text is 65,537 bytes of UTF-8, more than 65,536: send a summary"),
            ("€" * 21_846, "text is 65,538 bytes of UTF-8, more than 65,536: send a summary"),
            (
                "half \ud83d",
                "text holds half of a surrogate pair, which UTF-8 cannot write: "
                "send whole characters",
            ),
            (b"bytes", "text is of type bytes: it must be a string"),
        ],
        ids=["empty", "blank", "too long", "too long in bytes", "surrogate", "bytes"],
    )
    def test_refused(self, text: object, reason: str) -> None:
        error = refusal(text=text)
        assert str(error) == reason
        assert error.field == "text"


class TestTier:
    @pytest.mark.parametrize("tier", ["episodic", "durable"])
    def test_taken(self, tier: str) -> None:
        assert event(tier=tier).tier == tier

    @pytest.mark.parametrize(
        ("tier", "reason"),
        [
            (
                "working",
                "tier 'working' never leaves the agent's own process: send episodic or durable",
            ),
            ("DURABLE", "tier is 'DURABLE': write it in lower case, durable"),
            ("Episodic", "tier is 'Episodic': write it in lower case, episodic"),
            ("permanent", "tier is 'permanent': it must be episodic or durable"),
            ("x" * 41, "tier is a text of 41 characters: it must be episodic or durable"),
            ("", "tier is '': it must be episodic or durable"),
            (None, "tier is of type NoneType: it must be a string"),
            (["durable"], "tier is of type list: it must be a string"),
        ],
    )
    def test_refused(self, tier: object, reason: str) -> None:
        assert str(refusal(tier=tier)) == reason


class TestKind:
    @pytest.mark.parametrize(
        "kind", ["note", "fact", "decision", "open question", "决定", "k" * 32]
    )
    def test_taken(self, kind: str) -> None:
        assert event(kind=kind).kind == kind

    @pytest.mark.parametrize(
        ("kind", "reason"),
        [
            ("insight", "kind 'insight' is remq's own: choose another, e.g. fact"),
            ("", "kind is empty: it must be 1 to 32 characters"),
            ("k" * 33, "kind is 33 characters long: it must be 1 to 32"),
            (" note", "kind must be printable characters without white space around them"),
            ("note\u3000", "kind must be printable characters without white space around them"),
            ("no\x00te", "kind must be printable characters"),
            ("no\nte", "kind must be printable characters"),
            (3, "kind is of type int: it must be a string"),
        ],
    )
    def test_refused(self, kind: object, reason: str) -> None:
        assert str(refusal(kind=kind)).startswith(reason)


class TestProvenance:
    @pytest.mark.parametrize(
        "provenance", ["agent", "user:42", "mail from Zoë, 3 May", "consolidation", "p" * 256]
    )
    def test_taken(self, provenance: str) -> None:
        assert event(provenance=provenance).provenance == provenance

    @pytest.mark.parametrize(
        ("provenance", "reason"),
        [
            (
                "consolidation:1767225600",
                "provenance begins with 'consolidation:', which is remq's own: choose another",
            ),
            ("", "provenance is empty: it must be 1 to 256 characters"),
            ("p" * 257, "provenance is 257 characters long: it must be 1 to 256"),
            ("user\x0042", "provenance holds a control character"),
            ("user\n42", "provenance holds a control character"),
            ("user\x7f", "provenance holds a control character"),
            ("user\x9f", "provenance holds a control character"),
            ("user\ud800", "provenance holds a control character"),
            (42, "provenance is of type int: it must be a string"),
        ],
    )
    def test_refused(self, provenance: object, reason: str) -> None:
        assert str(refusal(provenance=provenance)).startswith(reason)


class TestSalience:
    @pytest.mark.parametrize(
        ("given_as", "kept"),
        [(0, 0.0), (1, 1.0), (0.25, 0.25), ("0.25", 0.25), (".5", 0.5), ("1e-3", 0.001)],
    )
    def test_taken(self, given_as: Any, kept: float) -> None:
        salience = event(salience=given_as).salience
        assert salience == kept
        assert type(salience) is float

    def test_minus_zero_is_zero(self) -> None:
        assert event(salience="-0.0").fields()["salience"] == "0.0"

    @pytest.mark.parametrize(
        ("salience", "shown"),
        [
            ("1.7", "is '1.7'"),
            (1.7, "is 1.7"),
            (-0.1, "is -0.1"),
            ("nan", "is 'nan'"),
            (float("nan"), "is nan"),
            (float("inf"), "is inf"),
            ("1e999", "is '1e999'"),
            ("high", "is 'high'"),
            ("0,5", "is '0,5'"),
            ("0_5", "is '0_5'"),
            ("٠", "is a text of 1 characters"),
            ("", "is ''"),
            ("9" * 100_000, "is a text of 100,000 characters"),
            (10**400, "is far out of range"),
            (True, "is True"),
            ([1], "is of type list"),
        ],
        ids=str,
    )
    def test_refused(self, salience: object, shown: str) -> None:
        error = refusal(salience=salience)
        assert str(error) == f"salience {shown}: it must be a number from 0 to 1"
        assert error.field == "salience"


class TestTimes:
    @pytest.mark.parametrize("name", ["ts", "expires_at"])
    @pytest.mark.parametrize(
        ("given_as", "kept"),
        [
            (0, 0.0),
            (1_767_225_600, ARRIVED),
            (ARRIVED, ARRIVED),
            ("1767225600", ARRIVED),
            ("1767225600.25", ARRIVED + 0.25),
            ("2026-01-01T00:00:00Z", ARRIVED),
            ("2026-01-01t00:00:00z", ARRIVED),
            ("2026-01-01 08:00:00+08:00", ARRIVED),
            ("2025-12-31T19:00:00.500-05:00", ARRIVED + 0.5),
            ("2026-01-01T00:00:00.123456789Z", ARRIVED + 0.123456),
            (datetime(2026, 1, 1, tzinfo=UTC), ARRIVED),
            (datetime(2026, 1, 1, 8, tzinfo=timezone(timedelta(hours=8))), ARRIVED),
        ],
        ids=str,
    )
    def test_taken(self, name: str, given_as: object, kept: float) -> None:
        seconds = getattr(event(**{name: given_as}), name)
        assert seconds == kept
        assert type(seconds) is float

    @pytest.mark.parametrize("name", ["ts", "expires_at"])
    @pytest.mark.parametrize(
        ("given_as", "reason"),
        [
            (
                1_767_225_600_000,
                "is 1767225600000, which looks like milliseconds: divide it by 1,000 "
                "to get Unix seconds",
            ),
            ("1767225600000", "is '1767225600000', which looks like milliseconds"),
            (TS_LIMIT, "is 100000000000.0, which looks like milliseconds"),
            (1_767_225_600_000_000, "is 1767225600000000, which looks like microseconds"),
            (1_767_225_600_000_000_000, "is 1767225600000000000, which looks like nanoseconds"),
            (-1, "is -1: a time before 1970 cannot be stored"),
            ("-1.5", "is '-1.5': a time before 1970 cannot be stored"),
            (
                "yesterday",
                "is 'yesterday': it must be Unix seconds or an RFC 3339 time such as "
                "2026-07-01T09:30:00Z",
            ),
            ("nan", "is 'nan': it must be Unix seconds"),
            (float("nan"), "is nan: it must be Unix seconds"),
            (float("-inf"), "is -inf: it must be Unix seconds"),
            ("inf", "is 'inf': it must be Unix seconds"),
            ("", "is '': it must be Unix seconds"),
            (True, "is True: it must be Unix seconds"),
            (10**400, "is far out of range: it must be Unix seconds"),
            ("soon " * 100, "is a text of 500 characters: it must be Unix seconds"),
            ("2026-02-30T00:00:00Z", "is '2026-02-30T00:00:00Z': it must be Unix seconds"),
            (timedelta(days=1), "is of type timedelta: it must be Unix seconds"),
            (
                "2026-01-01T00:00:00",
                "has no time zone: add Z, or an offset such as +08:00",
            ),
            ("2026-01-01", "is a day without a time of day"),
            (datetime(2026, 1, 1), "has no time zone"),
            (
                "1969-12-31T23:59:59Z",
                "cannot be stored: it must lie between the years 1970 and 5138",
            ),
            ("9999-12-31T00:00:00Z", "cannot be stored: it must lie between"),
        ],
        ids=str,
    )
    def test_refused(self, name: str, given_as: object, reason: str) -> None:
        error = refusal(**{name: given_as})
        assert str(error).startswith(f"{name} {reason}")
        assert error.field == name

    @pytest.mark.parametrize("expires_at", [ARRIVED, ARRIVED - 1])
    def test_an_expiry_not_later_than_ts_is_refused(self, expires_at: float) -> None:
        error = refusal(ts=ARRIVED, expires_at=expires_at)
        assert str(error) == "expires_at is not later than ts: a memory expires after it begins"
        assert event(ts=ARRIVED, expires_at=ARRIVED + 1).expires_at == ARRIVED + 1


class TestEventId:
    @pytest.mark.parametrize("event_id", ["1", "1767225600000-0", "订单 7", "i" * 128])
    def test_taken(self, event_id: str) -> None:
        assert event(event_id=event_id).event_id == event_id

    @pytest.mark.parametrize(
        ("event_id", "reason"),
        [
            ("", "event_id is empty: it must be 1 to 128 characters"),
            ("i" * 129, "event_id is 129 characters long: it must be 1 to 128"),
            ("a\nb", "event_id holds a character that does not print"),
            ("a\x00b", "event_id holds a character that does not print"),
            (7, "event_id is of type int: it must be a string"),
        ],
    )
    def test_refused(self, event_id: object, reason: str) -> None:
        assert str(refusal(event_id=event_id)).startswith(reason)


class TestOnTheStream:
    def test_fields_are_flat_text_without_what_is_left_out(self) -> None:
        sent = Event("alice", "Billing moves", "durable", "decision", "user:42", 0.5, 1_767_225_600)
        assert sent.fields() == {
            "agent": "alice",
            "text": "Billing moves",
            "tier": "durable",
            "kind": "decision",
            "provenance": "user:42",
            "salience": "0.5",
            "ts": "1767225600.0",
        }

    def test_the_entry_fills_in_time_and_id(self) -> None:
        got = received({}, arrived=ARRIVED, entry_id="1767225600000-0")
        assert (got.ts, got.event_id) == (ARRIVED, "1767225600000-0")

    def test_the_event_s_own_time_and_id_stand(self) -> None:
        own = {b"ts": b"2025-12-31T00:00:00Z", b"event_id": b"mine"}
        got = received(own, arrived=ARRIVED, entry_id="1767225600000-0")
        assert (got.ts, got.event_id) == (ARRIVED - 86_400, "mine")

    def test_decoded_fields_are_read_as_well(self) -> None:
        assert Event.from_fields({"agent": "alice", "text": "hi", "salience": "1"}) == Event(
            "alice", "hi", salience=1
        )

    def test_a_json_object_s_numbers_and_nulls_are_read_as_well(self) -> None:
        line = {"agent": "alice", "text": "hi", "salience": 0, "ts": 1_767_225_600, "kind": None}
        assert Event.from_fields(line) == Event("alice", "hi", salience=0, ts=ARRIVED)

    @pytest.mark.parametrize(
        "name", ["tier", "kind", "provenance", "salience", "ts", "expires_at", "event_id"]
    )
    def test_an_empty_optional_field_counts_as_left_out(self, name: str) -> None:
        assert received({name.encode(): b""}) == received({name: ""}) == event()

    def test_unknown_fields_are_ignored_and_named(self) -> None:
        fields = {
            b"agent": b"alice",
            b"text": b"hi",
            b"colour": b"\xff",
            b"\xffx": b"",
            b"Tier": b"x",
        }
        assert Event.from_fields(fields) == Event("alice", "hi")
        assert unknown_fields(fields) == ("colour", r"\xffx", "Tier")
        assert unknown_fields({"agent": "alice", "mood": "good"}) == ("mood",)

    @pytest.mark.parametrize("name", ["agent", "text", "tier", "provenance", "ts"])
    def test_bytes_that_are_not_utf_8_are_refused(self, name: str) -> None:
        with pytest.raises(EventError) as caught:
            received({name.encode(): b"caf\xe9"})
        reason = f"{name} is not valid UTF-8: encode it as UTF-8 before it is sent"
        assert (str(caught.value), caught.value.field) == (reason, name)

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({}, "agent is missing: every event names the agent whose memory it is"),
            ({b"text": b"hi"}, "agent is missing: every event names the agent whose memory it is"),
            ({b"agent": b"a"}, "text is missing: every event says what is to be remembered"),
            ({b"agent": b"", b"text": b"hi"}, "agent is empty: it must be 1 to 128 characters"),
            ({b"agent": b"a", b"text": b""}, "text is empty: every event says"),
            ({b"agent": b"{a", b"data": b"{}"}, "text is missing: every event says"),
        ],
    )
    def test_agent_and_text_are_required(self, fields: dict[bytes, bytes], reason: str) -> None:
        with pytest.raises(EventError) as caught:
            Event.from_fields(fields)
        assert str(caught.value).startswith(reason)
        assert "JSON" not in str(caught.value)

    @pytest.mark.parametrize("blob", [b'{"agent": "alice"}', b' \n{"agent": "alice"}', '{"a": 1}'])
    @pytest.mark.parametrize(
        ("name", "missing"), [(b"event", "agent"), (b"agent", "text"), (b"text", "agent")]
    )
    def test_one_json_value_is_told_to_spread_out(
        self, name: bytes, missing: str, blob: bytes | str
    ) -> None:
        with pytest.raises(EventError) as caught:
            Event.from_fields({name: blob})
        assert str(caught.value).startswith(f"{missing} is missing: ")
        assert str(caught.value).endswith(
            "; fields stand side by side on the stream, not inside one JSON value"
        )

    @pytest.mark.parametrize("own_time", [{}, {b"ts": b"1"}])
    @pytest.mark.parametrize("expires_at", [b"1767225600", b"2025-12-31T00:00:00Z"])
    def test_what_expired_before_it_arrived_is_refused(
        self, own_time: dict[bytes, bytes], expires_at: bytes
    ) -> None:
        with pytest.raises(EventError) as caught:
            received({**own_time, b"expires_at": expires_at}, arrived=ARRIVED)
        assert str(caught.value) == (
            "expires_at had already passed when the event arrived: send a later time, or none"
        )
        later = received({b"expires_at": b"1767225601"}, arrived=ARRIVED)
        assert (later.ts, later.expires_at) == (ARRIVED, ARRIVED + 1)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300)
PRINTABLE = st.characters(codec="utf-8").filter(str.isprintable)
SECONDS = st.floats(0, TS_LIMIT, exclude_max=True)
EVENTS = st.builds(
    Event,
    agent=st.text(PRINTABLE.filter(lambda c: not c.isspace() and c not in "{}"), min_size=1).filter(
        lambda name: len(name) <= 128
    ),
    text=TEXT.filter(lambda text: not text.isspace()),
    tier=st.sampled_from(["episodic", "durable"]),
    kind=st.text(PRINTABLE, min_size=1, max_size=32).filter(
        lambda kind: kind == kind.strip() and kind != "insight"
    ),
    provenance=st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1).filter(
        lambda source: len(source) <= 256 and not source.startswith("consolidation:")
    ),
    salience=st.none() | st.floats(0, 1),
    ts=st.none() | SECONDS,
    event_id=st.none() | st.text(PRINTABLE, min_size=1, max_size=128),
)


class TestRoundTrip:
    @given(EVENTS)
    def test_what_is_sent_is_what_is_read(self, sent: Event) -> None:
        fields = sent.fields()
        assert Event.from_fields(fields) == sent
        on_the_wire = {name.encode(): value.encode() for name, value in fields.items()}
        assert Event.from_fields(on_the_wire) == sent
        assert unknown_fields(on_the_wire) == ()

    @given(EVENTS, st.floats(0, TS_LIMIT / 2))
    def test_an_expiry_survives_to_the_last_bit(self, sent: Event, after: float) -> None:
        whole = dataclasses.replace(sent, ts=after / 2, expires_at=after + 1e-3)
        assert Event.from_fields(whole.fields()) == whole

    @given(st.dictionaries(st.sampled_from([*event().fields(), "ts", "salience"]), st.binary()))
    def test_whatever_arrives_is_read_or_refused_in_one_line(self, junk: dict[str, bytes]) -> None:
        reason = ""
        try:
            Event.from_fields(junk, arrived=ARRIVED, entry_id="1-1")
        except EventError as error:
            reason = str(error)
        assert reason.isprintable()
        assert len(reason) < 250


class TestRefusals:
    @pytest.mark.parametrize(
        "fault",
        [{"tier": "working"}, {"salience": 2}, {"ts": "x" * 999}, {"text": SECRET + "\ud800"}],
        ids=str,
    )
    def test_no_reason_quotes_the_text(self, fault: dict[str, Any]) -> None:
        assert SECRET not in str(refusal(**fault))

    def test_a_refusal_is_a_value_error_that_can_be_copied(self) -> None:
        error = refusal(tier="working")
        assert isinstance(error, ValueError)
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (str(twin), twin.field) == (str(error), "tier")
