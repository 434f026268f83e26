"""Sources in, a CuKe version out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import flow

from dice_core.curation.pipeline import CurationConfig
from dice_core.records import utc_now
from flows.outcome import Outcome
from tasks.assemble import assemble, record_without_version
from tasks.augment import keep_verified, propose, worth_measuring
from tasks.context import Run
from tasks.contract import check_contract, curation_config
from tasks.evaluate import measure_records
from tasks.filter import drop_deceptive, drop_duplicates, drop_overlap, filter_speedup
from tasks.ingest import identify, read_sources, version_of_curation
from tasks.publish import show_table


@flow(name="curate", validate_parameters=False)
def curate(run: Run, sources: Sequence[Path], suite: Path | None = None, *, augment: bool = True) -> Outcome:
    """Contract, duplicates, overlap, honesty, then speed, then structures; every row ends somewhere with a reason."""
    started_at = utc_now()
    config: CurationConfig = curation_config(run, suite)
    ingested = read_sources(run, sources)
    curation = identify(run, ingested, config, augmented=augment)
    if known := version_of_curation(run, curation):
        return Outcome("curate", False, {"dataset_version": known, "curation": curation})

    contract = check_contract(run, ingested)
    unique = drop_duplicates(run, contract)
    apart = drop_overlap(run, unique, suite, config)
    honest = drop_deceptive(run, apart)
    library, proposed = propose(run) if augment else (None, [])
    measured = measure_records(run, honest.records, worth_measuring(proposed), config)
    fast = filter_speedup(run, honest, config, measured)
    structures = keep_verified(run, proposed, config, measured)

    steps = [contract, unique, apart, honest, fast, structures]
    if not fast.kept and not structures.kept:
        record_without_version(run, curation, config, ingested, steps, library, started_at)
    version = assemble(run, curation, config, ingested, steps, library, started_at)
    show_table(run, "funnel", "Curation funnel", "select * from rpt_funnel")
    lost = ingested.counters["in"] - len(contract.records)
    facts = {"dataset_version": version, "curation": curation, "rows_in": ingested.counters["in"],
             "quarantined": lost, "kept": len(fast.kept), "augmented": len(structures.kept),
             "measured": len(measured), "notes": list(ingested.notes)}
    return Outcome("curate", True, facts, imperfect=lost)
