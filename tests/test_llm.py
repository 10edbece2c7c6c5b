"""What a model's server may do, and the one sentence each comes to."""

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.chat_server import HTML, ChatServer, Reply, Said, good_answer, refusal
from worker.errors import AnswerError, ModelError, ModelUnavailable, SettingsError
from worker.sleep.llm import DEFAULT_BASE_URL, OpenAIModel, is_loopback
from worker.sleep.model import Answer, Question, Step, WindowItem

KEY = "sk-very-secret-123"
SECRET_TEXT = "Ana's salary talk is on Monday"
QUESTION = Question(Step.INSIGHT, (WindowItem(1, SECRET_TEXT, "note", 1_760_000_000.0),))


def model_at(base_url: str | None, **options: object) -> OpenAIModel:
    settings = {"api_key": KEY, "base_url": base_url, "model": "small-1"} | options
    return OpenAIModel(**settings)  # type: ignore[arg-type]


def ask(base_url: str, deadline_s: float = 10.0) -> Answer:
    return model_at(base_url).ask(QUESTION, deadline_s=deadline_s)


@pytest.fixture
def serve() -> Iterator[Callable[[Said], ChatServer]]:
    servers = []

    def start(said: Said) -> ChatServer:
        servers.append(ChatServer({"insight": said}))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_answer_comes_with_its_cost(serve: Callable[[Said], ChatServer]) -> None:
    server = serve(Reply("A sentence of the model.", usage=(321, 12)))
    assert ask(server.base_url) == Answer("A sentence of the model.", 321, 12)


def test_request_names_model_step_limit_and_key(serve: Callable[[Said], ChatServer]) -> None:
    server = serve("A sentence of the model.")
    model_at(server.base_url, max_answer_tokens=77).ask(QUESTION, deadline_s=10)
    (request,) = server.requests
    assert request["model"] == "small-1"
    assert request["max_tokens"] == 77
    assert request["temperature"] < 0.5
    assert not request.get("stream")
    assert server.steps == ["insight"]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_cost_is_zero_where_the_server_tells_none(serve: Callable[[Said], ChatServer]) -> None:
    server = serve(Reply("A sentence of the model.", usage=None))
    assert ask(server.base_url).prompt_tokens == 0


def test_local_server_needs_no_key(serve: Callable[[Said], ChatServer]) -> None:
    server = serve("A sentence of the model.")
    model_at(server.base_url, api_key=None).ask(QUESTION, deadline_s=10)
    assert server.headers[0]["authorization"] == "Bearer none"


def test_newline_of_a_key_file_does_no_harm(serve: Callable[[Said], ChatServer]) -> None:
    server = serve("A sentence of the model.")
    model_at(server.base_url, api_key=KEY + "\n").ask(QUESTION, deadline_s=10)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_default_script_answers_every_step() -> None:
    with ChatServer(good_answer) as server:
        for step in Step:
            question = Question(step, QUESTION.items)
            assert model_at(server.base_url).ask(question, deadline_s=10).text
    assert server.steps == ["metadata", "connections", "insight"]


LONG_HTML = HTML + "<p>more" * 1000

