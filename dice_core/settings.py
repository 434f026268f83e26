"""Configuration: built-in defaults < `dice.toml` < `DICE_*` variables < flags. The only reader of the environment.

`Settings.load()` gives one frozen object; `origins` says where each value came from (`dice config show`).
`apply_environment()` sets, in one place, what third-party libraries read from the environment: homes under
`DICE_HOME`, telemetry off, Prefect's start timeout and the SQLite batch settings.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dice_core.errors import UsageError

#: name -> (default, help). Names are the keys of dice.toml; `DICE_<NAME>` is the variable.
OPTIONS: dict[str, tuple[str | int | float, str]] = {
    "home": (".dice", "folder of everything DICE writes: lake, attempts, caches, MLflow store, reports"),
    "device": ("auto", "where kernels are evaluated: auto, cpu or cuda"),
    "plan": ("standard", "timing plan of the arena: quick or standard"),
    "cpu_threads": (1, "threads that PyTorch and the candidate may use on the CPU"),
    "build_jobs": (0, "parallel compilations; 0 means by cores and free memory"),
    "build_cache_bytes": (20 << 30, "size that `dice housekeep` leaves the cache of compiled kernels"),
    "build_cache_days": (90, "days after which an unused compiled kernel is removed"),
    "isolation": ("rlimits", "least isolation a candidate may run under: rlimits, netns, landlock or seccomp"),
    "evidence": ("auto", "speedup evidence of the filter: auto, claimed or measured"),
    "speedup_threshold": (2.0, "records at or above this speedup pass the filter"),
    "source_expanded_bytes": (16 << 30, "most bytes that one compressed source file may become"),
    "augment_sets": (1, "listed dimension sets of each structure that curation proposes; 0 means all"),
    "augment_drawn": (0, "further dimension sets of each structure, drawn with the seed"),
    "generator": ("library", "who writes kernels for structures: library, endpoint, or a model as name@alias"),
    "generator_url": ("", "chat endpoint in OpenAI's form, up to and with the version: https://host/v1"),
    "generator_model": ("", "the endpoint's model"),
    "generator_temperature": (0.7, "temperature of the endpoint's model"),
    "generator_max_tokens": (4096, "longest answer of the endpoint, in tokens"),
    "generator_timeout_s": (120.0, "longest wait for one answer of the endpoint"),
    "generator_requests_per_minute": (30, "most requests a minute to the endpoint; 0 means no limit"),
    "generator_token_budget": (1_000_000, "tokens that a run may use at the endpoint; 0 means no limit"),
    "generator_cost_budget": (0.0, "what a run may cost at the endpoint, by the prices; 0 means no limit"),
    "generator_price_in": (0.0, "price of a million tokens that the endpoint reads"),
    "generator_price_out": (0.0, "price of a million tokens that the endpoint writes"),
    "seed": (0, "seed of training and sampling"),
}


#: Variables of ours that are no settings: which file to read, where the tests find third-party data, and the key of the
#: endpoint, which no file, flag or `dice config show` may hold.
_OTHER_VARIABLES = ("config", "test_data", "generator_key")


@dataclass(frozen=True)
class Settings:
    """All settings of one invocation."""

    home: Path
    device: str
    plan: str
    cpu_threads: int
    build_jobs: int
    build_cache_bytes: int
    build_cache_days: int
    isolation: str
    evidence: str
    speedup_threshold: float
    source_expanded_bytes: int
    augment_sets: int
    augment_drawn: int
    generator: str
    generator_url: str
    generator_model: str
    generator_temperature: float
    generator_max_tokens: int
    generator_timeout_s: float
    generator_requests_per_minute: int
    generator_token_budget: int
    generator_cost_budget: float
    generator_price_in: float
    generator_price_out: float
    seed: int
    origins: Mapping[str, str]

    @classmethod
    def load(
        cls,
        flags: Mapping[str, Any] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        config_file: Path | None = None,
    ) -> Settings:
        """Merge all layers.

        Args:
            flags: values given on the command line; `None` values count as not given.
            env: variables to read instead of the process's own.
            config_file: `dice.toml` to read instead of the one in the working folder.

        Raises:
            UsageError: an unknown key, or a value of the wrong type; names the layer and the key.
        """
        env = os.environ if env is None else env
        layers: list[tuple[str, Mapping[str, Any]]] = []
        path = config_file or Path(env.get("DICE_CONFIG", "dice.toml"))
        if path.is_file():
            layers.append((str(path), _read_toml(path)))
        elif config_file or "DICE_CONFIG" in env:
            raise UsageError(f"{path}: no such configuration file")
        for name in env:
            if name.startswith("DICE_") and name.removeprefix("DICE_").lower() not in {*OPTIONS, *_OTHER_VARIABLES}:
                raise UsageError(f"{name}: no such setting; known: {', '.join(f'DICE_{n.upper()}' for n in OPTIONS)}")
        layers += [(f"DICE_{name.upper()}", {name: env[f"DICE_{name.upper()}"]})
                   for name in OPTIONS if env.get(f"DICE_{name.upper()}")]
        layers.append(("flag", {k: v for k, v in (flags or {}).items() if v is not None}))
        values: dict[str, Any] = {name: default for name, (default, _) in OPTIONS.items()}
        origins = dict.fromkeys(OPTIONS, "default")
        for origin, layer in layers:
            for name, value in layer.items():
                if name not in OPTIONS:
                    raise UsageError(f"{origin}: unknown setting {name!r}; known: {', '.join(OPTIONS)}")
                values[name] = _convert(origin, name, value)
                origins[name] = origin
        _choice(origins, values, "device", ("auto", "cpu", "cuda"))
        _choice(origins, values, "plan", ("quick", "standard"))
        _choice(origins, values, "isolation", ("rlimits", "netns", "landlock", "seccomp"))
        _choice(origins, values, "evidence", ("auto", "claimed", "measured"))
        for name in ("augment_sets", "augment_drawn", *(n for n in OPTIONS if n.startswith("generator_"))):
            if isinstance(values[name], int | float) and not 0 <= values[name] < float("inf"):
                raise UsageError(f"{origins[name]}: {name} must be a number, 0 or more, got {values[name]}")
        if values["generator"] not in ("library", "endpoint") and not re.search("[@/]", str(values["generator"])):
            raise UsageError(f"{origins['generator']}: generator must be library, endpoint or a registered model as "
                             f"name@alias or name/version, got {values['generator']!r}")
        values["home"] = Path(values["home"]).expanduser().absolute()
        return cls(**values, origins=origins)

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name, without origins."""
        return {f.name: str(v) if isinstance(v := getattr(self, f.name), Path) else v
                for f in fields(self) if f.name != "origins"}

    @property
    def attempts_dir(self) -> Path:
        """Finished attempt files that are not published yet."""
        return self.home / "attempts" / "new"

    @property
    def cache_dir(self) -> Path:
        """Content-addressed compiled kernels."""
        return self.home / "cache" / "build"

    @property
    def answers_dir(self) -> Path:
        """Answers of the endpoint that writes kernels."""
        return self.home / "cache" / "answers"

    @property
    def datasets_dir(self) -> Path:
        """Published dataset versions."""
        return self.home / "datasets"

    @property
    def runs_dir(self) -> Path:
        """KernelBench-style run folders."""
        return self.home / "runs"

    @property
    def training_dir(self) -> Path:
        """Checkpoints of trainings."""
        return self.home / "training"

    @property
    def report_dir(self) -> Path:
        """The latest report."""
        return self.home / "report"


