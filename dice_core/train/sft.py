"""Supervised fine-tuning with the block-diffusion objective.

The loss is that of SDAR (arXiv:2510.06303), which DICE uses: weighted cross-entropy of the masked response tokens,
summed and divided by all supervised tokens of the optimiser step. Noise is seeded per document, so the same recipe
and documents give the same weights whatever order the documents come in.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3ForCausalLM

from dice_core.errors import ContractError, DivergedError, UsageError
from dice_core.files import file_lock, sha256_bytes, sha256_file, write_atomic
from dice_core.model import backbone
from dice_core.model.attention import tiles
from dice_core.model.noise import draw_noise, noise_rng
from dice_core.model.tokenizer import CodeTokenizer, train_tokenizer
from dice_core.records import canonical_json
from dice_core.train.checkpoint import (
    RunIdentity,
    check_identity,
    checkpoints,
    discard_leftovers,
    load_checkpoint,
    save_checkpoint,
)
from dice_core.train.loss import weighted_cross_entropy
from dice_core.train.metrics import StepMetrics
from dice_core.train.packing import (
    Document,
    DroppedDocument,
    PackedRows,
    TextPair,
    document_rows,
    encode_pair,
    lay_out,
    pack,
    split_by_budget,
)
from dice_core.train.recipes import Recipe

MODEL_FOLDER = "model"
CHECKPOINT_FOLDER = "checkpoints"
RESULT_FILE = "result.json"
TRAINING_FILE = "training.json"

#: A run has diverged when the mean loss of this many steps exceeds `EXPLODED` times that of a uniform guess.
WINDOW = 20
EXPLODED = 2.0

OnStep = Callable[[StepMetrics], None]


@dataclass(frozen=True)
class TrainResult:
    """A finished run.

    Attributes:
        model_folder: config.json, model.safetensors, tokenizer.json and training.json.
        weights_sha256: of model.safetensors.
        history: metrics of every step.
        documents: how many documents were trained on.
        dropped: documents that did not fit the row budget, with their sizes.
        sequences: packed sequences of an epoch.
        epochs: passes over the documents, counted in sequences.
        parameters: number of weights.
        vocab_size: ids of the tokenizer.
        wall_s: wall time of the process that finished the run.
        resumed_from: step of the checkpoint it continued from, 0 for none.
    """

    model_folder: Path
    weights_sha256: str
    history: tuple[StepMetrics, ...]
    documents: int
    dropped: tuple[DroppedDocument, ...]
    sequences: int
    epochs: float
    parameters: int
    vocab_size: int
    wall_s: float
    resumed_from: int


def train(
    recipe: Recipe,
    documents: Sequence[TextPair],
    out_dir: Path,
    on_step: OnStep | None = None,
    device: str = "cpu",
) -> TrainResult:
    """Train a new model on `documents` and write it to `out_dir/model`.

    Calling it again on the same folder continues after the newest checkpoint, bit for bit on the same device and
    number of threads; on a finished folder it returns the stored result without work.

    Args:
        recipe: what to do.
        documents: prompts and responses; their order does not matter.
        out_dir: folder of the run, used by one process at a time.
        on_step: called after every optimiser step of this process.
        device: `cpu` or `cuda`.

    Raises:
        ContractError: no documents, a repeated id, or none fits the row budget.
        ResumeError: `out_dir` belongs to another recipe or other documents.
        DivergedError: the loss or gradient is no longer finite, or the loss exploded.
        BusyError: another process trains in `out_dir`.
    """
    started = time.monotonic()
    pairs = _checked(documents)
    identity = RunIdentity(recipe=recipe.digest, documents=_documents_digest(pairs))
    with file_lock(out_dir / ".lock", wait=False, what=f"training in {out_dir}"):
        finished = _finished(out_dir, identity)
        if finished is not None:
            return finished
        tokenizer = train_tokenizer([text for p in pairs for text in (p.prompt, p.response)], recipe.vocab_size)
        run = _Run(recipe, pairs, tokenizer, device)
        resumed_from = run.resume(out_dir / CHECKPOINT_FOLDER, identity)
        run.steps(out_dir / CHECKPOINT_FOLDER, identity, on_step)
        return _finish(run, out_dir, identity, resumed_from, started)


def sequence_loss(model: Qwen3ForCausalLM, rows: PackedRows, device: torch.device | str = "cpu") -> torch.Tensor:
    """Sum of weighted cross-entropy over the masked rows of one packed sequence (not yet divided).

    Returns:
        Float64 scalar.
    """
    chosen = torch.nonzero(rows.weights > 0)[:, 0]
    block_size = backbone.architecture_of(model).block_size
    hidden = backbone.hidden_states(
        model,
        rows.tokens[None].to(device),
        rows.ids.pos[None].to(device),
        block_tiles=tiles(rows.ids.to(torch.device(device)), block_size, model.dtype),
    )
    return weighted_cross_entropy(
        hidden[0].index_select(0, chosen.to(device)),
        model.lm_head.weight,
        rows.targets[chosen].to(device),
        rows.weights[chosen].to(device),
    )


def learning_rate(recipe: Recipe, step: int) -> float:
    """Learning rate of optimiser step `step` (0 for the first): linear warm-up, then constant or cosine."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    if recipe.schedule == "constant":
        return recipe.learning_rate
    progress = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return recipe.learning_rate * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress))))


