"""Let a registered model write kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.bench.evaluation import Evaluation, from_candidates
from dice_core.bench.kernelbench import kernel_file_name, read_kernel_folder
from dice_core.curation.structures import StructureTask
from dice_core.errors import PartialError, UsageError
from dice_core.files import sha256_bytes, write_atomic
from dice_core.model.backbone import load
from dice_core.model.decoding import DecodingConfig, generate
from dice_core.model.prompts import PromptForm, extract_kernel, generation_prompt
from dice_core.model.tokenizer import load_tokenizer
from dice_core.records import Problem
from dice_core.settings import Settings
from dice_core.tracking import ModelVersion, Tracker
from dice_core.train.sft import TRAINING_FILE
from tasks.context import Run
from tasks.register import model_version_id

#: Longest answer in an evaluation, in tokens; ours of the bundled rows stay below.
MAX_NEW_TOKENS = 1024
_BATCH = 8


@task(cache_policy=NO_CACHE)
def evaluation_of_model(run: Run, model: str, problems: Sequence[Problem], name: str = "") -> Evaluation:
    """Let a model answer every problem once, and make an evaluation of its kernels.

    Answers are kept in the run folder as they come, so a killed run goes on with the next problem.
    """
    registered = Tracker(run.settings.home).resolve(model)
    config = _decoding(registered, run.settings.seed, MAX_NEW_TOKENS)
    digest = sha256_bytes(registered.weights_sha256 + repr(config) + "".join(p.problem_id for p in problems))[:8]
    name = name or f"{registered.name}-v{registered.version}-{digest}"
    folder = run.settings.runs_dir / name
    reasons = _write_answers(run, registered, problems, config, folder)
    candidates = read_kernel_folder(folder) if len(reasons) < len(problems) else []
    return from_candidates(name, problems, candidates, plan=run.settings.plan, device=run.device,
                           kernel_source=f"model {registered.name} version {registered.version}",
                           model_version_id=model_version_id(registered), reasons=reasons)


def write_kernel(settings: Settings, model: str, pytorch_code: str, max_new_tokens: int, *, raw: bool) -> str:
    """One answer of a model.

    Raises:
        PartialError: the answer holds no kernel (and `raw` is off).
    """
    registered = Tracker(settings.home).resolve(model)
    config = _decoding(registered, settings.seed, max_new_tokens)
    [text] = _answers(registered, [pytorch_code], config, "cpu")
    if raw:
        return text
    kernel = extract_kernel(text)
    if kernel is None:
        raise PartialError(f"{model} gave no `class ModelNew` in {len(text)} characters; --raw shows its answer")
    return kernel


class ModelGenerator:
    """A registered model as the writer of kernels for structures. The model is loaded with the first task."""

    def __init__(self, settings: Settings, device: str) -> None:
        self._registered = Tracker(settings.home).resolve(settings.generator)
        self._config = _decoding(self._registered, settings.seed, MAX_NEW_TOKENS)
        self._device = device
        self.name = f"{self._registered.name} version {self._registered.version}"

    def generate(self, task: StructureTask) -> str | None:
        """The kernel in the model's answer, or None when there is none in it."""
        [text] = _answers(self._registered, [task.pytorch_code], self._config, self._device)
        return extract_kernel(text)

    @staticmethod
    def identity(settings: Settings) -> dict[str, str]:
        """What the answers depend on."""
        registered = Tracker(settings.home).resolve(settings.generator)
        decoding = _decoding(registered, settings.seed, MAX_NEW_TOKENS)
        return {"weights": registered.weights_sha256, "decoding": repr(decoding)}


def _write_answers(
    run: Run, registered: ModelVersion, problems: Sequence[Problem], config: DecodingConfig, folder: Path
) -> dict[tuple[int, int], str]:
    """Write each problem's kernel file, and beside it the whole answer; says why a problem has no kernel.

    Raises:
        UsageError: the folder holds the answers of another model or of another way of decoding.
    """
    origin = json.dumps({"model": registered.name, "version": registered.version,
                         "weights_sha256": registered.weights_sha256, "decoding": repr(config)}, indent=1)
    made_by = folder / "generation_config.json"
    if made_by.is_file() and made_by.read_text(encoding="utf-8") != origin:
        raise UsageError(f"{folder}: holds answers of another model or decoding; choose another --name")
    write_atomic(made_by, origin)
    reasons: dict[tuple[int, int], str] = {}
    todo = [p for p in problems if not _answer_path(folder, p).is_file()]
    for start in range(0, len(todo), _BATCH):
        run.progress("generate", start, len(todo))
        batch = todo[start : start + _BATCH]
        for problem, text in zip(batch, _answers(registered, [p.source for p in batch], config, run.device),
                                 strict=True):
            kernel = extract_kernel(text)
            if kernel is not None:
                write_atomic(folder / kernel_file_name(problem.level, problem.number, 0), kernel)
            # The answer comes last: where it exists, its problem is done.
            write_atomic(_answer_path(folder, problem), text)
    for problem in problems:
        if not (folder / kernel_file_name(problem.level, problem.number, 0)).is_file():
            size = _answer_path(folder, problem).stat().st_size
            reasons[problem.level, problem.number] = f"no ModelNew in the answer ({size} bytes)"
    kept = "" if todo else " (kept from before)"
    run.progress("generate", 1, 1, f"{len(problems) - len(reasons)} of {len(problems)} answers hold a kernel{kept}")
    return reasons


def _answers(registered: ModelVersion, sources: Sequence[str], config: DecodingConfig, device: str) -> list[str]:
    model = _loaded(registered.folder, device)
    tokenizer = load_tokenizer(registered.folder)
    training = json.loads((registered.folder / TRAINING_FILE).read_text(encoding="utf-8"))
    form: PromptForm = training["recipe"]["prompt_form"]
    found = generate(model, tokenizer, [generation_prompt(source, form) for source in sources], config)
    return [one.text for one in found]


@lru_cache(maxsize=1)
def _loaded(folder: Path, device: str) -> Any:
    """The last model asked stays loaded, since it is asked problem by problem."""
    return load(folder, device=device)


def _decoding(registered: ModelVersion, seed: int, max_new_tokens: int) -> DecodingConfig:
    return DecodingConfig(max_new_tokens=max_new_tokens, remasking="dynamic", seed=seed,
                          stop_ids=load_tokenizer(registered.folder).stop_ids)


def _answer_path(folder: Path, problem: Problem) -> Path:
    return folder / f"level_{problem.level}_problem_{problem.number}_sample_0_answer.txt"
