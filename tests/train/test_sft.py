"""Training: determinism, resume bit for bit, refusals, divergence, and that it learns (invariant 12)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dice_core.errors import BusyError, ContractError, DivergedError, ResumeError, SourceError, UsageError
from dice_core.files import file_lock
from dice_core.model import backbone
from dice_core.model.decoding import DecodingConfig, generate
from dice_core.model.tokenizer import load_tokenizer
from dice_core.train import sft
from dice_core.train.checkpoint import checkpoints
from dice_core.train.metrics import StepMetrics
from dice_core.train.packing import TextPair
from dice_core.train.recipes import RECIPES, TINY, recipe_named
from dice_core.train.sft import TrainResult, learning_rate, train
from tests.train.conftest import PAIRS, recipe


class Interrupted(Exception):
    pass


def stop_at(step: int):  # type: ignore[no-untyped-def]
    def callback(metrics: StepMetrics) -> None:
        if metrics.step == step:
            raise Interrupted

    return callback


def numbers(result: TrainResult) -> list[tuple[int, float, float, float]]:
    """What must be equal bit for bit; times may differ."""
    return [(m.step, m.loss, m.lr, m.grad_norm) for m in result.history]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    torch.set_num_threads(1)
    return train(recipe(), PAIRS, tmp_path_factory.mktemp("undisturbed"))


def test_a_run_reports_and_leaves_a_model(undisturbed: TrainResult) -> None:
    assert [m.step for m in undisturbed.history] == list(range(1, 9))
    assert undisturbed.documents == len(PAIRS)
    assert undisturbed.dropped == ()
    assert undisturbed.resumed_from == 0
    assert all(m.tokens_per_s > 0 and m.step_s > 0 for m in undisturbed.history)
    model = backbone.load(undisturbed.model_folder)
    assert sum(p.numel() for p in model.parameters()) == undisturbed.parameters
    assert load_tokenizer(undisturbed.model_folder).vocab_size == undisturbed.vocab_size
    training = json.loads((undisturbed.model_folder / "training.json").read_text())
    assert training["recipe"]["learning_rate"] == str(recipe().learning_rate)


def test_same_seed_same_weights_whatever_the_order(undisturbed: TrainResult, tmp_path: Path) -> None:
    again = train(recipe(), list(reversed(PAIRS)), tmp_path / "again")
    assert numbers(again) == numbers(undisturbed)
    assert again.weights_sha256 == undisturbed.weights_sha256
    other = train(recipe(seed=1), PAIRS, tmp_path / "other")
    assert other.weights_sha256 != undisturbed.weights_sha256


@pytest.mark.parametrize("step", [2, 3, 5, 7])
def test_resuming_is_bit_for_bit(undisturbed: TrainResult, tmp_path: Path, step: int) -> None:
    with pytest.raises(Interrupted):
        train(recipe(), PAIRS, tmp_path, stop_at(step))
    torch.manual_seed(99)  # whatever the process did in between
    seen: list[int] = []
    result = train(recipe(), PAIRS, tmp_path, lambda m: seen.append(m.step))
    assert result.resumed_from == step // 3 * 3
    assert seen == list(range(result.resumed_from + 1, 9))
    assert numbers(result) == numbers(undisturbed)
    assert result.weights_sha256 == undisturbed.weights_sha256


@pytest.mark.gpu
def test_resuming_on_cuda_is_bit_for_bit(tmp_path: Path) -> None:
    whole = train(recipe(), PAIRS, tmp_path / "whole", device="cuda")
    with pytest.raises(Interrupted):
        train(recipe(), PAIRS, tmp_path / "cut", stop_at(5), device="cuda")
    resumed = train(recipe(), PAIRS, tmp_path / "cut", device="cuda")
    assert resumed.resumed_from == 3
    assert numbers(resumed) == numbers(whole)
    assert resumed.weights_sha256 == whole.weights_sha256


def test_kill_9_loses_at_most_the_steps_since_the_checkpoint(undisturbed: TrainResult, tmp_path: Path) -> None:
    program = f"""
import time, torch
torch.set_num_threads(1)
from pathlib import Path
from dice_core.train.sft import train
from tests.train.conftest import PAIRS, recipe
def on_step(metrics):
    print(metrics.step, flush=True)
    time.sleep(0.2)
