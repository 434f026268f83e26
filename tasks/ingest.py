"""Read the sources, and see whether this curation was done before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation.pipeline import CurationConfig, Ingested, curation_id, ingest
from dice_core.files import sha256_file
from dice_core.records import make_id
from tasks.augment import generator_identity
from tasks.context import DATASETS, Run


@task(cache_policy=NO_CACHE)
def read_sources(run: Run, sources: Sequence[Path]) -> Ingested:
    """Read all rows of all sources."""
    run.progress("ingest", 0, 1)
    ingested = ingest(sources)
    run.progress("ingest", 1, 1, f"{len(ingested.rows)} rows from {len(ingested.source_files)} files")
    return ingested


def identify(run: Run, ingested: Ingested, config: CurationConfig, *, augmented: bool) -> str:
    """Id of this curation before anything is measured: sources, options and what would measure them."""
    evidence = {"environment": run.environment_id, "plan": run.settings.plan} if config.evidence != "claimed" else {}
    library = [sha256_file(path) for path in sorted((DATASETS / "structures").glob("*.toml"))] if augmented else []
    drawn = run.settings.augment_drawn
    sizes = [run.settings.augment_sets, drawn, run.settings.seed if drawn else 0]
    writer = generator_identity(run.settings) if augmented else {}
    digest = make_id("evd", {"evidence": evidence, "structures": library, "sizes": sizes if augmented else [],
                             "generator": writer})
    return curation_id(ingested.source_files, config, evidence_digest=digest)


@task(cache_policy=NO_CACHE)
def version_of_curation(run: Run, curation: str) -> str | None:
    """The dataset version that this very curation made earlier, if it did."""
    with run.lake() as lake:
        found = lake.query("select dataset_version_id from dataset_version where curation_id = ?", (curation,))
    ids: list[str] = found.column(0).to_pylist()
    return ids[0] if ids else None
