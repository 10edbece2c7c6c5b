"""A model behind any server that speaks OpenAI's chat completions: OpenAI, Ollama, vLLM, DeepSeek.

Importing this module imports the openai package (about a third of a second): import it only where a
pass is going to ask a model over the network.
"""

import asyncio
import json
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from socket import gaierror
from typing import Any
from urllib.parse import urlsplit

import openai

from worker.errors import AnswerError, ModelUnavailable, SettingsError
from worker.sleep import prompts
from worker.sleep.model import Answer, Question

#: The openai package's own default. Given by us, since the package would otherwise look into
#: OPENAI_BASE_URL itself, and memories would go where no setting of ours says.
DEFAULT_BASE_URL = "https://api.openai.com/v1"
#: What a local server gets when no key is set; the package refuses to send none.
NO_KEY = "none"
#: Low, so that the same memories give about the same answer.
TEMPERATURE = 0.2
#: Calls beyond the first that a question may cost while the server's parameters are learnt.
EXTRA_CALLS = 3


class OpenAIModel:
    """Asks a chat completions server, each question with one deadline for all of it.

    `base_url` None is OpenAI's own; `api_key` may be None for a local server.
    `max_answer_tokens` is the most tokens an answer may have. What the server refuses
    (`max_tokens`, `temperature`) is swapped or dropped, and remembered for as long as this
    object lives. Call it from a thread that runs no event loop. Raises SettingsError for an
    address or a key that cannot be one.
    """

    def __init__(
        self,
        *,
        api_key: str | None,
        base_url: str | None,
        model: str,
        max_answer_tokens: int = 1024,
    ) -> None:
        self._api_key = _key(api_key)
        self._base_url = _address(base_url or DEFAULT_BASE_URL)
        self._model = model
        limit = "max_tokens" if base_url else "max_completion_tokens"
        #: What is sent beside model and messages; shrinks as the server refuses.
        self._parameters: dict[str, float] = {limit: max_answer_tokens, "temperature": TEMPERATURE}
        self._limits_refused: set[str] = set()

    @property
    def name(self) -> str:
        """`<model> at <scheme://host[:port]/path>`, without user, password or query."""
        return f"{self._model} at {shown(self._base_url)}"

    def ask(self, question: Question, *, deadline_s: float) -> Answer:
        """Answer within `deadline_s` seconds in all, retries included.

        Raises ModelUnavailable when no answer came, AnswerError when one came that holds no text
        or was cut off; never with the key, the body of the answer or a memory in the message.
        """
        try:
            return asyncio.run(self._within(question, deadline_s))
        except TimeoutError:
            raise ModelUnavailable(f"no answer within {deadline_s:g} s") from None

    async def _within(self, question: Question, deadline_s: float) -> Answer:
        asyncio.get_running_loop().set_default_executor(_Unhurried(1, "remq-resolve"))
        # The package's own timeout starts anew with every byte read; this one does not.
        async with asyncio.timeout(deadline_s), self._client(deadline_s) as client:
            return await self._converse(client, prompts.messages(question))

    async def _converse(
        self, client: openai.AsyncOpenAI, messages: list[dict[str, str]], extra: int = EXTRA_CALLS
    ) -> Answer:
        create: Any = client.chat.completions.with_raw_response.create
        try:
            response = await create(model=self._model, messages=messages, **self._parameters)
        except openai.APIStatusError as error:
            if extra and self._adapt(error):
                return await self._converse(client, messages, extra - 1)
            raise _status(error) from None
        except openai.APITimeoutError:
            raise TimeoutError from None
        except openai.APIConnectionError as error:
            raise ModelUnavailable(_broken(error)) from None
        return read_completion(response.text)

    def _client(self, deadline_s: float) -> openai.AsyncOpenAI:
        """Make a client for one event loop.

        It follows no redirect: memories go to the address that was set, and no further. A proxy
        from the environment is used as openai does, but for this machine's own addresses, which
        no proxy can reach.
        """
        http_client = openai.DefaultAsyncHttpxClient(
            follow_redirects=False, trust_env=not is_loopback(self._base_url), timeout=deadline_s
        )
        return openai.AsyncOpenAI(
            api_key=self._api_key,
            base_url=self._base_url,
            timeout=deadline_s,
            max_retries=0,
            http_client=http_client,
        )

    def _adapt(self, error: openai.APIStatusError) -> bool:
        """Swap or drop the parameter that a 400 or 422 names; False where it names none we sent."""
        if error.status_code not in {400, 422}:
            return False
        said = f"{error.message} {error.body} {getattr(error, 'param', '')}".lower()
        limit = next((name for name in self._parameters if name.startswith("max_")), None)
        if limit and limit in said:
            self._limits_refused.add(limit)
            tokens = self._parameters.pop(limit)
            other = {"max_tokens": "max_completion_tokens"}.get(limit, "max_tokens")
            if other not in self._limits_refused:
                self._parameters[other] = tokens
            return True
        if "temperature" in said:
            return self._parameters.pop("temperature", None) is not None
        return False


