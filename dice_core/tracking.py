"""The only door to MLflow: runs, curves, dataset inputs, registered models and their aliases.

Everything lives under `<home>/mlflow`: `mlflow.db` (SQLite) and `artifacts/`. Both are always given to MLflow by
name, so it never falls back to files in the working folder. A model version gets the alias `candidate` only after it
was loaded back from the registry and answered a prompt: MLflow itself registers models that cannot load.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from types import TracebackType
from typing import Any

import mlflow
import psutil
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.data.meta_dataset import MetaDataset
from mlflow.entities import DatasetInput, InputTag, Metric, Param, RunStatus, RunTag
from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR
from mlflow.exceptions import MlflowException
from mlflow.telemetry.utils import is_telemetry_disabled
from mlflow.tracking import MlflowClient
from mlflow.utils.file_utils import local_file_uri_to_path

from dice_core.errors import TrackingError, UsageError
from dice_core.files import file_lock
from dice_core.train.metrics import StepMetrics

EXPERIMENT = "dice-training"
MODEL_NAME = "dice"
CANDIDATE = "candidate"
#: The models-from-code entry that every logged model carries.
MODEL_CODE = Path(__file__).parent / "model" / "pyfunc.py"

#: Points of one `log_batch`; the store accepts no more.
BATCH_POINTS = 1000
BATCH_PARAMS = 100
#: Digests longer than this do not fit MLflow's dataset table; the full one is a tag.
DATASET_DIGEST_CHARS = 36
#: Tokens of the answer that a freshly registered model must give.
PROBE_TOKENS = 4

_WEIGHTS = "dice.weights_sha256"
_DATASET = "dice.dataset_version"
_DATASET_DIGEST = "dice.dataset_digest"
_VERIFIED = "dice.verified"
_HOST = "dice.host"
_PROCESS = "dice.process"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what MLflow and the libraries below it warn about their own code, and nothing else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(mlflow|sqlalchemy|alembic)\b")
        yield


@dataclass(frozen=True)
class ModelVersion:
    """A registered model.

    Attributes:
        name, version: its address, `name/version`.
        aliases: names that point to it now, such as `candidate`.
        folder: local folder with config.json, model.safetensors and tokenizer.json.
        run_id: the MLflow run that made it.
        weights_sha256: of model.safetensors.
        dataset_version_id, dataset_digest: what it was trained on.
        verified: it was loaded back and answered.
        created_at: UTC, ISO-8601.
    """

    name: str
    version: int
    aliases: tuple[str, ...]
    folder: Path
    run_id: str
    weights_sha256: str
    dataset_version_id: str
    dataset_digest: str
    verified: bool
    created_at: str


class Tracker:
    """One MLflow store below a home folder."""

    @_quiet()
    def __init__(self, home: Path) -> None:
        """Open the store, creating it once under a file lock.

        Raises:
            TrackingError: telemetry is on (the caller sets the environment first), or MLflow refuses the store.
        """
        if not is_telemetry_disabled():
            raise TrackingError("MLflow telemetry is on: set DO_NOT_TRACK=true before mlflow is imported")
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.set(False)
        self.folder = home.absolute() / "mlflow"
        self.uri = f"sqlite:///{self.folder / 'mlflow.db'}"
        self.folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(self.uri)
        mlflow.set_registry_uri(self.uri)
        with file_lock(self.folder / ".lock", what=f"opening {self.folder}"):
            try:
                self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)
                self.experiment_id = self._experiment()
            except MlflowException as error:
                raise TrackingError(f"{self.folder}: {error}") from error

    @_quiet()
    def start_training_run(
        self,
        params: Mapping[str, object],
        dataset_version_id: str,
        dataset_digest: str,
        environment: Mapping[str, object],
        name: str | None = None,
    ) -> TrainingRun:
        """Open a run; use it as a context manager, so that it ends FINISHED or FAILED.

        Args:
            params: what decides the weights.
            dataset_version_id: the dataset version trained on.
            dataset_digest: its content digest, hexadecimal.
            environment: machine and software, kept as `environment.json`.
            name: name for people.
        """
        process = psutil.Process()
        tags = {
            _DATASET: dataset_version_id,
            _DATASET_DIGEST: dataset_digest,
            _HOST: socket.gethostname(),
            _PROCESS: f"{process.pid}:{process.create_time():.2f}",
        }
        run = self.client.create_run(self.experiment_id, run_name=name, tags=tags)
        run_id = run.info.run_id
        entries = [Param(key, str(value)) for key, value in params.items()]
        for begin in range(0, len(entries), BATCH_PARAMS):
            self.client.log_batch(run_id, params=entries[begin : begin + BATCH_PARAMS])
        self.client.log_dict(run_id, dict(environment), "environment.json")
        source = CodeDatasetSource({_DATASET: dataset_version_id, _DATASET_DIGEST: dataset_digest})
        dataset = MetaDataset(source, name=dataset_version_id, digest=dataset_digest[:DATASET_DIGEST_CHARS])
        context = InputTag("mlflow.data.context", "training")
        self.client.log_inputs(run_id, [DatasetInput(dataset._to_mlflow_entity(), [context])])
        return TrainingRun(self, run_id, dataset_version_id, dataset_digest)

    @_quiet()
    def list_models(self) -> list[ModelVersion]:
        """All registered model versions, oldest first."""
        names = {model.name: model.aliases for model in self.client.search_registered_models()}
        found = self.client.search_model_versions(order_by=["creation_timestamp ASC"])
        return sorted(
            (self._entry(version, names.get(version.name, {})) for version in found),
            key=lambda entry: (entry.name, entry.version),
        )

    @_quiet()
    def resolve(self, name_or_alias: str) -> ModelVersion:
        """Find a model by `name@alias`, `name/version`, alias alone, or name alone (its newest verified version).

        Raises:
            UsageError: there is none; the message lists those there are.
            TrackingError: its folder is gone.
        """
        models = self.list_models()
        matching = [entry for entry in models if _answers_to(entry, name_or_alias)]
        if not matching:
            known = ", ".join(f"{entry.name}/{entry.version}" for entry in models) or "none yet"
            raise UsageError(f"no model {name_or_alias!r}; registered: {known}")
        entry = matching[-1]
        if not entry.folder.is_dir():
            raise TrackingError(f"{entry.name}/{entry.version}: weights folder {entry.folder} is gone")
        return entry

    @_quiet()
    def find(self, weights_sha256: str, dataset_version_id: str) -> ModelVersion | None:
        """The verified version with these weights, trained on this dataset version, or None."""
        for entry in self.list_models():
            made_of = (entry.weights_sha256, entry.dataset_version_id)
            if entry.verified and made_of == (weights_sha256, dataset_version_id):
                return entry
        return None

    @_quiet()
    def reap(self) -> list[str]:
        """Mark RUNNING runs of this host whose process is gone as KILLED; returns their ids."""
        running = self.client.search_runs([self.experiment_id], "attributes.status = 'RUNNING'", max_results=1000)
        dead: list[str] = []
        for run in running:
            tags = run.data.tags
            if tags.get(_HOST) == socket.gethostname() and not _alive(tags.get(_PROCESS, "")):
                self.client.set_terminated(run.info.run_id, RunStatus.to_string(RunStatus.KILLED))
                dead.append(run.info.run_id)
        return dead

    @_quiet()
    def curve(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """Points (step, value) of one metric of a run, by step."""
        history = self.client.get_metric_history(run_id, metric)
        return sorted((point.step, point.value) for point in history)

    def _experiment(self) -> str:
        found = self.client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        artifacts = self.folder / "artifacts"
        artifacts.mkdir(exist_ok=True)
        return str(self.client.create_experiment(EXPERIMENT, artifact_location=artifacts.as_uri()))

    def _entry(self, version: Any, aliases: Mapping[str, str]) -> ModelVersion:
        model_id = version.model_id or version.source.removeprefix("models:/")  # SQLite keeps the source only
        location = local_file_uri_to_path(self.client.get_logged_model(model_id).artifact_location)
        # MLflow stores absolute paths; the home may have been moved since.
        _, _, below = location.rpartition(f"/{self.folder.name}/artifacts/")
        folder = _weights_folder(self.folder / "artifacts" / below)
        tags = version.tags
        created = dt.datetime.fromtimestamp(version.creation_timestamp / 1000, dt.UTC)
        return ModelVersion(
            name=version.name,
            version=int(version.version),
            aliases=tuple(sorted(a for a, number in aliases.items() if int(number) == int(version.version))),
            folder=folder,
            run_id=version.run_id,
            weights_sha256=tags.get(_WEIGHTS, ""),
            dataset_version_id=tags.get(_DATASET, ""),
            dataset_digest=tags.get(_DATASET_DIGEST, ""),
            verified=tags.get(_VERIFIED) == "true",
            created_at=created.isoformat(timespec="seconds").replace("+00:00", "Z"),
        )


class TrainingRun:
    """Handle of an open run."""

    def __init__(self, tracker: Tracker, run_id: str, dataset_version_id: str, dataset_digest: str) -> None:
        self.tracker, self.run_id = tracker, run_id
        self.dataset_version_id, self.dataset_digest = dataset_version_id, dataset_digest

    def __enter__(self) -> TrainingRun:
        return self

    @_quiet()
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = RunStatus.FINISHED if kind is None else RunStatus.FAILED
        self.tracker.client.set_terminated(self.run_id, RunStatus.to_string(status))

    @_quiet()
    def log_curve(self, history: Iterable[StepMetrics]) -> None:
        """Store loss, lr, grad_norm, tokens_per_s and step_s of every step."""
        now = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
        points = [
            Metric(key, float(value), now, metrics.step)
            for metrics in history
            for key, value in asdict(metrics).items()
            if key != "step"
        ]
        for begin in range(0, len(points), BATCH_POINTS):
            self.tracker.client.log_batch(self.run_id, metrics=points[begin : begin + BATCH_POINTS])

    @_quiet()
    def log_metrics(self, values: Mapping[str, float]) -> None:
        """Store single numbers, such as wall_s."""
        now = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
        self.tracker.client.log_batch(self.run_id, metrics=[Metric(k, float(v), now, 0) for k, v in values.items()])

    @_quiet()
    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Attach text to the run."""
        self.tracker.client.log_batch(self.run_id, tags=[RunTag(key, value) for key, value in tags.items()])

    @_quiet()
    def register(
        self, model_folder: Path, weights_sha256: str, model_name: str = MODEL_NAME, probe: str = "x"
    ) -> ModelVersion:
        """Log the folder as a model, register it, load it back, let it answer, and only then name it `candidate`.

        The same weights for the same dataset version are registered once: a second call returns the first version
        (and moves the alias back to it).

        Args:
            model_folder: config.json, model.safetensors, tokenizer.json.
            weights_sha256: of model.safetensors.
            model_name: registered name.
            probe: prompt of the trial answer.

        Raises:
            TrackingError: the model does not load back; the version is deleted again.
        """
        client = self.tracker.client
        entry = self.tracker.find(weights_sha256, self.dataset_version_id)
        if entry is None or entry.name != model_name:
            number = self._create_version(model_folder, weights_sha256, model_name)
            try:
                self._probe(f"models:/{model_name}/{number}", probe)
            except Exception as error:
                client.delete_model_version(model_name, str(number))
                raise TrackingError(f"{model_folder}: does not load back from the registry: {error}") from error
            client.set_model_version_tag(model_name, str(number), _VERIFIED, "true")
        else:
            number = entry.version
        client.set_registered_model_alias(model_name, CANDIDATE, str(number))
        return self.tracker.resolve(f"{model_name}/{number}")

    def _create_version(self, model_folder: Path, weights_sha256: str, model_name: str) -> int:
        tags = {
            _WEIGHTS: weights_sha256,
            _DATASET: self.dataset_version_id,
            _DATASET_DIGEST: self.dataset_digest,
        }
        requirements = [f"{name}=={_public_version(name)}" for name in ("torch", "transformers", "safetensors")]
        with mlflow.start_run(run_id=self.run_id):
            info = mlflow.pyfunc.log_model(
                name="model",
                python_model=str(MODEL_CODE),
                artifacts={"weights": str(model_folder)},
                pip_requirements=requirements,
                tags=tags,
            )
        client = self.tracker.client
        if not client.search_registered_models(f"name = '{model_name}'"):
            client.create_registered_model(model_name)
        made = client.create_model_version(
            model_name, info.model_uri, run_id=self.run_id, tags=tags, model_id=info.model_id
        )
        return int(made.version)

    @staticmethod
    def _probe(uri: str, prompt: str) -> None:
        loaded = mlflow.pyfunc.load_model(uri, model_config={"max_new_tokens": PROBE_TOKENS})
        answers = loaded.predict([prompt])
        if len(answers) != 1 or not isinstance(answers[0], str):
            raise TrackingError(f"asked one prompt, got {answers!r}")


def _weights_folder(logged_model: Path) -> Path:
    """The one folder among a logged model's artifacts; its name is that of the folder that was logged."""
    artifacts = logged_model / "artifacts"
    folders = sorted(path for path in artifacts.glob("*") if path.is_dir())
    return folders[0] if folders else artifacts


def _answers_to(entry: ModelVersion, address: str) -> bool:
    if "@" in address:
        name, alias = address.split("@", 1)
        return entry.name == name and alias in entry.aliases
    if "/" in address:
        return address == f"{entry.name}/{entry.version}"
    return address in entry.aliases or (address == entry.name and entry.verified)


def _alive(process: str) -> bool:
    """Whether the process `pid:start time` still runs; a recycled pid has another start time."""
    try:
        pid, started = process.split(":", 1)
        return f"{psutil.Process(int(pid)).create_time():.2f}" == started
    except (ValueError, psutil.NoSuchProcess):
        return False
    except psutil.AccessDenied:
        return True


def _public_version(package: str) -> str:
    """Installed version without its local label (`2.13.0+cpu` is on no registry)."""
    return installed_version(package).split("+", 1)[0]
