"""With --json a command prints one object, or lists as lines, in the shapes scripts rely on."""

import io
import json

import pytest

from producer import Event, emit
from tests.cli.command_line import ITEM, RECALLED, REPORT, Remq, sentence
from tests.cli.conftest import TEXTS
from worker.connect import Client


def test_emit_tells_what_was_taken(remq: Remq, client: Client) -> None:
    told = remq("emit", "--agent", "alice", "hello", "--json").json
    assert (told["taken"], told["refused"]) == (1, 0)
    assert client.xlen("remq:events") == 1


@pytest.mark.usefixtures("client")
def test_emit_refuses_in_a_sentence(remq: Remq) -> None:
    assert "salience" in sentence(remq("emit", "--agent", "alice", "x", "--salience", "2")).lower()


def test_emit_reads_lines_and_counts_what_it_refused(
    remq: Remq, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'{"text": "one"}\nno json\n{"text": ""}\n{"text": "two", "mood": "good"}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    done = remq("emit", "-", "--agent", "alice", "--json")
    assert done.code == 1
    told = json.loads(done.out)
    assert (told["taken"], told["refused"]) == (2, 2)
    assert [refusal["line"] for refusal in told["refusals"]] == [2, 3]
    assert client.xlen("remq:events") == 2


@pytest.mark.usefixtures("stored")
def test_recall(remq: Remq) -> None:
    asked = ("recall", "--agent", "alice", "audit Frankfurt", "--json")
    told = remq(*asked, "-k", "2").json
    assert set(told) == {"agent", "query", "items", "context"}
    assert (told["agent"], told["query"]) == ("alice", "audit Frankfurt")
    assert [set(item) for item in told["items"]] == [RECALLED, RECALLED]
    assert told["context"].startswith("Relevant memories:\n- (note) ")
    assert [item["access_count"] for item in told["items"]] == [0, 0]
    again = remq(*asked, "-k", "2", "--no-touch").json
    assert [item["access_count"] for item in again["items"]] == [1, 1]
    explained = remq(*asked, "--explain").json
    assert {"bm25", "freshness"} <= set(explained["items"][0])
    assert [item["access_count"] for item in explained["items"][:2]] == [1, 1]


@pytest.mark.usefixtures("stored")
def test_recall_for_a_prompt(remq: Remq) -> None:
    done = remq("recall", "--agent", "alice", "invoice", "--context")
    assert done.out == f"Relevant memories:\n- (note) {TEXTS[2]}\n"


@pytest.mark.parametrize("query", ["", "?!…", "bicycles"])
@pytest.mark.usefixtures("stored")
def test_a_query_that_matches_nothing_is_no_fault(remq: Remq, query: str) -> None:
    told = remq("recall", "--agent", "alice", query, "--json").json
    assert (told["items"], told["context"]) == ([], "")
    assert remq("recall", "--agent", "alice", query).out == "No memory matches.\n"


def test_a_recall_of_an_unknown_agent_is_no_fault(remq: Remq, client: Client) -> None:
    assert remq("recall", "--agent", "nobody", "x", "--json").json["items"] == []
    assert remq("recall", "--agent", "nobody", "x").out == "Agent nobody has no memory yet.\n"
    assert client.keys("remq:{nobody}:*") == []


@pytest.mark.usefixtures("stored")
def test_more_than_there_is_may_be_asked_for(remq: Remq) -> None:
    told = remq("recall", "--agent", "alice", "region", "-k", "1000000000", "--json").json
    assert len(told["items"]) == 3


@pytest.mark.usefixtures("stored")
def test_memory_list_and_show(remq: Remq) -> None:
    items = remq("memory", "list", "--agent", "alice", "--json").lines
    assert [item["text"] for item in items] == TEXTS
    assert all(set(item) == ITEM for item in items)
    shown = remq("memory", "show", "1", "--agent", "alice", "--json").json
    assert set(shown) == ITEM | {"connections"}
    assert remq("memory", "list", "--agent", "nobody", "--json").lines == []


@pytest.mark.usefixtures("stored")
def test_a_pass_here_and_what_it_leaves(remq: Remq) -> None:
    assert remq("consolidation", "enable", "--json").json["model"] == "offline"
    report = remq("consolidation", "run", "--agent", "alice", "--here", "--json").json
    assert set(report) == REPORT
    assert set(report["steps"]) == {"metadata", "connections", "insight"}
    assert (report["agent"], report["model"], report["risk"]) == ("alice", "offline", "read")
    assert (report["items_reviewed"], report["insights_written"]) == (3, 1)
    insight = remq("memory", "show", str(report["insight_id"]), "--agent", "alice", "--json").json
    assert set(insight) == ITEM | {"connections", "source_ids"}
    assert insight["source_ids"] == [1, 2, 3]
    for link in insight["connections"]:
        assert set(link) == {"from_id", "to_id", "relationship", "insight_id"}
    assert len(insight["connections"]) == report["connections_made"] >= 1


@pytest.mark.usefixtures("stored")
def test_consolidation_status(remq: Remq) -> None:
    before = remq("consolidation", "status", "--json").json
    settings = {
        "enabled", "model", "interval_minutes", "window_size", "min_items", "max_connections",
        "rerate_salience", "extract_metadata",
    }  # fmt: skip
    assert settings | {"agents"} <= set(before)
    (row,) = before["agents"]
    assert {"agent", "pending", "next_run_at", "deferred_reason", "last_report"} <= set(row)
    assert (row["agent"], row["pending"], row["last_report"]) == ("alice", 3, None)
    remq("consolidation", "enable")
    remq("consolidation", "run", "--agent", "alice", "--here")
    (row,) = remq("consolidation", "status", "--agent", "alice", "--json").json["agents"]
    assert row["pending"] == 0
    assert set(row["last_report"]) == REPORT


def test_the_writer_tells_what_it_did(remq: Remq, client: Client) -> None:
    emit(client, Event("alice", "hello"))
    client.xadd("remq:events", {"agent": "alice"})
    told = remq("writer", "--burst", "--json").json
    assert (told["stored"], told["refused"]) == (1, 1)