TABLE: list[tuple[str, Said, type[ModelError], str]] = [
    ("401 with the key", refusal(401, f"Incorrect API key: {KEY}"), ModelUnavailable, "the key"),
    ("403", refusal(403, "no"), ModelUnavailable, "403"),
    ("404", refusal(404, "model not found"), ModelUnavailable, "OPENAI_BASE_URL and REMQ_MODEL"),
    ("429", refusal(429, "slow down"), ModelUnavailable, "429: too many requests"),
    ("500", refusal(500, "oops"), ModelUnavailable, "500: the server failed"),
    ("503 page", Reply(status=503, body=HTML), ModelUnavailable, "503: the server failed"),
    ("400", refusal(400, "no"), ModelUnavailable, "400: the server refused"),
    ("long prompt", refusal(400, "x", code="context_length_exceeded"), ModelUnavailable, "long"),
    ("redirect", Reply(status=307, headers={"Location": "/x"}), ModelUnavailable, "elsewhere"),
    ("hang up", Reply(hang_up=True), ModelUnavailable, "broke"),
    ("html", Reply(body=HTML, content_type="text/html"), ModelUnavailable, "web page"),
    ("html as json", Reply(body=LONG_HTML), ModelUnavailable, "web page"),
    ("no json", Reply(body="busy"), ModelUnavailable, "did not answer with JSON"),
    ("empty body", Reply(body=""), ModelUnavailable, "did not answer with JSON"),
    ("event stream", Reply(body='data: {"choices": []}'), ModelUnavailable, "streams"),
    ("cut-off json", Reply(body='{"choices": [{"mes'), ModelUnavailable, "in the middle"),
    ("deep json", Reply(body="[" * 100_000), ModelUnavailable, "JSON"),
    ("list", Reply(body="[1]"), ModelUnavailable, "chat completion"),
    ("error, 200", Reply(body='{"error": {"message": "x"}}'), ModelUnavailable, "an error"),
    ("no choices", Reply(body='{"choices": []}'), AnswerError, "without choices"),
    ("null choices", Reply(body='{"choices": null}'), AnswerError, "without choices"),
    ("odd choice", Reply(body='{"choices": [{"message": 3}]}'), AnswerError, "empty answer"),
    ("null", Reply(None), AnswerError, "empty answer"),
    ("blank", Reply(" \n "), AnswerError, "empty answer"),
    ("cut off", Reply("[]", finish_reason="length"), AnswerError, "token limit"),
    ("filter", Reply("[]", finish_reason="content_filter"), AnswerError, "content filter"),
    ("refusal", Reply(None, message={"refusal": "I cannot"}), AnswerError, "declined"),
    ("tool", Reply(None, message={"tool_calls": [{"id": "1"}]}), AnswerError, "called a tool"),
    ("thoughts", Reply("", message={"reasoning_content": "hm"}), AnswerError, "empty answer"),
]