def generator_key() -> str:
    """The endpoint's key, from `DICE_GENERATOR_KEY` alone; empty for endpoints without one."""
    return os.environ.get("DICE_GENERATOR_KEY", "")


def compiler_path() -> str:
    """PATH for compilers: this interpreter's own scripts (ninja) first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def configured_prefect_server() -> str:
    """Address of the Prefect server that the user runs; empty when there is none."""
    return os.environ.get("PREFECT_API_URL", "")


def hub_endpoint() -> str:
    """Address of the Hugging Face hub: `HF_ENDPOINT`, for mirrors, or the public one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def hub_offline() -> bool:
    """Whether `HF_HUB_OFFLINE` forbids to ask the hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in ("1", "ON", "YES", "TRUE")


def use_prefect_server(url: str | None) -> None:
    """Point Prefect to a server of ours, or no longer."""
    if url is None:
        os.environ.pop("PREFECT_API_URL", None)
    else:
        os.environ["PREFECT_API_URL"] = url


def environment_with(more: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with some variables added, for a child."""
    return {**os.environ, **more}


def quiet_environment(home: Path) -> dict[str, str]:
    """What third-party libraries must find in the environment before they are imported."""
    prefect = {
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # What goes wrong reaches the user once, from the command itself.
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
        # One by one (the default), recording task runs starves flow creation on SQLite: "database is locked".
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "200",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "100",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "500",
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "100",
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "2",
    }
    return {
        **prefect,
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "GX_ANALYTICS_ENABLED": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "MPLCONFIGDIR": str(home / "cache" / "matplotlib"),
    }


def apply_environment(home: Path) -> None:
    """Set `quiet_environment` for this process and its children, without overriding what the user set.

    DO_NOT_TRACK is forced: MLflow only honours the word `true`.
    """
    for name, value in quiet_environment(home).items():
        os.environ.setdefault(name, value)
    os.environ["DO_NOT_TRACK"] = "true"


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error


def _convert(origin: str, name: str, value: Any) -> str | int | float:
    kind = type(OPTIONS[name][0])
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Path):
            raise ValueError(f"a {type(value).__name__}")
        return kind(str(value))
    except ValueError:
        raise UsageError(f"{origin}: {name} must be {kind.__name__}, got {value!r}") from None


def _choice(origins: Mapping[str, str], values: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> None:
    if values[name] not in allowed:
        raise UsageError(f"{origins[name]}: {name} must be one of {', '.join(allowed)}, got {values[name]!r}")
