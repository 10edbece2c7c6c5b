"""Run-time settings: for all, for one agent, from the environment, in this order backwards."""

from dataclasses import fields

import pytest
import redis
from redis.exceptions import ResponseError

from worker.config import Config, ConfigStore, parse
from worker.errors import SettingsError
from worker.settings import Settings
from worker.stores import config_store


@pytest.fixture
def store(client: redis.Redis, settings: Settings) -> ConfigStore:
    """An empty store over the environment's settings."""
    return config_store(client, settings)


class TestDefaults:
    """Off by default; everything else as docs/settings.md has it."""

    def test_the_defaults(self, store: ConfigStore) -> None:
        config, overrides = store.for_all()
        assert (config, overrides) == (Config(), False)
        assert not config.enabled
        assert (config.interval_minutes, config.window_size, config.min_items) == (30, 20, 3)
        assert (config.max_connections, config.rerate_salience, config.extract_metadata) == (
            5,
            True,
            True,
        )
        assert not config.extract_on_write
        assert config.model == ""

    def test_the_environment_changes_them(self, client: redis.Redis) -> None:
        settings = Settings(interval_minutes=5, window_size=7, extract_metadata=False)
        config = config_store(client, settings).for_agent("alice")
        assert (config.interval_minutes, config.window_size) == (5, 7)
        assert not config.extract_metadata

    def test_the_environment_cannot_switch_it_on(
        self, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("REMQ_ENABLED", "true")
        assert not config_store(client, Settings()).for_agent("alice").enabled

    @pytest.mark.parametrize(("minutes", "backoff_s"), [(30, 300), (5, 300), (4.5, 270), (0.5, 30)])
    def test_the_back_off_is_min_interval_300(self, minutes: float, backoff_s: float) -> None:
        assert Config(interval_minutes=minutes).backoff_s == backoff_s
        assert Config(interval_minutes=minutes).interval_s == minutes * 60


class TestSet:
    """What an operator sets holds at the next read."""

    def test_for_all(self, store: ConfigStore) -> None:
        store.set({"enabled": "on", "model": "offline", "window_size": "7"})
        for config in (store.for_all()[0], store.for_agent("alice")):
            assert (config.enabled, config.model, config.window_size) == (True, "offline", 7)

    def test_for_one_agent_and_nobody_else(self, store: ConfigStore) -> None:
        store.set({"enabled": "on", "model": "offline"}, "alice")
        assert store.for_agent("alice").enabled
        assert not store.for_agent("bob").enabled
        assert not store.for_all()[0].enabled
        assert store.overrides() == {"alice"}
        assert store.for_all()[1]

    def test_an_agents_own_setting_goes_before_that_for_all_both_ways(
        self, store: ConfigStore
    ) -> None:
        store.set({"enabled": "on", "min_items": "5"})
        store.set({"enabled": "off"}, "alice")
        store.set({"min_items": "2"}, "bob")
        configs = store.for_agents(["alice", "bob", "carol"])
        assert [configs[name].enabled for name in configs] == [False, True, True]
        assert [configs[name].min_items for name in configs] == [5, 2, 5]

    @pytest.mark.parametrize("agent", [None, "alice"])
    def test_a_flip_back(self, store: ConfigStore, agent: str | None) -> None:
        for value in ("on", "off", "on"):
            store.set({"enabled": value}, agent)
            assert store.for_agent("alice").enabled == (value == "on")

    def test_one_wrong_value_sets_none(self, store: ConfigStore) -> None:
        with pytest.raises(SettingsError):
            store.set({"window_size": "7", "min_items": "many"}, "alice")
        assert store.client.keys("*") == []

    def test_a_value_that_cannot_be_read_is_passed_over(self, store: ConfigStore) -> None:
        row: dict[bytes, bytes] = {
            b"window_size": b"lots",
            b"min_items": b"\xff",
            b"interval_minutes": b"nan",
            b"max_connections": b"2",
            b"of_a_later_version": b"1",
        }
        store.client.hset(store.keys.config, mapping=row)
        assert store.for_agent("alice") == Config(max_connections=2)

    def test_an_agent_whose_settings_cannot_be_read_is_off_and_no_other(
        self, store: ConfigStore
    ) -> None:
        store.set({"enabled": "on", "model": "offline"})
        store.client.set(store.keys.agent("alice").config, "a stranger's")
        configs = store.for_agents(["alice", "bob"])
        assert (configs["alice"].enabled, configs["bob"].enabled) == (False, True)

    def test_settings_for_all_that_cannot_be_read_are_a_fault(self, store: ConfigStore) -> None:
        store.client.set(store.keys.config, "a stranger's")
        for read in (store.for_all, lambda: store.for_agents(["alice"])):
            with pytest.raises(ResponseError, match="WRONGTYPE"):
                read()

    def test_settings_are_text_that_people_can_read(self, store: ConfigStore) -> None:
        store.set({"enabled": "yes", "interval_minutes": "0.5", "max_connections": "-1"})
        assert store.client.hgetall(store.keys.config) == {
            b"enabled": b"1",
            b"interval_minutes": b"0.5",
            b"max_connections": b"-1",
        }


class TestParse:
    """Each value is checked, and refused with a sentence that says what is wanted."""

    @pytest.mark.parametrize("text", ["on", "true", "1", "YES", " On "])
    def test_on(self, text: str) -> None:
        assert parse("enabled", text) is True

    @pytest.mark.parametrize("text", ["off", "false", "0", "No"])
    def test_off(self, text: str) -> None:
        assert parse("rerate_salience", text) is False

    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("interval_minutes", "0.5", 0.5),
            ("interval_minutes", "30", 30),
            ("window_size", "200", 200),
            ("max_connections", "0", 0),
            ("max_connections", "-3", -3),
            ("model", "m at http://127.0.0.1/v1", "m at http://127.0.0.1/v1"),
        ],
    )
    def test_values(self, name: str, text: str, value: object) -> None:
        assert parse(name, text) == value

    @pytest.mark.parametrize(
        ("name", "text", "sentence"),
        [
            ("windows", "3", "no run-time setting 'windows'; there are enabled, model,"),
            ("enabled", "maybe", "enabled is a switch: on or off, not 'maybe'"),
            ("enabled", "", "enabled is a switch"),
            ("window_size", "ten", "window_size is a whole number, not 'ten'"),
            ("window_size", "3.5", "window_size is a whole number, not '3.5'"),
            ("window_size", "0", "window_size lies between 1 and 200, not 0"),
            ("window_size", "201", "between 1 and 200"),
            ("min_items", "0", "between 1 and 200"),
            ("interval_minutes", "0", "between 0.001 and 525600"),
            ("interval_minutes", "-1", "between"),
            ("interval_minutes", "nan", "between"),
            ("interval_minutes", "inf", "between"),
            ("interval_minutes", "soon", "interval_minutes is a number, not 'soon'"),
            ("max_connections", "9" * 5000, "not '9999"),
        ],
    )
    def test_refused(self, name: str, text: str, sentence: str) -> None:
        with pytest.raises(SettingsError) as refused:
            parse(name, text)
        assert sentence in str(refused.value)
        assert len(str(refused.value)) < 300

    def test_all_but_the_switch_have_a_setting_of_the_environment(self) -> None:
        names = {one.name for one in fields(Config)}
        assert names - set(Settings.model_fields) == {"enabled"}