train(recipe(), PAIRS, Path({str(tmp_path)!r}), on_step)
"""
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "4":
            time.sleep(0.05)
            os.kill(process.pid, signal.SIGKILL)
            break
    process.wait()
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    result = train(recipe(), PAIRS, tmp_path)
    assert result.resumed_from >= 3
    assert numbers(result) == numbers(undisturbed)
    assert result.weights_sha256 == undisturbed.weights_sha256


def test_half_written_checkpoints_are_cleared_and_ignored(undisturbed: TrainResult, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(recipe(), PAIRS, tmp_path, stop_at(5))
    leftover = tmp_path / "checkpoints" / ".step_000006.123.tmp"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    assert train(recipe(), PAIRS, tmp_path).weights_sha256 == undisturbed.weights_sha256
    assert not leftover.exists()


def test_old_checkpoints_are_removed(tmp_path: Path) -> None:
    train(recipe(checkpoint_every=1), PAIRS, tmp_path)
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["step_000006", "step_000007"]


def test_a_finished_run_is_returned_without_work(undisturbed: TrainResult) -> None:
    out_dir = undisturbed.model_folder.parent
    again = train(recipe(), PAIRS, out_dir, stop_at(1))
    assert again == undisturbed


@pytest.mark.parametrize("finished", [False, True])
def test_another_recipe_or_other_documents_are_refused(tmp_path: Path, finished: bool) -> None:
    with pytest.raises(Interrupted):
        train(recipe(), PAIRS, tmp_path, stop_at(4))
    if finished:
        train(recipe(), PAIRS, tmp_path)
    with pytest.raises(ResumeError, match="other recipe"):
        train(recipe(learning_rate=0.1), PAIRS, tmp_path)
    with pytest.raises(ResumeError, match="other documents"):
        train(recipe(), PAIRS[1:], tmp_path)
    assert train(recipe(name="renamed"), PAIRS, tmp_path).documents == len(PAIRS)


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        train(recipe(), PAIRS, tmp_path, stop_at(4))
    (tmp_path / "checkpoints" / "step_000003" / "state.json").write_text("{}")
    with pytest.raises(SourceError, match=r"step_000003/state\.json"):
        train(recipe(), PAIRS, tmp_path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with file_lock(tmp_path / ".lock"), pytest.raises(BusyError):
        train(recipe(), PAIRS, tmp_path)


def test_an_exploding_loss_is_an_error_and_leaves_no_model(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="step 20: mean loss"):
        train(recipe(learning_rate=10.0, warmup_steps=0, clip_norm=1e9, steps=30), PAIRS, tmp_path)
    assert not (tmp_path / "model").exists()


def test_a_loss_that_is_not_finite_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight turned into NaN between two steps is caught in the next one, before it is checkpointed."""
    runs: list[sft._Run] = []
    build = sft._Run.__init__

    def remember(self: sft._Run, *args: object) -> None:
        build(self, *args)  # type: ignore[arg-type]
        runs.append(self)

    def poison(metrics: StepMetrics) -> None:
        if metrics.step == 4:
            runs[0].model.lm_head.weight.data[5, 0] = float("nan")

    monkeypatch.setattr(sft._Run, "__init__", remember)
    with pytest.raises(DivergedError, match="step 5: loss nan"):
        train(recipe(), PAIRS, tmp_path, poison)
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["step_000003"]
    assert not (tmp_path / "model").exists()


def test_documents_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no documents"):
        train(recipe(), [], tmp_path)
    with pytest.raises(ContractError, match="'doc0' occurs more than once"):
        train(recipe(), [PAIRS[0], PAIRS[0]], tmp_path)
    with pytest.raises(ContractError, match="none of 8 documents fits"):
        train(recipe(row_budget=32), PAIRS, tmp_path)


def test_dropped_documents_are_in_the_result(tmp_path: Path) -> None:
    long = TextPair("long", "write", "x = 1\n" * 300)
    result = train(recipe(steps=1, warmup_steps=1), [*PAIRS, long], tmp_path)
    assert [d.document_id for d in result.dropped] == ["long"]
    assert result.documents == len(PAIRS)
    assert train(recipe(steps=1, warmup_steps=1), [*PAIRS, long], tmp_path).dropped == result.dropped


def test_learning_rate_schedules() -> None:
    cosine = recipe(steps=100, warmup_steps=10, learning_rate=1.0)
    assert [round(learning_rate(cosine, s), 3) for s in (0, 4, 9, 10, 55)] == [0.1, 0.5, 1.0, 1.0, 0.55]
    assert learning_rate(cosine, 99) == pytest.approx(0.1, abs=1e-3)
    constant = replace(cosine, schedule="constant")
    assert [learning_rate(constant, s) for s in (9, 50, 99)] == [1.0, 1.0, 1.0]


def test_recipes_have_names() -> None:
    assert recipe_named("tiny") is TINY
    assert all(found.name == name for name, found in RECIPES.items())
    with pytest.raises(UsageError, match="'huge'; known: smoke, tiny"):
        recipe_named("huge")
    assert replace(TINY, name="other").digest == TINY.digest
    assert replace(TINY, seed=1).digest != TINY.digest


def test_four_documents_are_learnt_by_heart_and_decoded_back(tmp_path: Path) -> None:
    """12: overfit, then greedy decoding reproduces every response, with and without dynamic remasking."""
    pairs = PAIRS[:4]
    result = train(
        recipe(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            pack_rows=512,
            sequences_per_step=1,
            steps=250,
            warmup_steps=10,
            learning_rate=1e-2,
            checkpoint_every=1000,
        ),
        pairs,
        tmp_path,
    )
    assert sum(m.loss for m in result.history[-10:]) / 10 < 0.05
    model, tokenizer = backbone.load(result.model_folder), load_tokenizer(result.model_folder)
    for remasking in ("static", "dynamic"):
        config = DecodingConfig(80, tokenizer.stop_ids, remasking=remasking)  # type: ignore[arg-type]
        answers = generate(model, tokenizer, [pair.prompt for pair in pairs], config)
        assert [answer.text for answer in answers] == [pair.response for pair in pairs]
        assert all(answer.decoded.stopped for answer in answers)
