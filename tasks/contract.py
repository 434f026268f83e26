"""Hold the rows against the contract."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation.mixture import read_mixture
from dice_core.curation.pipeline import CurationConfig, Ingested, Step, contract
from dice_core.curation.speedup_filter import Evidence
from dice_core.files import sha256_file
from tasks.context import DATASETS, Run

CONTRACT = DATASETS / "concur" / "contract.json"
MIXTURE = DATASETS / "cuke" / "recipe.toml"


def curation_config(run: Run, suite: Path | None, mixture: Path | None) -> CurationConfig:
    """The options of this curation, as they enter its id and its card."""
    settings = run.settings
    return CurationConfig(
        evidence=cast(Evidence, settings.evidence), threshold=settings.speedup_threshold,
        augment_threshold=settings.speedup_threshold, contract_sha256=sha256_file(CONTRACT),
        suite_sha256=sha256_file(suite) if suite else "", mixture=read_mixture(mixture or MIXTURE),
    )


@task(cache_policy=NO_CACHE)
def check_contract(run: Run, ingested: Ingested) -> Step:
    """Rows that keep the contract become records, the others go to quarantine."""
    run.progress("contract", 0, 1, "loading Great Expectations")
    step = contract(ingested, CONTRACT)
    run.progress("contract", 1, 1, f"{step.counters['kept']} kept of {step.counters['in']}")
    return step
