"""rq-dashboard reads our queue, as the Procfile starts it."""

import json
import urllib.request

import pytest
import redis

from tests.acceptance.processes import Company, free_ports
from tests.conftest import wait_until
from worker.queue import enqueue_pass, pass_queue
from worker.settings import Settings

pytestmark = pytest.mark.acceptance


def test_rq_dashboard_shows_the_queue(
    client: redis.Redis, settings: Settings, company: Company, server: str
) -> None:
    pytest.importorskip("rq_dashboard", reason="the extra `dashboard` is not installed")
    name = enqueue_pass(pass_queue(client, settings), settings, "alice", "token-1")
    (port,) = free_ports(1)
    dashboard = company.launch(
        "-m", "rq_dashboard", "--bind", "127.0.0.1", "--port", str(port), "--json",
        RQ_DASHBOARD_REDIS_URL=server,
    )  # fmt: skip

    def page(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def answers() -> bool:
        assert dashboard.popen.poll() is None, dashboard.said
        try:
            return bool(page("0/data/queues.json"))
        except OSError:
            return False

    wait_until(answers)
    (shown,) = [
        one for one in json.loads(page("0/data/queues.json"))["queues"] if one["name"] == "remq"
    ]
    assert shown["count"] == 1
    (job,) = json.loads(page("0/data/jobs/remq/queued/8/asc/1.json"))["jobs"]
    assert (job["id"], job["description"]) == (name, "remq pass token-1")
    one = json.loads(page(f"0/data/job/{name}.json"))
    assert (one["id"], one["description"], one["status"]) == (name, "remq pass token-1", "queued")
    for html in ("", f"0/view/job/{name}", "0/view/workers", "0/view/jobs/remq/queued/8/asc/1"):
        assert "<title>" in page(html)
