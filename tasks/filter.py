"""The funnel's filters: duplicates, benchmark overlap, honesty, speedup."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.bench.problems import load_suite
from dice_core.curation import pipeline
from dice_core.curation.overlap import OverlapIndex
from dice_core.curation.pipeline import CurationConfig, Measurements, Step
from tasks.context import Run


@task(cache_policy=NO_CACHE)
def drop_duplicates(run: Run, before: Step) -> Step:
    """Keep the first of each group of equal records."""
    return _told(run, pipeline.deduplicate(before))


@task(cache_policy=NO_CACHE)
def drop_overlap(run: Run, before: Step, suite: Path | None, config: CurationConfig) -> Step:
    """Set aside records whose module is a problem of the benchmark."""
    index = OverlapIndex.build((p.name, p.source) for p in load_suite(suite)) if suite else None
    return _told(run, pipeline.check_overlap(before, index, config.overlap))


@task(cache_policy=NO_CACHE)
def drop_deceptive(run: Run, before: Step) -> Step:
    """Set aside kernels that are deceptive by their text. This comes before any measurement: speed attracts hacks."""
    return _told(run, pipeline.check_honesty(before))


@task(cache_policy=NO_CACHE)
def filter_speedup(run: Run, before: Step, config: CurationConfig, measurements: Measurements) -> Step:
    """Keep what is fast enough on the configured evidence."""
    return _told(run, pipeline.filter_speedup(before, config, measurements))


def _told(run: Run, step: Step) -> Step:
    run.progress(step.step, 1, 1, f"{step.counters['kept']} kept of {step.counters['in']}")
    return step
