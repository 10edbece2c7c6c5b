"""Settings: read once from the environment, refused with a sentence, nested deadlines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import SettingsError
from worker.settings import Settings, load, variable

LEASES = [2, 2.2, 3, 9.99, 10, 60, 240, 3600, 86_400]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of this machine do not count."""
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


class TestDeadlines:
    """Model call < pass < RQ's job limit < lease."""

    def nest(self, settings: Settings) -> bool:
        limits = (
            settings.call_timeout_s,
            settings.pass_deadline_s,
            settings.job_timeout_s,
            settings.lease_s,
        )
        return 0 < limits[0] < limits[1] < limits[2] < limits[3]

    @pytest.mark.parametrize("lease_s", LEASES)
    @pytest.mark.parametrize("llm_timeout_s", [0.1, 60, 100_000])
    def test_they_nest(self, lease_s: float, llm_timeout_s: float) -> None:
        assert self.nest(Settings(lease_s=lease_s, llm_timeout_s=llm_timeout_s))

    @given(
        lease_s=st.floats(2, 1e7, allow_nan=False),
        llm_timeout_s=st.floats(0.001, 1e7, allow_nan=False),
    )
    def test_they_nest_for_any_lease(self, lease_s: float, llm_timeout_s: float) -> None:
        assert self.nest(Settings(lease_s=lease_s, llm_timeout_s=llm_timeout_s))

    def test_the_defaults(self) -> None:
        settings = Settings()
        assert (settings.lease_s, settings.job_timeout_s) == (240, 216)
        assert settings.pass_deadline_s == pytest.approx(172.8)
        assert settings.call_timeout_s == settings.llm_timeout_s == 60

    def test_a_call_that_hangs_leaves_time_for_another(self) -> None:
        settings = Settings(lease_s=60, llm_timeout_s=600)
        assert settings.call_timeout_s * 2 <= settings.pass_deadline_s

    @pytest.mark.parametrize("lease_s", ["0", "1", "-5", "nan", "soon"])
    def test_a_lease_too_short_to_nest_anything_is_refused(
        self, lease_s: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REMQ_LEASE_S", lease_s)
        with pytest.raises(SettingsError, match="REMQ_LEASE_S"):
            load()


class TestDefaults:
    """The figures of docs/settings.md, where other modules rely on them."""

    def test_the_pass(self) -> None:
        settings = Settings()
        assert (settings.interval_minutes, settings.window_size, settings.min_items) == (30, 20, 3)
        assert settings.max_connections == 5
        assert settings.rerate_salience
        assert settings.extract_metadata
        assert not settings.extract_on_write
        assert (settings.defer_s, settings.quiet_s, settings.reclaim_idle_s) == (60, 60, 30)
        assert (settings.durable_clip, settings.episodic_clip) == (280, 2000)

    def test_nothing_is_read_at_import_and_empty_counts_as_unset(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REMQ_WINDOW_SIZE", "7")
        assert load().window_size == 7
        monkeypatch.setenv("REMQ_WINDOW_SIZE", "")
        assert load().window_size == 20


class TestNames:
    """REMQ_ and the name, or the name that another package reads too."""

    @pytest.mark.parametrize(
        ("name", "named"),
        [
            ("lease_s", "REMQ_LEASE_S"),
            ("openai_api_key", "OPENAI_API_KEY"),
            ("openai_base_url", "OPENAI_BASE_URL"),
            ("rq_key_prefix", "RQ_KEY_PREFIX"),
            ("no_setting", "REMQ_NO_SETTING"),
        ],
    )
    def test_the_variable(self, name: str, named: str) -> None:
        assert variable(name) == named

    def test_rq_s_prefix_is_read_from_rq_s_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RQ_KEY_PREFIX", "acme-rq")
        assert load().rq_key_prefix == "acme-rq"


class TestModel:
    """auto: openai when a key or a base URL is set, else offline."""

    @pytest.mark.parametrize(
        ("variables", "openai"),
        [
            ({}, False),
            ({"OPENAI_API_KEY": "k"}, True),
            ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, True),
            ({"OPENAI_API_KEY": "k", "REMQ_LLM": "offline"}, False),
            ({"OPENAI_API_KEY": "k", "REMQ_LLM": "openai"}, True),
            ({"OPENAI_API_KEY": ""}, False),
        ],
    )
    def test_which(
        self, variables: dict[str, str], openai: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert load().uses_openai == openai

    def test_openai_without_key_or_address_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REMQ_LLM", "openai")
        with pytest.raises(SettingsError, match="needs OPENAI_API_KEY or"):
            load()


class TestRefused:
    """One sentence that names the variable and never a secret."""

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("REMQ_WINDOW_SIZE", "0"),
            ("REMQ_WINDOW_SIZE", "many"),
            ("REMQ_MIN_ITEMS", "0"),
            ("REMQ_INTERVAL_MINUTES", "0"),
            ("REMQ_INTERVAL_MINUTES", "inf"),
            ("REMQ_DEFER_S", "-1"),
            ("REMQ_QUIET_S", "nan"),
            ("REMQ_MAX_CONNECTIONS", "1001"),
            ("REMQ_LLM", "claude"),
            ("REMQ_PREFIX", "a:b"),
            ("REMQ_QUEUE", "a b"),
            ("REMQ_RERATE_SALIENCE", "maybe"),
        ],
    )
    def test_a_wrong_value(self, name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, value)
        with pytest.raises(SettingsError, match=f"^The settings do not hold: {name}: "):
            load()

    def test_several_are_all_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("REMQ_WINDOW_SIZE", "0")
        monkeypatch.setenv("REMQ_MIN_ITEMS", "0")
        with pytest.raises(SettingsError, match=r"REMQ_WINDOW_SIZE: .*; REMQ_MIN_ITEMS: "):
            load()

    def test_a_secret_shows_nowhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setenv("REMQ_REDIS_URL", "redis://user:hidden@host")
        settings = load()
        assert "secret" not in repr(settings)
        assert "hidden" not in repr(settings)
        monkeypatch.setenv("REMQ_WINDOW_SIZE", "0")
        with pytest.raises(SettingsError) as refused:
            load()
        assert "secret" not in str(refused.value)
        assert "hidden" not in str(refused.value)

    @pytest.mark.parametrize("value", ["0", "-1", "-1000"])
    def test_a_cap_of_connections_may_be_0_or_less(
        self, value: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REMQ_MAX_CONNECTIONS", value)
        assert load().max_connections == int(value)

    def test_every_setting_says_what_it_is(self) -> None:
        undescribed = [name for name, one in Settings.model_fields.items() if not one.description]
        assert undescribed == []
