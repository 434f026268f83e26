from __future__ import annotations

from pathlib import Path

import pytest

from dice_core.errors import UsageError
from dice_core.settings import OPTIONS, Settings, generator_key, quiet_environment


def test_flags_beat_variables_beat_file_beat_defaults(tmp_path: Path) -> None:
    file = tmp_path / "dice.toml"
    file.write_text('plan = "quick"\ncpu_threads = 3\nseed = 5\n', encoding="utf-8")
    settings = Settings.load({"seed": 7, "plan": None}, env={"DICE_CPU_THREADS": "2"}, config_file=file)
    assert (settings.plan, settings.cpu_threads, settings.seed, settings.evidence) == ("quick", 2, 7, "auto")
    assert settings.origins["plan"] == str(file)
    assert settings.origins["cpu_threads"] == "DICE_CPU_THREADS"
    assert settings.origins["seed"] == "flag"
    assert settings.origins["evidence"] == "default"
    assert set(settings.as_dict()) == set(OPTIONS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("plann = 'quick'", "unknown setting 'plann'"),
        ("plan = 'slow'", "plan must be one of quick, standard, got 'slow'"),
        ("cpu_threads = 'two'", "cpu_threads must be int, got 'two'"),
        ("cpu_threads = true", "cpu_threads must be int, got True"),
        ("plan = ", "not valid TOML"),
        ("augment_drawn = -1", "augment_drawn must be a number, 0 or more, got -1"),
        ("generator_cost_budget = nan", "generator_cost_budget must be a number, 0 or more, got nan"),
        ("generator = 'somebody'", "generator must be library, endpoint or a registered model"),
        ("generator_key = 'sk-1'", "unknown setting 'generator_key'"),
    ],
)
def test_bad_settings_name_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "dice.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        Settings.load(env={}, config_file=file)
    assert says in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such configuration file"):
        Settings.load(env={"DICE_CONFIG": str(tmp_path / "absent.toml")})


def test_everything_is_written_under_home(tmp_path: Path) -> None:
    settings = Settings.load(env={"DICE_HOME": str(tmp_path)})
    folders = [settings.attempts_dir, settings.cache_dir, settings.datasets_dir, settings.runs_dir,
               settings.training_dir, settings.report_dir]
    assert all(folder.is_relative_to(tmp_path) for folder in folders)
    environment = quiet_environment(tmp_path)
    assert environment["PREFECT_HOME"].startswith(str(tmp_path))
    assert environment["DO_NOT_TRACK"] == "true"


def test_the_key_of_an_endpoint_is_in_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DICE_GENERATOR_KEY", "sk-secret")
    settings = Settings.load()
    assert generator_key() == "sk-secret"
    assert "sk-secret" not in repr(settings) + repr(settings.as_dict())
    monkeypatch.delenv("DICE_GENERATOR_KEY")
    assert generator_key() == ""