@pytest.mark.parametrize(
    ("said", "kind", "words"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_failure_is_one_sentence_without_secrets(
    serve: Callable[[Said], ChatServer], said: Said, kind: type[ModelError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        ask(serve(said).base_url)
    sentence = str(caught.value)
    assert type(caught.value) is kind
    assert len(sentence) < 120
    assert "\n" not in sentence
    assert KEY not in sentence
    assert SECRET_TEXT not in sentence


def test_parts_of_an_answer_are_joined(serve: Callable[[Said], ChatServer]) -> None:
    parts = [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "A sen"}]
    parts.append({"type": "text", "text": "tence."})
    assert ask(serve(Reply(parts)).base_url).text == "A sentence."


def test_refused_port() -> None:
    with pytest.raises(ModelUnavailable, match="refused: is the model's server running"):
        ask(f"http://127.0.0.1:{free_port()}/v1")


def test_wrong_path_of_a_right_server(serve: Callable[[Said], ChatServer]) -> None:
    server = serve("A sentence of the model.")
    with pytest.raises(ModelUnavailable, match="check OPENAI_BASE_URL"):
        ask(server.base_url + "/wrong")


def test_server_without_tls_asked_for_tls(serve: Callable[[Said], ChatServer]) -> None:
    server = serve("A sentence of the model.")
    with pytest.raises(ModelUnavailable, match="check the server's certificate"):
        ask(server.base_url.replace("http:", "https:"))


def test_silent_server_is_left_at_the_deadline(serve: Callable[[Said], ChatServer]) -> None:
    server = serve(Reply("A sentence of the model.", delay_s=60))
    with pytest.raises(ModelUnavailable, match=r"no answer within 0\.3 s"):
        ask(server.base_url, deadline_s=0.3)


def test_dripping_server_is_left_at_the_deadline(serve: Callable[[Said], ChatServer]) -> None:
    server = serve(Reply("A sentence of the model.", drip_s=0.05))
    with pytest.raises(ModelUnavailable, match=r"no answer within 0\.5 s"):
        ask(server.base_url, deadline_s=0.5)


def test_hanging_resolver_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def hang(*_: object, **__: object) -> None:
        answered.wait(30)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    with pytest.raises(ModelUnavailable, match=r"no answer within 0\.3 s"):
        ask("http://model.invalid/v1", deadline_s=0.3)
    assert not answered.is_set()
    answered.set()


def test_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ModelUnavailable, match="host is unknown, check OPENAI_BASE_URL"):
        ask("http://model.invalid/v1")


def test_proxy_of_the_environment_does_not_catch_loopback(
    serve: Callable[[Said], ChatServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    assert ask(serve("A sentence of the model.").base_url).text


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.5/v1", True),
        ("http://[::1]:80/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://10.0.0.1/v1", False),
    ],
)
def test_loopback(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


class Fussy:
    """A server that refuses some parameters, as OpenAI's own words it."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused

    def __call__(self, request: dict[str, object]) -> Said:
        for name in self.refused:
            if name in request:
                return refusal(400, f"Unsupported parameter: '{name}'", param=name)
        return "A sentence of the model."


@pytest.mark.parametrize(
    ("refused", "calls", "sent"),
    [
        (("max_tokens",), 2, {"max_completion_tokens", "temperature"}),
        (("temperature",), 2, {"max_tokens"}),
        (("max_tokens", "temperature"), 3, {"max_completion_tokens"}),
        (("max_tokens", "max_completion_tokens", "temperature"), 4, set()),
    ],
)
def test_refused_parameters_are_swapped_or_dropped_and_remembered(
    refused: tuple[str, ...], calls: int, sent: set[str]
) -> None:
    with ChatServer(Fussy(*refused)) as server:
        model = model_at(server.base_url)
        assert model.ask(QUESTION, deadline_s=10).text
        assert len(server.requests) == calls
        assert model.ask(QUESTION, deadline_s=10).text
        assert len(server.requests) == calls + 1
    assert set(server.requests[-1]) - {"model", "messages"} == sent


def test_at_most_three_extra_calls() -> None:
    said = refusal(400, "temperature, max_tokens, max_completion_tokens: all wrong")
    with (
        ChatServer({"insight": said}) as server,
        pytest.raises(ModelUnavailable, match="400: the server refused"),
    ):
        model_at(server.base_url).ask(QUESTION, deadline_s=10)
    assert len(server.requests) == 4


def test_openai_itself_is_sent_the_newer_limit() -> None:
    model = model_at(None)
    assert set(model._parameters) == {"max_completion_tokens", "temperature"}


def test_environment_of_the_package_does_not_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.invalid/v1")
    model = model_at(None)
    assert model.name == f"small-1 at {DEFAULT_BASE_URL}"
    assert str(model._client(1.0).base_url).rstrip("/") == DEFAULT_BASE_URL


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (None, "small-1 at https://api.openai.com/v1"),
        ("http://127.0.0.1:11434/v1/", "small-1 at http://127.0.0.1:11434/v1"),
        ("https://u:p@host.example/v1?key=1#x", "small-1 at https://host.example/v1"),
    ],
)
def test_name_shows_the_address_without_secrets(url: str | None, name: str) -> None:
    assert model_at(url).name == name


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000/v1", "ftp://host/v1", "http://", "http://[::1", "x"]
)
def test_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="OPENAI_BASE_URL"):
        model_at(url)


def test_key_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY") as caught:
        model_at(None, api_key="sk-ключ")
    assert "ключ" not in str(caught.value)


def test_key_and_body_are_in_no_repr() -> None:
    assert KEY not in repr(model_at(None))
    assert KEY not in json.dumps(model_at(None).name)
