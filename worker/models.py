"""Choose the model a pass asks, and check that it is the one an operator switched on."""

import socket

from worker.config import Config
from worker.errors import PassRefused
from worker.settings import Settings
from worker.sleep.model import Model
from worker.sleep.offline import OfflineModel


def choose_model(settings: Settings) -> Model:
    """The model this environment names: an OpenAI-compatible one, or the offline stand-in."""
    if not settings.uses_openai:
        return OfflineModel()
    # It imports the openai package, which nobody offline should wait for.
    from worker.sleep.llm import OpenAIModel  # noqa: PLC0415

    key = settings.openai_api_key
    return OpenAIModel(
        api_key=None if key is None else key.get_secret_value(),
        base_url=settings.openai_base_url,
        model=settings.model,
        max_answer_tokens=settings.answer_tokens,
    )


def permitted_model(settings: Settings, config: Config) -> Model:
    """The model, if passes are on and were switched on for this very one. Raises PassRefused.

    Nobody's memories start to travel because a variable appeared in an environment.
    """
    require_enabled(config)
    model = choose_model(settings)
    if config.model != model.name:
        raise PassRefused(
            f"Consolidation was switched on for {config.model or 'no model'}, but this process "
            f"(on {socket.gethostname()}) would ask {model.name}. Start it with the variables that "
            "`remq consolidation enable` was run with, or run `enable` with the variables it has."
        )
    return model


def require_enabled(config: Config) -> None:
    """Raise PassRefused while passes are off."""
    if not config.enabled:
        raise PassRefused(
            "Consolidation is off. Switch it on with `remq consolidation enable`, "
            "which says which model will read the memories."
        )