class _Run:
    """State of a run in this process."""

    def __init__(self, recipe: Recipe, pairs: Sequence[TextPair], tokenizer: CodeTokenizer, device: str) -> None:
        self.recipe, self.tokenizer, self.device = recipe, tokenizer, device
        encoded = [encode_pair(pair, tokenizer, recipe.block_size) for pair in pairs]
        self.kept, self.dropped = split_by_budget(encoded, recipe.block_size, recipe.copies, recipe.row_budget)
        if not self.kept:
            smallest = min(d.rows for d in self.dropped)
            raise ContractError(
                f"none of {len(encoded)} documents fits the budget of {recipe.row_budget} rows; "
                f"the smallest needs {smallest}"
            )
        sizes = [document_rows(d, recipe.block_size, recipe.copies) for d in self.kept]
        self.packs = pack(sizes, recipe.pack_rows)
        self.model = backbone.build(_architecture(recipe, tokenizer), recipe.seed, device)
        self.model.train()
        self.optimizer = _optimizer(self.model, recipe)
        self.history: list[StepMetrics] = []

    def resume(self, folder: Path, identity: RunIdentity) -> int:
        """Continue after the newest checkpoint, if there is one; returns its step, 0 for none."""
        discard_leftovers(folder)
        found = checkpoints(folder)
        if not found:
            return 0
        self.history = load_checkpoint(found[-1], self.model, self.optimizer, identity)
        return self.history[-1].step

    def steps(self, folder: Path, identity: RunIdentity, on_step: OnStep | None) -> None:
        """Do the remaining optimiser steps, with a checkpoint every so many and none after the last."""
        recipe = self.recipe
        for step in range(len(self.history), recipe.steps):
            metrics = self._step(step)
            self.history.append(metrics)
            self._guard()
            if metrics.step % recipe.checkpoint_every == 0 and metrics.step < recipe.steps:
                save_checkpoint(folder, self.model, self.optimizer, self.history, identity)
            if on_step is not None:
                on_step(metrics)

    def _step(self, step: int) -> StepMetrics:
        recipe, begun = self.recipe, time.monotonic()
        sequences = [self._rows(step * recipe.sequences_per_step + i) for i in range(recipe.sequences_per_step)]
        divisor = sum(rows.supervised for rows in sequences)
        rate = learning_rate(recipe, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for rows in sequences:
            part = sequence_loss(self.model, rows, self.device) / divisor
            part.backward()  # type: ignore[no-untyped-call]
            loss += part.item()
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise DivergedError(f"step {step + 1}: loss {loss}, gradient norm {norm}; lower the learning rate")
        self.optimizer.step()
        seconds = time.monotonic() - begun
        tokens = sum(rows.clean_tokens for rows in sequences)
        return StepMetrics(step + 1, loss, rate, norm, tokens / seconds, seconds)

    def _guard(self) -> None:
        recent = [metrics.loss for metrics in self.history[-WINDOW:]]
        mean, uniform = sum(recent) / len(recent), math.log(self.model.config.vocab_size)
        if len(recent) == WINDOW and mean > EXPLODED * uniform:
            raise DivergedError(
                f"step {self.history[-1].step}: mean loss of {WINDOW} steps is {mean:.2f}, "
                f"a uniform guess has {uniform:.2f}; lower the learning rate"
            )

    def _rows(self, number: int) -> PackedRows:
        """Packed sequence `number` of the endless stream of epochs, each in its own shuffled order."""
        recipe = self.recipe
        epoch, place = divmod(number, len(self.packs))
        order = np.argsort(noise_rng(recipe.seed, epoch, "order of sequences", 0).random(len(self.packs)))
        chosen: list[Document] = [self.kept[i] for i in self.packs[int(order[place])]]
        noises = [
            [
                draw_noise(
                    document.maskable,
                    recipe.block_size,
                    recipe.sampler,
                    noise_rng(recipe.seed, epoch, document.document_id, copy),
                )
                for copy in range(1, recipe.copies + 1)
            ]
            for document in chosen
        ]
        return lay_out(
            chosen,
            noises,
            block_size=recipe.block_size,
            mask_id=self.tokenizer.mask_id,
            pad_id=self.tokenizer.end_of_text_id,
            row_multiple=recipe.row_multiple,
        )


def _architecture(recipe: Recipe, tokenizer: CodeTokenizer) -> backbone.Architecture:
    return backbone.Architecture(
        vocab_size=tokenizer.vocab_size,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.intermediate_size,
        num_hidden_layers=recipe.num_hidden_layers,
        num_attention_heads=recipe.num_attention_heads,
        num_key_value_heads=recipe.num_key_value_heads,
        head_dim=recipe.head_dim,
        rope_theta=recipe.rope_theta,
        initializer_range=recipe.initializer_range,
        block_size=recipe.block_size,
        mask_token_id=tokenizer.mask_id,
        eos_token_id=tokenizer.im_end_id,
        pad_token_id=tokenizer.end_of_text_id,
    )


def _optimizer(model: Qwen3ForCausalLM, recipe: Recipe) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, recipe.beta2),
    )


