"""Kernels in (a folder's or a model's), scores out."""

from __future__ import annotations

from pathlib import Path

from prefect import flow

from dice_core.bench.evaluation import Evaluation
from flows.held import Held
from flows.outcome import Outcome
from tasks.context import Run
from tasks.evaluate import measure, record_evaluation, scores, stored_evaluation
from tasks.publish import show_table


@flow(name="evaluate", validate_parameters=False)
def evaluate(run: Run, held: Held, out_dir: Path) -> Outcome:
    """Measure, write KernelBench's results file and the lake's rows, score. `held` holds an `Evaluation`."""
    wanted: Evaluation = held.value
    evaluation, finished = stored_evaluation(run, wanted)
    if finished:
        return Outcome("evaluate", False, {"evaluation": evaluation.evaluation_id(run.environment_id)})
    attempts = measure(run, evaluation.items())
    evaluation_id = record_evaluation(run, evaluation, attempts, out_dir)
    show_table(run, "leaderboard", "Leaderboard", "select * from rpt_leaderboard")
    failed = sum(one.verdict.is_infra for one in attempts.values())
    facts = {"evaluation": evaluation_id, "results": str(out_dir), **scores(run, evaluation, attempts)}
    return Outcome("evaluate", True, facts, imperfect=failed)
