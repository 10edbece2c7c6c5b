"""Every setting, its unit and its default. Built at the edge and handed down.

Each is read from the environment as `REMQ_<NAME>`, but what another package reads too has that
package's name: `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `RQ_KEY_PREFIX`.
"""

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from worker.errors import SettingsError

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """What an operator may set. Times are seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(
        env_prefix="REMQ_",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
    )

    # The servers.
    redis_url: SecretStr | None = Field(
        None, description="The memory's server: redis, rediss, unix, redis+sentinel, redis+cluster."
    )
    queue_url: SecretStr | None = Field(
        None, description="RQ's server, a plain Redis; the memory's server when left out."
    )
    prefix: str = Field(
        "remq",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="How every key begins; one per tenant.",
    )
    data_dir: str = Field(".remq", description="Where the embedded server keeps its data.")

    # The model.
    llm: Literal["auto", "openai", "offline"] = Field(
        "auto", description="auto: openai when a key or a base URL is set, else offline."
    )
    model: str = Field("gpt-5-mini", min_length=1, description="The model's name.")
    openai_api_key: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_API_KEY", "openai_api_key"),
        description="The model's key.",
    )
    openai_base_url: str | None = Field(
        None,
        validation_alias=AliasChoices("OPENAI_BASE_URL", "openai_base_url"),
        description="The model's address; OpenAI's own when left out.",
    )
    llm_timeout_s: Seconds = Field(60, description="The most one model call may take in all.")
    prompt_tokens: Count = Field(
        8000, description="The most tokens of memories in one prompt; what does not fit waits."
    )
    answer_tokens: Count = Field(2000, description="The most tokens one answer may have.")

    # The writer.
    durable_clip: Count = Field(280, description="Code points kept of a durable text.")
    episodic_clip: Count = Field(2000, description="Code points kept of an episodic text.")
    batch: Annotated[int, Field(ge=1, le=1000)] = Field(
        256, description="The most events a writer takes at once."
    )
    reclaim_idle_s: SecondsOrNone = Field(
        30, description="How long an entry may stay with a consumer before another takes it."
    )
    max_deliveries: Count = Field(
        5, description="Deliveries after which an event is a dead letter."
    )
    dead_max: Count = Field(10_000, description="Dead letters kept, about.")
    dead_max_age_days: Seconds = Field(30, description="How long a dead letter is kept.")
    seen_days: Seconds = Field(7, description="How long a stored event's id is remembered.")
    feed_max: Count = Field(10_000, description="Entries of an agent's changes feed kept, about.")
    insights_max: Count = Field(10_000, description="Entries of the insights stream kept, about.")
    extract_on_write: bool = Field(
        False, description="Ask for entities and topics right when an item is written."
    )

    # The pass; the next six can be changed at run time.
    interval_minutes: Seconds = Field(30, description="Minutes from one pass to the next.")
    window_size: Annotated[int, Field(ge=1, le=200)] = Field(
        20, description="The most memories a pass looks at."
    )
    min_items: Count = Field(3, description="Fewer unconsolidated memories: no pass.")
    max_connections: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        5, description="The most connections of a pass; 0 or less: none."
    )
    rerate_salience: bool = Field(True, description="Raise the salience of what proved important.")
    extract_metadata: bool = Field(True, description="Ask for entities and topics.")
    passes_max: Count = Field(1000, description="Reports of passes kept for an agent, about.")

    # The scheduler and the queue.
    agent_queues: str = Field(
        "", description="The agents' own task queues, e.g. `rq:tasks celery:celery`."
    )
    defer_s: Seconds = Field(60, description="How long a pass is put off while the agent is busy.")
    quiet_s: SecondsOrNone = Field(
        60, description="With no agent queue named: silence that counts as idle."
    )
    horizon_s: SecondsOrNone = Field(
        300, description="Delayed work due within this time keeps an agent busy."
    )
    tick_s: Seconds = Field(1, description="From one look of the scheduler to the next.")
    sweep_s: Seconds = Field(300, description="From one mending walk over all agents to the next.")
    leader_ttl_s: Annotated[float, Field(ge=1)] = Field(
        10, description="How long a silent scheduler still leads."
    )
    max_queued: Count = Field(100, description="Passes waiting in the queue before no more join.")
    lease_s: Annotated[float, Field(ge=2)] = Field(
        240, description="How long a running pass is believed to live."
    )
    queue: str = Field("remq", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="RQ's queue name.")
    rq_key_prefix: str = Field(
        "rq",
        validation_alias=AliasChoices("RQ_KEY_PREFIX", "rq_key_prefix"),
        description="How RQ's keys begin; RQ reads it too.",
    )
    worker_start: Literal["auto", "fork", "spawn"] = Field(
        "auto", description="How a worker starts a pass; auto: spawn where fork is unsafe."
    )

    # The recaller.
    recall_deadline_s: Seconds = Field(
        10, description="Age after which a recall request without a deadline is dropped."
    )
    reply_ttl_s: Count = Field(30, description="How long an answer nobody fetches is kept.")
    recaller_agents: Count = Field(1000, description="Indexes a recaller keeps; oldest go first.")

    @property
    def queue_place(self) -> SecretStr | None:
        """The URL of RQ's server: its own where it has one, else the memory's."""
        return self.queue_url or self.redis_url

    @property
    def uses_openai(self) -> bool:
        """Whether a pass asks a model over the network."""
        if self.llm == "auto":
            return bool(self.openai_api_key or self.openai_base_url)
        return self.llm == "openai"

    @property
    def job_timeout_s(self) -> int:
        """RQ's limit for a pass, in whole seconds; no pass must outlive its lease."""
        return max(1, int(self.lease_s * 0.9))

    @property
    def pass_deadline_s(self) -> float:
        """The most a pass may take; shorter than RQ's limit, so that it ends by its own hand."""
        return self.job_timeout_s * 0.8

    @property
    def call_timeout_s(self) -> float:
        """The most one call of a pass may take; one that hangs leaves time for another."""
        return min(self.llm_timeout_s, self.pass_deadline_s / 2)

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.llm == "openai" and not (self.openai_api_key or self.openai_base_url):
            raise ValueError(
                "REMQ_LLM=openai needs OPENAI_API_KEY or, for a local server, OPENAI_BASE_URL"
            )
        return self


def load(**overrides: object) -> Settings:
    """Read the settings from the environment.

    Raises SettingsError naming each wrong variable, without its value where it is a secret.
    """
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError(_sentence(error)) from None


def variable(name: str) -> str:
    """The environment variable of a setting."""
    field = Settings.model_fields.get(name)
    alias = field.validation_alias if field else None
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else f"REMQ_{name.upper()}"


def _sentence(error: ValidationError) -> str:
    parts = []
    for problem in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in problem["loc"])
        text = problem["msg"].removeprefix("Value error, ")
        name = where if where.isupper() else variable(where)
        parts.append(f"{name}: {text}" if where else text)
    return "The settings do not hold: " + "; ".join(parts) + "."
