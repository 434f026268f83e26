"""Assemble the CuKe version and commit the whole curation in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation import pipeline
from dice_core.curation.cuke import NAME, write_version
from dice_core.curation.ingest import TASK
from dice_core.curation.pipeline import CurationConfig, Ingested, Step
from dice_core.curation.tables import curation_tables, version_tables
from dice_core.errors import ContractError
from dice_core.records import SourceFile
from tasks.context import Run


@task(cache_policy=NO_CACHE)
def choose_members(
    run: Run, config: CurationConfig, ingested: Ingested, steps: Sequence[Step], library: SourceFile | None
) -> Step:
    """What the mixture takes of what passed the funnel."""
    more = [library] if library is not None else []
    step = pipeline.choose_members(config, ingested, steps, more_sources=more)
    run.progress(step.step, 1, 1, f"{step.counters['kept']} members of {step.counters['in']}")
    return step


@task(cache_policy=NO_CACHE)
def record_without_version(
    run: Run, curation: str, config: CurationConfig, ingested: Ingested, steps: Sequence[Step],
    library: SourceFile | None, started_at: str,
) -> None:
    """Commit what became of every row of a curation that kept none, then say so.

    Raises:
        ContractError: always; there is nothing to make a version of.
    """
    counters = pipeline.funnel(ingested, steps)
    tables = curation_tables(run.run_id, curation, config, ingested, steps, counters=counters, started_at=started_at,
                             more_sources=[library] if library is not None else [])
    with run.lake() as lake:
        lake.commit(tables, message=f"curation {curation}, nothing kept", run_id=run.run_id)
    tasks = ingested.counters.get(f"out:{TASK}", 0)
    if tasks and not ingested.counters["kept"]:
        raise ContractError(f"these are tasks, not records: {tasks} modules without a kernel. They are "
                            "kept as problems in the lake (table problem); there is nothing to curate")
    raise ContractError("no record passed the funnel and the mixture, so there is no dataset version; what became of "
                        f"each of the {ingested.counters['in']} rows is in the lake: dice query \"select * from "
                        f"rpt_funnel where curation_id = '{curation}'\"")


@task(cache_policy=NO_CACHE)
def assemble(
    run: Run, curation: str, config: CurationConfig, ingested: Ingested, steps: Sequence[Step],
    library: SourceFile | None, started_at: str,
) -> str:
    """Write the version's folder, then its rows; returns the version's id.

    The folder is named by its content and the rows go in one transaction, so a kill between the two is harmless.
    """
    environment = run.environment.identity if config.evidence != "claimed" else {}
    more = [library] if library is not None else []
    version = pipeline.make_version(curation, config, ingested, steps, environment=environment, more_sources=more)
    folder = write_version(version, run.settings.datasets_dir / NAME)
    tables = curation_tables(run.run_id, curation, config, ingested, steps, counters=version.funnel,
                             started_at=started_at, more_sources=more)
    with run.lake() as lake:
        lake.commit({**tables, **version_tables(version, folder)}, message=f"curation {curation}", run_id=run.run_id)
    run.progress("cuke", 1, 1, f"{len(version.members)} records, {version.version_id}")
    return version.version_id
