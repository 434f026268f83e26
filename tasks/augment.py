"""Structural augmentation: structures of language models with kernels from a generator."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.curation import pipeline
from dice_core.curation.augmentation import augmented_records
from dice_core.curation.generators import OfflineLibrary
from dice_core.curation.pipeline import CurationConfig, Measurements, Step
from dice_core.curation.structures import load_structures
from dice_core.records import SourceFile, TrainingRecord
from tasks.context import DATASETS, Run


@task(cache_policy=NO_CACHE)
def propose(run: Run) -> tuple[SourceFile, list[TrainingRecord]]:
    """The records that the offline library offers for this device at the chosen sizes; unverified."""
    folder = DATASETS / "structures"
    library = OfflineLibrary(load_structures(folder))
    chosen = library.tasks(run.device, sets=run.settings.augment_sets, drawn=run.settings.augment_drawn,
                           seed=run.settings.seed)
    return augmented_records(folder, library, chosen)


@task(cache_policy=NO_CACHE)
def keep_verified(run: Run, records: list[TrainingRecord], config: CurationConfig, measured: Measurements) -> Step:
    """Keep those that the arena found correct, honest and fast enough."""
    step = pipeline.augment(records, config, measured)
    run.progress("augment", 1, 1, f"{step.counters['kept']} kept of {step.counters['in']}")
    return step
