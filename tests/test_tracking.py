"""MLflow's one door: runs, curves, registered models that load back, idempotence, reaping."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dice_core.errors import TrackingError, UsageError
from dice_core.files import sha256_file
from dice_core.model import backbone
from dice_core.model.tokenizer import train_tokenizer
from dice_core.settings import apply_environment
from dice_core.train.metrics import StepMetrics

# The tests look into the store with MLflow's own client, past the door that silences this.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

HISTORY = [StepMetrics(i, 7.0 / i, 1e-3, 0.5, 1000.0, 0.1) for i in range(1, 451)]


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The module, imported as the programs do: after the environment is set."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DO_NOT_TRACK", "true")
        apply_environment(tmp_path_factory.mktemp("env"))
        import dice_core.tracking

        yield dice_core.tracking
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def first_program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, subprocess.CompletedProcess[str]]:
    """A program that creates the store and registers a model; the other tests go on in its home."""
    home, cwd = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("cwd")
    folder, digest = model_folder(tmp_path_factory.mktemp("weights"), 5)
    program = f"""
from pathlib import Path
import torch
from dice_core.settings import apply_environment
torch.set_num_threads(1)
home = Path({str(home)!r})
apply_environment(home)
from dice_core.tracking import Tracker
with Tracker(home).start_training_run({{}}, "dsv_0", "ab", {{}}) as run:
    print(run.register(Path({str(folder)!r}), {digest!r}, model_name="first").version)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=cwd, capture_output=True, text=True)
    return home, cwd, done


@pytest.fixture(scope="module")
def tracker(tracking, first_program):  # type: ignore[no-untyped-def]
    return tracking.Tracker(first_program[0])


def model_folder(folder: Path, seed: int) -> tuple[Path, str]:
    tokenizer = train_tokenizer(["class ModelNew: pass\n"], 270)
    architecture = backbone.Architecture(
        vocab_size=tokenizer.vocab_size, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, block_size=4, mask_token_id=tokenizer.mask_id,
        eos_token_id=tokenizer.im_end_id, pad_token_id=tokenizer.end_of_text_id,
    )  # fmt: skip
    backbone.save(backbone.build(architecture, seed), folder)
    tokenizer.save(folder)
    return folder, sha256_file(folder / "model.safetensors")


def open_run(tracker, version: str = "dsv_1"):  # type: ignore[no-untyped-def]
    params = {"steps": 450, "learning_rate": 0.004, **{f"p{i}": i for i in range(150)}}
    return tracker.start_training_run(params, version, "ab" * 32, {"gpu": "none", "cores": 2}, name="test")


def test_a_run_keeps_params_curve_environment_and_dataset(tracker) -> None:  # type: ignore[no-untyped-def]
    with open_run(tracker) as run:
        run.log_curve(HISTORY)
        run.log_metrics({"wall_s": 12.5})
    stored = tracker.client.get_run(run.run_id)
    assert stored.info.status == "FINISHED"
    assert stored.data.params["learning_rate"] == "0.004"
    assert len(stored.data.params) == 152
    assert stored.data.metrics["wall_s"] == 12.5
    assert tracker.curve(run.run_id, "loss") == [(m.step, m.loss) for m in HISTORY]
    (dataset,) = [entry.dataset for entry in stored.inputs.dataset_inputs]
    assert (dataset.name, dataset.digest) == ("dsv_1", ("ab" * 32)[:36])
    environment = tracker.client.download_artifacts(run.run_id, "environment.json")
    assert json.loads(Path(environment).read_text()) == {"gpu": "none", "cores": 2}


def test_a_run_that_raises_is_failed(tracker) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RuntimeError, match="boom"), open_run(tracker) as run:
        raise RuntimeError("boom")
    assert tracker.client.get_run(run.run_id).info.status == "FAILED"


