"""`dice housekeep`: give back disk space that nothing needs any more."""

from __future__ import annotations

from dice_core.arena.build_housekeep import sweep
from dice_core.settings import Settings
from flows.outcome import Outcome


def housekeep(settings: Settings, *, dry_run: bool) -> Outcome:
    """Bound the cache of compiled kernels. Safe beside a running evaluation, so it takes no lock of the home.

    Raises:
        UsageError: a bound in the settings is negative.
    """
    report = sweep(settings.cache_dir, max_bytes=settings.build_cache_bytes, max_age_days=settings.build_cache_days,
                   dry_run=dry_run)
    removed = report.removed_old + report.removed_for_size + report.removed_kits + report.removed_orphans
    facts = {"build_cache": str(settings.cache_dir), "bound_bytes": settings.build_cache_bytes,
             "bound_days": settings.build_cache_days, **report.to_json()}
    return Outcome("housekeep (dry run)" if dry_run else "housekeep", bool(removed), facts)