def _checked(documents: Sequence[TextPair]) -> list[TextPair]:
    pairs = sorted(documents, key=lambda pair: pair.document_id)
    if not pairs:
        raise ContractError("no documents to train on")
    for before, after in itertools.pairwise(pairs):
        if before.document_id == after.document_id:
            raise ContractError(f"document id {after.document_id!r} occurs more than once")
    return pairs


def _documents_digest(pairs: Sequence[TextPair]) -> str:
    return sha256_bytes(canonical_json([[p.document_id, p.prompt, p.response] for p in pairs]))


def _finish(run: _Run, out_dir: Path, identity: RunIdentity, resumed_from: int, started: float) -> TrainResult:
    """Write the model, then the result: a folder with a result holds a whole model."""
    folder = out_dir / MODEL_FOLDER
    backbone.save(run.model, folder)
    run.tokenizer.save(folder)
    training = {"recipe": run.recipe.as_params(), "identity": asdict(identity)}
    write_atomic(folder / TRAINING_FILE, json.dumps(training, indent=2, sort_keys=True) + "\n")
    recipe = run.recipe
    result = TrainResult(
        model_folder=folder,
        weights_sha256=sha256_file(folder / backbone.WEIGHTS_FILE),
        history=tuple(run.history),
        documents=len(run.kept),
        dropped=tuple(run.dropped),
        sequences=len(run.packs),
        epochs=recipe.steps * recipe.sequences_per_step / len(run.packs),
        parameters=sum(p.numel() for p in run.model.parameters()),
        vocab_size=run.tokenizer.vocab_size,
        wall_s=time.monotonic() - started,
        resumed_from=resumed_from,
    )
    stored = asdict(replace(result, model_folder=Path(MODEL_FOLDER)))
    stored["model_folder"] = MODEL_FOLDER
    write_atomic(out_dir / RESULT_FILE, json.dumps({"identity": asdict(identity), "result": stored}))
    return result


def _finished(out_dir: Path, identity: RunIdentity) -> TrainResult | None:
    """The stored result of a finished folder, or None."""
    path = out_dir / RESULT_FILE
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_bytes())
        found, stored = RunIdentity(**document["identity"]), document["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not the result of a training run: {error!r}") from None
    check_identity(found, identity, where=str(path))
    stored["model_folder"] = out_dir / MODEL_FOLDER
    stored["history"] = tuple(StepMetrics(**metrics) for metrics in stored["history"])
    stored["dropped"] = tuple(DroppedDocument(**dropped) for dropped in stored["dropped"])
    return TrainResult(**stored)
