"""What a killed run left behind, and what need not be kept for ever."""

from __future__ import annotations

from prefect import task
from prefect.cache_policies import NO_CACHE

from dice_core.arena.build_housekeep import SweepReport, sweep
from dice_core.lake.publish import publish
from dice_core.tracking import Tracker
from tasks.context import Run


@task(cache_policy=NO_CACHE)
def reap(run: Run) -> int:
    """Publish attempts that were finished but not published, and close MLflow runs whose process is gone.

    Returns:
        How many attempts a killed run had left unpublished.
    """
    with run.lake() as lake:
        left = publish(lake, run.settings.attempts_dir, run_id=run.run_id)
    Tracker(run.settings.home).reap()
    return left.published


@task(cache_policy=NO_CACHE)
def sweep_builds(run: Run) -> SweepReport:
    """Bound the cache of compiled kernels by size and age."""
    settings = run.settings
    return sweep(settings.cache_dir, max_bytes=settings.build_cache_bytes, max_age_days=settings.build_cache_days)