def test_registering_loads_back_names_the_candidate_and_is_idempotent(tracker, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder, digest = model_folder(tmp_path / "model", 1)
    with open_run(tracker) as run:
        first = run.register(folder, digest)
    assert (first.name, first.aliases, first.verified) == ("dice", ("candidate",), True)
    assert (first.weights_sha256, first.dataset_version_id, first.run_id) == (digest, "dsv_1", run.run_id)
    assert sha256_file(first.folder / "model.safetensors") == digest
    assert not list(first.folder.parent.parent.rglob("*.pkl"))
    assert tracker.client.get_run(run.run_id).info.status == "FINISHED"

    with open_run(tracker) as again:
        assert again.register(folder, digest) == first
    with open_run(tracker, "dsv_2") as other_data:
        second = other_data.register(folder, digest)
    assert second.version == first.version + 1

    for address in ("dice@candidate", "dice", f"dice/{second.version}"):
        assert tracker.resolve(address) == second
    assert tracker.resolve(f"dice/{first.version}").aliases == ()
    ours = [entry.version for entry in tracker.list_models() if entry.name == "dice"]
    assert ours == [first.version, second.version]
    assert tracker.find(digest, "dsv_2") == second
    assert tracker.find(digest, "dsv_3") is None
    with pytest.raises(UsageError, match=r"no model 'champion'.*dice/1"):
        tracker.resolve("champion")


def test_a_model_that_cannot_load_is_not_registered(tracker, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder, digest = model_folder(tmp_path / "model", 3)
    (folder / "model.safetensors").write_bytes(b"not weights")
    before = tracker.list_models()
    with pytest.raises(TrackingError, match="does not load back"), open_run(tracker) as run:
        run.register(folder, digest)
    assert tracker.list_models() == before


def test_reaper_kills_runs_of_dead_processes_only(tracker) -> None:  # type: ignore[no-untyped-def]
    alive, dead, recycled, elsewhere = (open_run(tracker) for _ in range(4))
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    tracker.client.set_tag(dead.run_id, "dice.process", f"{done.pid}:1.00")
    pid = tracker.client.get_run(recycled.run_id).data.tags["dice.process"].split(":")[0]
    tracker.client.set_tag(recycled.run_id, "dice.process", f"{pid}:1.00")
    tracker.client.set_tag(elsewhere.run_id, "dice.process", f"{done.pid}:1.00")
    tracker.client.set_tag(elsewhere.run_id, "dice.host", "another-host")
    assert set(tracker.reap()) == {dead.run_id, recycled.run_id}
    status = {run.run_id: tracker.client.get_run(run.run_id).info.status for run in (alive, dead, elsewhere)}
    assert status == {alive.run_id: "RUNNING", dead.run_id: "KILLED", elsewhere.run_id: "RUNNING"}
    assert tracker.reap() == []


def test_a_second_tracker_sees_the_same_store(tracking, tracker) -> None:  # type: ignore[no-untyped-def]
    other = tracking.Tracker(tracker.folder.parent)
    assert other.experiment_id == tracker.experiment_id
    assert other.list_models() == tracker.list_models()


def test_telemetry_must_be_off(tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(tracking, "is_telemetry_disabled", lambda: False)
    with pytest.raises(TrackingError, match="DO_NOT_TRACK"):
        tracking.Tracker(tmp_path)
    assert not (tmp_path / "mlflow").exists()


def test_configuration_names_what_the_code_uses(tracking, root: Path) -> None:  # type: ignore[no-untyped-def]
    config = tomllib.loads((root / "mlflow" / "experiments.toml").read_text())
    assert list(config["experiment"]) == [tracking.EXPERIMENT]
    assert list(config["model"]) == [tracking.MODEL_NAME]
    assert tracking.CANDIDATE in config["model"][tracking.MODEL_NAME]["aliases"]
    assert config["experiment"][tracking.EXPERIMENT]["metrics"] == ["loss", "lr", "grad_norm", "tokens_per_s", "step_s"]


def test_a_program_is_quiet_and_leaves_no_files_behind(first_program, tracker) -> None:  # type: ignore[no-untyped-def]
    """Creating the store, registering and loading back: nothing on stderr, nothing in the working folder."""
    home, cwd, done = first_program
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "1", "")
    assert list(cwd.iterdir()) == []
    assert tracker.resolve("first@candidate").dataset_version_id == "dsv_0"
    assert (home / "mlflow" / "mlflow.db").is_file()


def test_a_moved_home_still_finds_its_models(tracking, first_program, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    moved = shutil.copytree(first_program[0], tmp_path / "elsewhere")
    entry = tracking.Tracker(moved).resolve("first/1")
    assert entry.folder.is_relative_to(moved)
    assert sha256_file(entry.folder / "model.safetensors") == entry.weights_sha256
