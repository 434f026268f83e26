"""Checkpoints of a training run: one folder each, safetensors plus JSON, put in place by a rename.

A folder `step_000040` is whole or absent: it is written under a temporary name, every file synced, renamed, and
the parent synced. Loading one continues the run bit for bit on the same device and number of threads.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from dice_core.errors import ResumeError, SourceError
from dice_core.files import fsync_dir, write_atomic
from dice_core.model.backbone import load_tensors, load_weights, save_tensors, weights_of
from dice_core.train.metrics import StepMetrics

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
RNG_FILE = "rng.safetensors"
STATE_FILE = "state.json"
#: How many checkpoints stay on disk.
KEPT = 2


@dataclass(frozen=True)
class RunIdentity:
    """What must be equal for a checkpoint to be continued: hex sha256 of the recipe and of the documents."""

    recipe: str
    documents: str


def save_checkpoint(
    folder: Path,
    model: Qwen3ForCausalLM,
    optimizer: torch.optim.Optimizer,
    history: Sequence[StepMetrics],
    identity: RunIdentity,
) -> Path:
    """Write the state after the last step of `history` below `folder`, then drop all but the newest `KEPT`."""
    step = history[-1].step
    final = folder / f"step_{step:06d}"
    temporary = folder / f".{final.name}.{os.getpid()}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_tensors(weights_of(model), temporary / MODEL_FILE)
    save_tensors(_optimizer_tensors(optimizer), temporary / OPTIMIZER_FILE)
    save_tensors(_rng_tensors(), temporary / RNG_FILE)
    state = {"step": step, "identity": asdict(identity), "history": [asdict(m) for m in history]}
    write_atomic(temporary / STATE_FILE, json.dumps(state))
    if final.exists():  # left by a run that was resumed from an older checkpoint
        shutil.rmtree(final)
    os.replace(temporary, final)
    fsync_dir(folder)
    for old in checkpoints(folder)[:-KEPT]:
        shutil.rmtree(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints below `folder`, oldest first."""
    return sorted(path for path in folder.glob("step_*") if path.is_dir())


def discard_leftovers(folder: Path) -> None:
    """Remove the temporary folders that killed processes left behind."""
    for path in folder.glob(".step_*.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(
    folder: Path, model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer, identity: RunIdentity
) -> list[StepMetrics]:
    """Restore model, optimiser and random state from one checkpoint folder.

    Returns:
        The metrics of all steps so far; the last one names the step to continue after.

    Raises:
        ResumeError: the checkpoint belongs to another recipe or other documents, or does not fit the optimiser.
        SourceError: a file is missing or broken.
    """
    path = folder / STATE_FILE
    try:
        state = json.loads(path.read_bytes())
        found = RunIdentity(**state["identity"])
        history = [StepMetrics(**metrics) for metrics in state["history"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path}: not the state of a checkpoint: {error!r}") from None
    check_identity(found, identity, where=str(folder))
    load_weights(model, load_tensors(folder / MODEL_FILE), where=str(folder))
    _restore_optimizer(optimizer, load_tensors(folder / OPTIMIZER_FILE), where=str(folder))
    _restore_rng(load_tensors(folder / RNG_FILE))
    return history


def check_identity(found: RunIdentity, wanted: RunIdentity, *, where: str) -> None:
    """Refuse to continue what was started with another recipe or other documents.

    Raises:
        ResumeError: they differ; the message says which.
    """
    for name in ("recipe", "documents"):
        was, now = getattr(found, name), getattr(wanted, name)
        if was != now:
            raise ResumeError(
                f"{where}: made with other {name} (sha256 {was[:12]}…, now {now[:12]}…); use another output folder"
            )


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Optimiser state as flat tensors `<parameter index>.<name>`; hyperparameters come from the recipe."""
    return {
        f"{index}.{name}": value.detach().cpu().contiguous()
        for index, slots in optimizer.state_dict()["state"].items()
        for name, value in slots.items()
    }


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor], *, where: str) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    expected = sum(len(group["params"]) for group in groups)
    if len(state) != expected:
        raise ResumeError(f"{where}: optimiser state for {len(state)} parameters, the model has {expected}")
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _rng_tensors() -> dict[str, torch.Tensor]:
    tensors = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["cuda"] = torch.cuda.get_rng_state()
    return tensors


def _restore_rng(tensors: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(tensors["cpu"])
    if "cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["cuda"])
