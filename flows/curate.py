"""Sources in, a CuKe version out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import flow

from dice_core.curation.ingest import out_on_purpose
from dice_core.curation.pipeline import CurationConfig
from dice_core.curation.readings import with_known
from dice_core.curation.requests import SourceRequest
from dice_core.records import utc_now
from flows.outcome import Outcome
from tasks.assemble import assemble, choose_members, record_without_version
from tasks.augment import keep_verified, propose, worth_measuring
from tasks.context import Run
from tasks.contract import check_contract, curation_config
from tasks.evaluate import measure_records
from tasks.filter import drop_deceptive, drop_duplicates, drop_overlap, filter_speedup
from tasks.ingest import identify, read_sources, remember_nights, version_of_curation
from tasks.publish import show_table


@flow(name="curate", validate_parameters=False)
def curate(
    run: Run, sources: Sequence[SourceRequest | Path], suite: Path | None = None, mixture: Path | None = None, *,
    augment: bool = True, accept_columns: bool = False, update: bool = False, nightly: bool = False,
) -> Outcome:
    """Contract, duplicates, overlap, honesty, then speed, then structures; every row ends somewhere with a reason."""
    started_at = utc_now()
    config: CurationConfig = curation_config(run, suite, mixture)
    read = read_sources(run, sources, accept_columns=accept_columns, update=update, nightly=nightly)
    augment = augment and read.has_rows  # tasks alone are no reason to make a version
    curation = identify(run, read, config, augmented=augment)
    if known := version_of_curation(run, curation):
        remember_nights(run, read)
        return Outcome("curate", False, {"dataset_version": known, "curation": curation,
                                         "notes": read.notes})

    checked = check_contract(run, read.new)
    ingested, contract = with_known(read.new, checked, read.known, read.files)
    unique = drop_duplicates(run, contract)
    apart = drop_overlap(run, unique, suite, config)
    honest = drop_deceptive(run, apart)
    library, proposed = propose(run) if augment else (None, [])
    measured = measure_records(run, honest.records, worth_measuring(proposed), config)
    fast = filter_speedup(run, honest, config, measured)
    structures = keep_verified(run, proposed, config, measured)

    steps = [contract, unique, apart, honest, fast, structures]
    steps.append(choose_members(run, config, ingested, steps, library))
    if not steps[-1].kept:
        record_without_version(run, curation, config, ingested, steps, library, started_at)
    version = assemble(run, curation, config, ingested, steps, library, started_at)
    show_table(run, "funnel", "Curation funnel", "select * from rpt_funnel")
    remember_nights(run, read)
    lost = read.new.counters["in"] - len(checked.records) - out_on_purpose(read.new.counters)
    facts = {"dataset_version": version, "curation": curation, "rows_in": ingested.counters["in"],
             "quarantined": lost, "left_out_on_purpose": out_on_purpose(read.new.counters),
             "files_known": len(read.known), "kept": len(fast.kept), "augmented": len(structures.kept),
             "members": len(steps[-1].kept), "measured": len(measured), "notes": read.notes}
    return Outcome("curate", True, facts, imperfect=lost)
