"""Measure kernels in the arena, and record evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.arena.evaluate import ArenaConfig, evaluate
from dice_core.bench.evaluation import Evaluation
from dice_core.bench.kernelbench import write_eval_results
from dice_core.bench.score import VIEWS, fast_p
from dice_core.bench.sidecar import write_sidecar
from dice_core.curation.pipeline import CurationConfig, Measurements
from dice_core.curation.speedup_filter import latest_measurements
from dice_core.errors import ArenaError
from dice_core.lake.attempts import AttemptFile, settle
from dice_core.lake.publish import publish
from dice_core.lake.stored import stored_attempts, stored_samples
from dice_core.records import Attempt, TrainingRecord, WorkItem
from dice_core.settings import compiler_path
from tasks.context import Run

#: Languages of kernels that a device can run.
_RUNS_ON = {"cpu": ("cpp",), "cuda": ("cuda", "triton")}


@task(cache_policy=NO_CACHE, tags=["arena"])
def measure(run: Run, items: Sequence[WorkItem]) -> dict[str, Attempt]:
    """Evaluate what has no attempt yet, publish, and give all attempts of `items` by id.

    Safe to kill at any moment: a finished attempt is a durable file, and an attempt is never measured twice. One that
    fails through our own fault stands for its item in this run only; the next run tries again.
    """
    wanted = {item.attempt_id(run.environment_id): item for item in items}
    with run.lake() as lake:
        publish(lake, run.settings.attempts_dir, run_id=run.run_id)
        known = stored_attempts(lake, wanted)
    todo = [item for key, item in wanted.items() if key not in known]
    if todo:
        made = [one.attempt_id for one in _evaluate(run, todo)]
        with run.lake() as lake:
            publish(lake, run.settings.attempts_dir, run_id=run.run_id)
            found = stored_attempts(lake, [*wanted, *made])
        known = settle(wanted.values(), run.environment_id, found.values())
    missing = len(wanted) - len(known)
    if missing:
        raise ArenaError(f"{missing} of {len(wanted)} attempts ended without a published file")
    return known


@task(cache_policy=NO_CACHE, tags=["arena"])
def measure_records(
    run: Run, records: Sequence[TrainingRecord], proposed: Sequence[TrainingRecord], config: CurationConfig
) -> Measurements:
    """Measure what this device can run: records unless claims decide, proposed augmentations always."""
    chosen = [*(records if config.evidence != "claimed" else ()), *proposed]
    items = [
        WorkItem(one.pytorch_code, one.kernel_code, run.device, run.settings.plan,
                 labels={"record": one.record_id, "name": one.problem_name, "origin": one.origin})
        for one in chosen
        if one.origin == "augmentation" or one.language in _RUNS_ON[run.device]
    ]
    return latest_measurements(measure.fn(run, items).values())


def _evaluate(run: Run, items: Sequence[WorkItem]) -> list[Attempt]:
    done: list[Attempt] = []

    def count(one: AttemptFile) -> None:
        done.append(one.attempt)
        run.progress("measure", len(done), len(items), f"{one.attempt.verdict.value} {one.labels.get('name', '')}")

    config = ArenaConfig(
        device=run.device, cache_dir=run.settings.cache_dir, plan=run.settings.plan,
        build_jobs=run.settings.build_jobs or None, cpu_threads=run.settings.cpu_threads,
        required_isolation=run.settings.isolation, base_path=compiler_path(),
    )
    run.progress("measure", 0, len(items))
    evaluate(items, run.settings.attempts_dir, config, run.environment, on_result=count,
             on_build=lambda built, total, note="": run.progress("compile", built, total, note))
    return done


@task(cache_policy=NO_CACHE)
def record_evaluation(run: Run, evaluation: Evaluation, attempts: dict[str, Attempt], out_dir: Path) -> str:
    """Write KernelBench's `eval_results.json`, our sidecar beside it, and the evaluation's rows; returns its id.

    One level gives `<out_dir>/eval_results.json`, several give `<out_dir>/level_<L>/eval_results.json`, since
    KernelBench keys its file by problem number within one level.
    """
    with run.lake() as lake:
        samples = stored_samples(lake, attempts)
        by_level = evaluation.eval_results(run.environment, attempts, samples)
        for level, entries in by_level.items():
            folder = out_dir if len(by_level) == 1 else out_dir / f"level_{level}"
            write_eval_results(folder / "eval_results.json", entries)
            write_sidecar(folder, evaluation, run.environment_id, attempts, level)
        tables = evaluation.tables(run.environment_id, run.run_id, attempts)
        lake.commit(tables, message=f"evaluation {evaluation.name}", run_id=run.run_id)
    return evaluation.evaluation_id(run.environment_id)


def scores(run: Run, evaluation: Evaluation, attempts: Mapping[str, Attempt]) -> dict[str, str]:
    """fast_0, fast_1 and fast_2 by level and view, in words; `sure` asks the lower bound of the speedup."""
    outcomes = evaluation.outcomes(run.environment_id, attempts)
    told: dict[str, str] = {}
    for view in VIEWS:
        by_p = {p: fast_p(outcomes, p, view=view) for p in (0.0, 1.0, 2.0)}
        sure = fast_p(outcomes, 1.0, view=view, at_lower_bound=True)
        for level, first in by_p[0.0].items():
            parts = [f"fast_{p:g} {found[level].passed}/{found[level].problems}" for p, found in by_p.items()]
            one = by_p[1.0][level]
            told[f"level_{level} {view}"] = "  ".join(
                [*parts, f"fast_1 sure {sure[level].passed}/{first.problems}",
                 f"fast_1 interval {one.low:.0%}-{one.high:.0%}"])
    return told


@task(cache_policy=NO_CACHE)
def stored_evaluation(run: Run, evaluation: Evaluation) -> tuple[Evaluation, bool]:
    """This very evaluation as it is in the lake, and whether it is finished there.

    One of which attempts failed through our own fault is not: it is made again, under an id of its own.
    """
    while True:
        key = evaluation.evaluation_id(run.environment_id)
        with run.lake() as lake:
            found = lake.query("select count(*) filter (is_infra) as lost from fct_evaluation_member "
                               "where evaluation_id = ? having count(*) > 0", (key,)).to_pylist()
        if not found or not found[0]["lost"]:
            return evaluation, bool(found)
        evaluation = replace(evaluation, again=evaluation.again + 1)
