"""Which model a pass asks, and that it is the one an operator switched on."""

import time

import pytest
import redis
from click.testing import CliRunner

from tests.chat_server import ChatServer
from tests.stage import remember
from worker.cli.consolidation import consolidation
from worker.config import Config
from worker.errors import PassRefused, SettingsError
from worker.jobs import run_claimed
from worker.memory.store import AgentMemory
from worker.models import choose_model, permitted_model, require_enabled
from worker.runs import Runs
from worker.settings import Settings
from worker.stores import config_store

LOCAL = "http://user:pass@127.0.0.1:11434/v1/"


def settings_for(base: Settings, **changes: object) -> Settings:
    """Settings with another model."""
    return Settings.model_validate({**base.model_dump(), "llm": "auto", **changes})


class TestChoice:
    """The offline stand-in, or an OpenAI-compatible server."""

    def test_offline_without_key_or_address(self, settings: Settings) -> None:
        assert choose_model(settings_for(settings)).name == "offline"

    def test_a_local_server_by_its_address(self, settings: Settings) -> None:
        chosen = choose_model(settings_for(settings, openai_base_url=LOCAL, model="qwen3"))
        assert chosen.name == "qwen3 at http://127.0.0.1:11434/v1"

    def test_a_key_alone_means_openais_own(self, settings: Settings) -> None:
        chosen = choose_model(settings_for(settings, openai_api_key="sk-secret"))
        assert chosen.name == f"{settings.model} at https://api.openai.com/v1"

    def test_an_address_that_is_none_is_refused(self, settings: Settings) -> None:
        with pytest.raises(SettingsError, match="OPENAI_BASE_URL"):
            choose_model(settings_for(settings, openai_base_url="localhost:11434"))


class TestPermission:
    """Off by default, and on for one model alone."""

    def test_refused_while_off(self, settings: Settings) -> None:
        with pytest.raises(PassRefused, match=r"^Consolidation is off\. Switch it on with `remq"):
            permitted_model(settings, Config())
        with pytest.raises(PassRefused, match="off"):
            require_enabled(Config(model="offline"))

    def test_the_model_it_was_switched_on_for(self, settings: Settings) -> None:
        config = Config(enabled=True, model="offline")
        require_enabled(config)
        assert permitted_model(settings, config).name == "offline"

    def test_another_is_refused_with_a_sentence_that_names_both(self, settings: Settings) -> None:
        appeared = settings_for(settings, openai_base_url=LOCAL, openai_api_key="sk-secret")
        with pytest.raises(PassRefused) as refused:
            permitted_model(appeared, Config(enabled=True, model="offline"))
        said = str(refused.value)
        assert said.startswith("Consolidation was switched on for offline, but this process")
        assert "http://127.0.0.1:11434/v1" in said
        assert "remq consolidation enable" in said
        assert "secret" not in said
        assert "pass@" not in said

    @pytest.mark.parametrize(
        "changes", [{"model": "another"}, {"openai_base_url": "http://127.0.0.1:9/v1"}]
    )
    def test_the_same_server_and_the_same_model(
        self, settings: Settings, changes: dict[str, object]
    ) -> None:
        first = settings_for(settings, openai_base_url=LOCAL, model="qwen3")
        config = Config(enabled=True, model=choose_model(first).name)
        assert permitted_model(first, config)
        with pytest.raises(PassRefused):
            permitted_model(first.model_copy(update=changes), config)

    def test_switched_on_without_a_model_is_refused(self, settings: Settings) -> None:
        with pytest.raises(PassRefused, match="switched on for no model"):
            permitted_model(settings, Config(enabled=True))


class TestEnable:
    """`remq consolidation enable` records the model of its environment."""

    @pytest.mark.parametrize("agent", [None, "alice"])
    def test_the_model_is_recorded(
        self, client: redis.Redis, settings: Settings, agent: str | None
    ) -> None:
        words = ["enable", *(("--agent", agent) if agent else ())]
        result = CliRunner().invoke(consolidation, words)
        assert result.exit_code == 0, result.output
        config = config_store(client, settings).for_agent("alice")
        assert (config.enabled, config.model) == (True, "offline")
        assert config_store(client, settings).for_agent("bob").enabled == (agent is None)
        assert permitted_model(settings, config).name == "offline"

    def test_switched_on_again_for_another_it_is_that_one(
        self, client: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        CliRunner().invoke(consolidation, ["enable"])
        monkeypatch.setenv("OPENAI_BASE_URL", LOCAL)
        monkeypatch.setenv("REMQ_MODEL", "qwen3")
        assert CliRunner().invoke(consolidation, ["enable"]).exit_code == 0
        config = config_store(client, settings).for_agent("alice")
        assert config.model == "qwen3 at http://127.0.0.1:11434/v1"
        with pytest.raises(PassRefused, match=r"this process \(on .+\) would ask offline"):
            permitted_model(settings, config)


class TestInAPass:
    """A worker whose environment says otherwise asks nothing."""

    @pytest.fixture
    def claimed(self, alice: AgentMemory, runs: Runs, settings: Settings) -> str:
        """Alice has enough for a pass, switched on for offline, and claimed; its token."""
        for text in ("a", "b", "c"):
            remember(alice, text)
        store = config_store(alice.client, settings)
        store.set({"enabled": "on", "model": "offline", "interval_minutes": "2"})
        return runs.claim("alice").token

    def test_no_memory_is_sent_and_the_pass_backs_off(
        self, client: redis.Redis, settings: Settings, runs: Runs, claimed: str
    ) -> None:
        with ChatServer() as chat:
            appeared = settings_for(settings, openai_base_url=chat.base_url)
            assert run_claimed(client, appeared, "alice", claimed) is None
            assert chat.requests == []
        record = runs.record("alice")
        assert record.state == "idle"
        assert "switched on for offline" in record.deferred_reason
        assert 100 < record.not_before - time.time() < 130
        assert runs.reports("alice") == []

    def test_an_address_that_is_none_puts_it_off_too(
        self, client: redis.Redis, settings: Settings, runs: Runs, claimed: str
    ) -> None:
        wrong = settings_for(settings, openai_base_url="nowhere")
        assert run_claimed(client, wrong, "alice", claimed) is None
        assert "OPENAI_BASE_URL" in runs.record("alice").deferred_reason

    def test_with_the_right_one_the_report_names_it(
        self, client: redis.Redis, settings: Settings, claimed: str
    ) -> None:
        report = run_claimed(client, settings, "alice", claimed)
        assert report is not None
        assert (report.model, report.items_reviewed) == ("offline", 3)
