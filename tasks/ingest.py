"""Fetch and read the sources, and see whether this curation was done before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation.hub import Hub
from dice_core.curation.ingest import Ingested, ingest
from dice_core.curation.last_seen import check_drift
from dice_core.curation.pipeline import CurationConfig, curation_id
from dice_core.curation.requests import SourceRequest, specs_of
from dice_core.files import sha256_file
from dice_core.records import make_id
from dice_core.settings import hub_endpoint, hub_offline
from tasks.context import DATASETS, Run


@task(cache_policy=NO_CACHE)
def read_sources(
    run: Run, sources: Sequence[SourceRequest | Path], *, accept_columns: bool = False, update: bool = False
) -> Ingested:
    """Fetch what is not here, read all rows of all sources, and compare their columns with those last seen."""
    run.progress("ingest", 0, 1)
    requests = [SourceRequest(source) if isinstance(source, Path) else source for source in sources]
    hub = Hub(run.settings.home, hub_endpoint(), offline=hub_offline(), update=update,
              say=lambda text: run.progress("fetch", 0, 1, text))
    specs, notes = specs_of(requests, hub.fetch)
    ingested = ingest(specs, limit_bytes=run.settings.source_expanded_bytes)
    notes += check_drift(run.settings.home, ingested.seen, accept=accept_columns)
    run.progress("ingest", 1, 1, f"{len(ingested.rows)} rows from {len(ingested.source_files)} files")
    return replace(ingested, notes=(*notes, *ingested.notes))


def identify(run: Run, ingested: Ingested, config: CurationConfig, *, augmented: bool) -> str:
    """Id of this curation before anything is measured: sources, options and what would measure them."""
    evidence = {"environment": run.environment_id, "plan": run.settings.plan} if config.evidence != "claimed" else {}
    library = [sha256_file(path) for path in sorted((DATASETS / "structures").glob("*.toml"))] if augmented else []
    drawn = run.settings.augment_drawn
    sizes = [run.settings.augment_sets, drawn, run.settings.seed if drawn else 0]
    digest = make_id("evd", {
        "evidence": evidence, "structures": library, "sizes": sizes if augmented else [],
        "declarations": list(ingested.declarations)})
    return curation_id(ingested.source_files, config, evidence_digest=digest)


@task(cache_policy=NO_CACHE)
def version_of_curation(run: Run, curation: str) -> str | None:
    """The dataset version that this very curation made earlier, if it did."""
    with run.lake() as lake:
        found = lake.query("select dataset_version_id from dataset_version where curation_id = ?", (curation,))
    ids: list[str] = found.column(0).to_pylist()
    return ids[0] if ids else None
