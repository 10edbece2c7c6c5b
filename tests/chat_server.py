"""A real HTTP server on 127.0.0.1 that speaks the OpenAI chat completions protocol, by script.

    with ChatServer({"metadata": "[]", "connections": "[]", "insight": "A sentence."}) as server:
        OpenAIModel(api_key="k", base_url=server.base_url, model="m")
    assert server.steps == ["metadata", "connections", "insight"]

What it says to each step is a text, a `Reply`, or a list of them (one a call; the last stays); or
a function of the request's JSON that returns a text or a `Reply`. Without a script it answers
every step well, about the items of the prompt. Waiting is done on an event, so that `close` ends
a delayed answer at once.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, Self

CHAT_PATH = "/v1/chat/completions"
HTML = "<!doctype html><title>Not here</title><p>Sign in to continue"


@dataclass(frozen=True)
class Reply:
    """One answer. `body` replaces the whole JSON; times are seconds.

    `delay_s` passes before the first byte; with `drip_s` the bytes come one by one, that far
    apart. `hang_up` closes the connection without an answer.
    """

    content: object = None
    status: int = 200
    body: str | bytes | None = None
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    usage: tuple[int, int] | None = (100, 20)
    message: Mapping[str, object] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    hang_up: bool = False

    def payload(self) -> bytes:
        """The body's bytes."""
        if isinstance(self.body, bytes):
            return self.body
        if self.body is not None:
            return self.body.encode()
        message = {"role": "assistant", "content": self.content, **self.message}
        completion: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}],
        }
        if self.usage is not None:
            prompt, answer = self.usage
            completion["usage"] = {
                "prompt_tokens": prompt,
                "completion_tokens": answer,
                "total_tokens": prompt + answer,
            }
        return json.dumps(completion).encode()


Said = str | Reply
Script = Callable[[dict[str, Any]], Said] | Mapping[str, Said | Sequence[Said]]


def refusal(status: int, message: str, **fields: object) -> Reply:
    """An error as OpenAI words it."""
    return Reply(status=status, body=json.dumps({"error": {"message": message, **fields}}))


def prompt_of(request: dict[str, Any]) -> str:
    """The last user message."""
    users = [m["content"] for m in request.get("messages", []) if m.get("role") == "user"]
    return str(users[-1]) if users else ""


def step_of(request: dict[str, Any]) -> str:
    """`metadata`, `connections` or `insight`; empty where the prompt names none."""
    first = prompt_of(request).partition("\n")[0]
    return first.removeprefix("step: ") if first.startswith("step: ") else ""


def ids_of(request: dict[str, Any]) -> list[int]:
    """The numbers of the items in the prompt, in their order."""
    return [int(number) for number in re.findall(r"(?m)^\[#(\d+)\] ", prompt_of(request))]


def good_answer(request: dict[str, Any]) -> Said:
    """What a well-behaved model says about the items of the prompt."""
    ids = ids_of(request)
    match step_of(request):
        case "metadata":
            rows = [
                {"id": n, "entities": ["Frankfurt"], "topics": ["billing", "audit"]} for n in ids
            ]
            return json.dumps(rows)
        case "connections":
            pairs = pairwise(ids)
            links = [{"from_id": a, "to_id": b, "relationship": "depends on"} for a, b in pairs]
            return json.dumps(links)
        case _:
            return "The billing move and the audit are one plan: each decision waits for the other."


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002, the library's name
        """Say nothing: the requests are kept in a list."""

    def do_POST(self) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            request = json.loads(body)
        except ValueError:
            request = {}
        if self.path != CHAT_PATH:
            self._send(refusal(404, f"no such path: {self.path}"))
            return
        self._send(owner.reply_to(request, {k.lower(): v for k, v in self.headers.items()}))

    def do_GET(self) -> None:
        self._send(refusal(404, f"no such path: {self.path}"))

    def _send(self, reply: Reply) -> None:
        stopped = self.server.owner.stopped
        self.close_connection = True
        if stopped.wait(reply.delay_s) or reply.hang_up:
            return
        payload = reply.payload()
        try:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            self.send_header("Content-Length", str(len(payload)))
            self.send_header("Connection", "close")
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if not reply.drip_s:
                self.wfile.write(payload)
                return
            for byte in payload:
                self.wfile.write(bytes([byte]))
                if stopped.wait(reply.drip_s):
                    return
        except OSError:
            return  # The client hung up, as a client with a deadline does.


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    owner: "ChatServer"


class ChatServer:
    """The server. `base_url` ends in `/v1`; `requests` are the JSON bodies it was sent."""

    def __init__(self, script: Script = good_answer) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.stopped = threading.Event()
        self._calls: dict[str, int] = {}
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def base_url(self) -> str:
        """What OPENAI_BASE_URL is set to."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def steps(self) -> list[str]:
        """The step of each request so far."""
        return [step_of(request) for request in self.requests]

    def reply_to(self, request: dict[str, Any], headers: dict[str, str]) -> Reply:
        """Note the request and find what the script says to it."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            said = self._said(request)
        return said if isinstance(said, Reply) else Reply(content=said)

    def _said(self, request: dict[str, Any]) -> Said:
        if callable(self.script):
            return self.script(request)
        step = step_of(request)
        turn = self._calls[step] = self._calls.get(step, 0) + 1
        if step not in self.script:
            return refusal(400, f"the script has no answer for the step {step!r}")
        said = self.script[step]
        if isinstance(said, str | Reply):
            return said
        return said[min(turn, len(said)) - 1]

    def close(self) -> None:
        """Stop, ending delayed answers at once."""
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
