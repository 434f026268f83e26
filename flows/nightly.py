"""The whole chain: curate, train, evaluate, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import flow

from dice_core.curation.requests import SourceRequest
from flows.curate import curate
from flows.evaluate import evaluate
from flows.held import Held
from flows.outcome import Outcome
from flows.train import train
from tasks.context import Run
from tasks.generate import evaluation_of_model
from tasks.housekeep import reap, sweep_builds
from tasks.publish import write_report


@flow(name="nightly", validate_parameters=False)
def nightly(
    run: Run, sources: Sequence[SourceRequest | Path], recipe: str, suite: Held, others: Held, *,
    accept_columns: bool = False,
) -> Outcome:
    """Every step looks first whether its result is there already, so a second night on the same input does nothing.

    `suite` holds the problems that the new model is asked, `others` evaluations to be made beside the model's.
    """
    left = reap(run)
    curated = curate(run, sources, nightly=True, update=True, accept_columns=accept_columns)
    trained = train(run, curated.facts["dataset_version"], recipe)
    model = evaluation_of_model(run, trained.facts["model"], suite.value)
    evaluated = [evaluate(run, Held(one), run.settings.runs_dir / one.name) for one in [*others.value, model]]
    sweep_builds(run)
    done = [curated, trained, *evaluated]
    worked = bool(left) or any(one.worked for one in done)
    report = write_report(run) if worked or not run.settings.report_dir.is_dir() else run.settings.report_dir
    facts = {"dataset_version": curated.facts["dataset_version"], "model": trained.facts["model"],
             "evaluations": [one.facts["evaluation"] for one in evaluated], "report": str(report),
             "notes": curated.facts["notes"], "steps_that_worked": [one.flow for one in done if one.worked]}
    return Outcome("nightly", worked, facts, imperfect=sum(one.imperfect for one in done))