class _Unhurried(ThreadPoolExecutor):
    """Resolves host names; a resolver that hangs does not hold up the end of the event loop."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)


def _key(api_key: str | None) -> str:
    # A key read from a file often brings its newline along.
    key = (api_key or "").strip() or NO_KEY
    if not (key.isascii() and key.isprintable()):
        raise SettingsError("OPENAI_API_KEY holds characters that no key has.")
    return key


def _address(base_url: str) -> str:
    url = base_url.strip()
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not (whole and url.isprintable()):
        raise SettingsError(
            "OPENAI_BASE_URL is no address of a server: it looks like http://127.0.0.1:11434/v1."
        )
    return url


def shown(url: str) -> str:
    """Show an address without user, password, query and fragment, for people and logs."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def read_completion(body: str) -> Answer:
    """Read the body of a chat completion.

    Raises ModelUnavailable where it is no completion at all (a web page, an error with status
    200), AnswerError where it is one without a text.
    """
    try:
        completion = json.loads(body)
    except (ValueError, RecursionError):
        raise ModelUnavailable(_not_json(body)) from None
    if not isinstance(completion, dict):
        raise ModelUnavailable("check OPENAI_BASE_URL: it did not answer with a chat completion")
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        if completion.get("error"):
            raise ModelUnavailable("the server answered with an error instead of a choice")
        raise AnswerError("an answer without choices")
    prompt_tokens, completion_tokens = _usage(completion.get("usage"))
    return Answer(_text(choices[0]), prompt_tokens, completion_tokens)


def _not_json(body: str) -> str:
    start = body.lstrip("\ufeff \t\r\n")[:5].lower()
    if start.startswith("<"):
        return "check OPENAI_BASE_URL: it answered with a web page"
    if start.startswith("data:"):
        return "the server streams its answers, which remq does not ask for"
    if start.startswith("{"):
        return "the server's answer ended in the middle"
    return "check OPENAI_BASE_URL: it did not answer with JSON"


def _text(choice: dict[str, Any]) -> str:
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    # A cut-off answer is refused even where what is left of it happens to parse.
    if choice.get("finish_reason") == "length":
        raise AnswerError("the answer was cut off at the token limit")
    if choice.get("finish_reason") == "content_filter":
        raise AnswerError("the answer was withheld by a content filter")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_parts(content))
    if isinstance(content, str) and content.strip():
        return content
    if message.get("refusal"):
        raise AnswerError("the model declined to answer")
    if message.get("tool_calls"):
        raise AnswerError("the model called a tool instead of answering")
    raise AnswerError("an empty answer")


def _parts(content: list[Any]) -> Iterator[str]:
    """Yield the texts of an answer that comes in parts; parts of reasoning are left out."""
    for part in content:
        if isinstance(part, dict) and part.get("type") in {"text", "output_text"}:
            text = part.get("text")
            if isinstance(text, str):
                yield text


def _usage(usage: object) -> tuple[int, int]:
    if not isinstance(usage, dict):
        return 0, 0
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    prompt, completion = (n if isinstance(n, int) and n > 0 else 0 for n in counts)
    return prompt, completion


#: What a status means, and what to do about it. Never the body: a server may echo the key.
_STATUSES = {
    401: "401: the key was not accepted, check OPENAI_API_KEY",
    402: "402: the account has no credit left",
    403: "403: this key may not use the model",
    404: "404: no such model or path, check OPENAI_BASE_URL and REMQ_MODEL",
    408: "408: the server gave up waiting",
    413: "413: the prompt is too large for the server",
    429: "429: too many requests, or the quota is used up",
}


def _status(error: openai.APIStatusError) -> ModelUnavailable:
    code = error.status_code
    if error.code == "context_length_exceeded":
        return ModelUnavailable(f"{code}: the prompt is too long for the model")
    if code in _STATUSES:
        return ModelUnavailable(_STATUSES[code])
    if code < 400:
        return ModelUnavailable(f"{code}: the server points elsewhere, check OPENAI_BASE_URL")
    if code >= 500:
        return ModelUnavailable(f"{code}: the server failed")
    return ModelUnavailable(f"{code}: the server refused the request")


def _broken(error: openai.APIConnectionError) -> str:
    """Say why no answer came, from the causes that lie under openai's own error."""
    causes = list(_causes(error))
    for kind, meaning in _CAUSES:
        if any(isinstance(cause, kind) for cause in causes):
            return meaning
    if any(type(cause).__name__ == "ConnectError" for cause in causes):
        return "the server cannot be reached, check OPENAI_BASE_URL"
    return "the connection broke before the answer was complete"


_CAUSES: tuple[tuple[type[Exception], str], ...] = (
    (ConnectionRefusedError, "the connection was refused: is the model's server running?"),
    (gaierror, "its host is unknown, check OPENAI_BASE_URL"),
    (ssl.SSLError, "no secure connection: check the server's certificate and OPENAI_BASE_URL"),
)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
