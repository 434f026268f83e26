"""From a command's arguments to a flow call: names become objects here, before anything is started."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.bench.evaluation import Evaluation, from_candidates, from_pairs
from dice_core.bench.kernelbench import read_kernel_folder
from dice_core.bench.problems import load_suite, parse_sizes, select, with_sizes
from dice_core.curation.mixture import read_mixture
from dice_core.curation.requests import SourceRequest
from dice_core.environment import resolve_device
from dice_core.errors import SourceError, UsageError
from dice_core.lake.catalog import Lake
from dice_core.records import Problem
from dice_core.settings import Settings
from flows.console import ConsoleProgress, say
from flows.held import Held
from flows.outcome import Outcome
from flows.server import prefect_server
from tasks.context import DATASETS, Run, open_run

SAMPLE_TASKS = DATASETS / "samples" / "tasks.jsonl"
SAMPLE_SUITE = "dice-samples"


def sample_sources(device: str) -> list[Path]:
    """The bundled rows whose kernels run on `device`."""
    return [DATASETS / "samples" / f"concur_{device}.jsonl"]


def load_problems(suite: Path | None, chosen: str, sizes: Sequence[str]) -> list[Problem]:
    """Problems of a suite (the bundled one when none is named), selected, with size overrides applied.

    Raises:
        UsageError: an override names a problem that is not selected.
    """
    problems = load_suite(suite) if suite else load_suite(SAMPLE_TASKS, SAMPLE_SUITE)
    if chosen:
        problems = select(problems, chosen)
    wanted = parse_sizes(list(sizes))
    present = {(p.level, p.number) for p in problems}
    for level, number in wanted:
        if (level, number) not in present:
            raise UsageError(f"--size {level}/{number}: this problem is not among the selected ones")
    return [with_sizes(p, wanted[p.level, p.number]) if (p.level, p.number) in wanted else p for p in problems]


@contextlib.contextmanager
def watched(settings: Settings) -> Iterator[Run]:
    """A run with a Prefect server, whose progress is shown on the console. Flows are imported inside only."""
    with (
        ConsoleProgress() as progress,
        open_run(settings, progress) as run,
        prefect_server(settings.home, progress),
    ):
        say(f"{run.run_id} on {run.device}, isolation {run.environment.identity['isolation']}, "
            f"home {settings.home}")
        yield run


def run_curate(
    settings: Settings, sources: Sequence[SourceRequest], suite: Path | None, mixture: Path | None = None, *,
    augment: bool, dry_run: bool, accept_columns: bool = False, update: bool = False,
) -> Outcome:
    """`dice run curate`."""
    _must_exist([suite] if suite else [])
    if mixture is not None:
        read_mixture(mixture)  # a bad recipe is told before anything is started
    if dry_run:
        return Outcome("curate (dry run)", True, {"sources": [str(one) for one in sources],
                                                  "evidence": settings.evidence,
                                                  "threshold": settings.speedup_threshold, "augment": augment})
    with watched(settings) as run:
        from flows.curate import curate

        return curate(run, sources, suite, mixture, augment=augment, accept_columns=accept_columns, update=update)


def run_train(settings: Settings, dataset: str, recipe: str, *, dry_run: bool) -> Outcome:
    """`dice run train`."""
    from dice_core.train.recipes import recipe_named

    facts = {"dataset": dataset, **recipe_named(recipe).as_params()}
    if dry_run:
        return Outcome("train (dry run)", True, facts)
    with watched(settings) as run:
        from flows.train import train

        return train(run, dataset, recipe)


def run_evaluate(
    settings: Settings, kernels: Path | None, model: str | None, name: str, suite: Path | None, chosen: str,
    sizes: Sequence[str], *, dry_run: bool,
) -> Outcome:
    """`dice run evaluate`."""
    if (kernels is None) == (model is None):
        raise UsageError("say what to evaluate: either --kernels FOLDER or --model NAME@ALIAS")
    problems = load_problems(suite, chosen, sizes)
    evaluation: Evaluation | None = None
    if kernels is not None:
        evaluation = folder_evaluation(kernels, problems, name or kernels.resolve().name, settings.plan,
                                       resolve_device(settings.device), only_selected=bool(chosen))
    elif not dry_run:
        from dice_core.tracking import Tracker

        assert model is not None
        Tracker(settings.home).resolve(model)  # an unknown model is told before anything is started
    if dry_run:
        return Outcome("evaluate (dry run)", True, {"problems": len(problems), "kernels": str(kernels or model)})
    with watched(settings) as run:
        from flows.evaluate import evaluate
        from tasks.generate import evaluation_of_model

        if evaluation is None:
            assert model is not None
            evaluation = evaluation_of_model.fn(run, model, problems, name)
        return evaluate(run, Held(evaluation), settings.runs_dir / evaluation.name)


def run_nightly(
    settings: Settings, sources: Sequence[SourceRequest], recipe: str, suite: Path | None, *, dry_run: bool,
    bundled_kernels: bool = False, accept_columns: bool = False,
) -> Outcome:
    """`dice run nightly`; without sources it works on the bundled samples."""
    device = resolve_device(settings.device)
    if not sources:
        say("no sources named: working on the bundled samples")
    sources = list(sources) or [SourceRequest(path) for path in sample_sources(device)]
    problems = load_problems(suite, "", ())
    if dry_run:
        return Outcome("nightly (dry run)", True, {"sources": [str(one) for one in sources], "recipe": recipe,
                                                   "problems": len(problems)})
    with watched(settings) as run:
        from flows.nightly import nightly

        others = [bundled_evaluation(settings, run.device)] if bundled_kernels else []
        return nightly(run, sources, recipe, Held(problems), Held(others), accept_columns=accept_columns)


def bundled_evaluation(settings: Settings, device: str) -> Evaluation:
    """The evaluation of the kernels that ship with the bundled tasks."""
    from dice_core.curation.task_samples import write_kernel_folder

    folder = settings.runs_dir / f"bundled-kernels-{device}"
    write_kernel_folder(folder, device)
    return folder_evaluation(folder, load_problems(None, "", ()), folder.name, settings.plan, device)


def folder_evaluation(
    folder: Path, problems: Sequence[Problem], name: str, plan: str, device: str, *, only_selected: bool = False
) -> Evaluation:
    """The evaluation of a KernelBench run folder.

    Args:
        folder: kernels in KernelBench's naming.
        problems: the denominator.
        name: of the evaluation.
        plan: timing plan.
        device: `cpu` or `cuda`.
        only_selected: leave out kernels of problems that are not in `problems` instead of refusing them.

    Raises:
        UsageError: no kernel is for one of the problems.
    """
    candidates = read_kernel_folder(folder)
    if only_selected:
        present = {(p.level, p.number) for p in problems}
        candidates = [one for one in candidates if (one.level, one.number) in present]
        if not candidates:
            raise UsageError(f"{folder}: no kernel for any of the selected problems")
    return from_candidates(name, problems, candidates, plan=plan, device=device, kernel_source=f"folder {folder.name}")


def export_bundle(
    settings: Settings, folder: Path, kernels: Path | None, pairs: Path | None, reference_field: str, kernel_field: str,
    name: str, suite: Path | None, chosen: str, sizes: Sequence[str], device: str, claims: Path | None = None,
    choose: int = 0, repeat: int = 0,
) -> Path:
    """`dice bundle export`."""
    from dice_core.arena import bundle
    from dice_core.bench.claims import choose as choose_claims
    from dice_core.bench.claims import from_claims

    if sum(one is not None for one in (kernels, pairs, claims)) != 1:
        raise UsageError("say what to measure: one of --kernels FOLDER, --pairs FILE, --claims FILE")
    if claims is not None:
        rows: Sequence[Any] = read_rows(claims)
        rows = choose_claims(rows, choose, settings.seed) if choose else rows
        evaluation = from_claims(name or claims.stem, load_problems(suite, chosen, sizes), rows, plan=settings.plan,
                                 device=device, source=claims.name)
    elif pairs is not None:
        rows = read_rows(pairs)
        rows = [rows[number * len(rows) // choose] for number in range(min(choose, len(rows)))] if choose else rows
        evaluation = from_pairs(name or pairs.stem, rows, reference_field=reference_field,
                                kernel_field=kernel_field, plan=settings.plan, device=device, source=pairs.name)
    else:
        assert kernels is not None
        evaluation = folder_evaluation(kernels, load_problems(suite, chosen, sizes), name or kernels.resolve().name,
                                       settings.plan, device, only_selected=bool(chosen))
    written = bundle.export_bundle(replace(evaluation, ordinal=repeat), folder)
    say(f"{len(evaluation.items())} kernels for {device}. Copy the folder to the machine that measures, run "
        f"`python3 run.py` in it, copy it back, then `dice bundle import {folder}`")
    return written


def import_bundle(settings: Settings, folder: Path, *, finished_only: bool = False) -> Outcome:
    """`dice bundle import`."""
    from dice_core.arena.bundle import collect_results
    from dice_core.lake.attempts import settle, write_attempt
    from dice_core.lake.publish import publish
    from dice_core.records import make_id

    opened, files = collect_results(folder)
    run_id = make_id("run", {"bundle": sorted(one.sha256 for one in files)})
    for one in files:
        write_attempt(settings.attempts_dir, one)
    attempts = {one.attempt.attempt_id: one.attempt for one in files}
    with Lake.open(settings.home) as lake:
        report = publish(lake, settings.attempts_dir, run_id=run_id)
        evaluations = []
        for environment_id in sorted({one.attempt.environment_id for one in files}):
            evaluation = opened.evaluation
            here = settle(evaluation.items(), environment_id, attempts.values())
            if finished_only:
                evaluation = evaluation.finished_part(environment_id, here)
            tables = evaluation.tables(environment_id, run_id, here)
            lake.commit(tables, message=f"bundle {evaluation.name}", run_id=run_id)
            evaluations.append(evaluation.evaluation_id(environment_id))
    failed = sum(one.verdict.is_infra for one in attempts.values())
    facts = {"evaluations": evaluations, "attempts": len(attempts), "new": report.published,
             "rejected": report.rejected}
    return Outcome("bundle import", bool(report.published), facts, imperfect=failed + report.rejected)


def generate_one(settings: Settings, source: Path, model: str, max_new_tokens: int, *, raw: bool) -> str:
    """`dice generate`."""
    from tasks.generate import write_kernel

    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: cannot be read as text: {error}") from error
    return write_kernel(settings, model, text, max_new_tokens, raw=raw)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a Parquet, JSON or JSONL file, as they are.

    Raises:
        UsageError: there is no such file.
        SourceError: it cannot be read; names the line.
    """
    _must_exist([path])
    data = path.read_bytes()
    try:
        if data[:4] == b"PAR1":
            rows: list[dict[str, Any]] = pq.ParquetFile(path).read(use_threads=False).to_pylist()
            return rows
        if data.lstrip()[:1] == b"[":
            found = json.loads(data)
            return list(found)
        return [json.loads(line) for line in data.splitlines() if line.strip()]
    except (pa.ArrowException, ValueError) as error:
        raise SourceError(f"{path}: not readable as Parquet, JSON or JSONL: {error}") from error


def list_models(settings: Settings) -> list[dict[str, Any]]:
    """`dice models ls`."""
    from dice_core.tracking import Tracker

    return [
        {"model": f"{model.name}/{model.version}", "aliases": ", ".join(model.aliases), "verified": model.verified,
         "dataset_version": model.dataset_version_id, "created_at": model.created_at, "folder": str(model.folder)}
        for model in reversed(Tracker(settings.home).list_models())
    ]


def _must_exist(paths: Sequence[Path]) -> None:
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path}: no such file")
