"""Keeping the build cache within its bounds: what was used last goes last.

Never removed: an entry that a living farm may have handed out (used since the oldest living farm began), and anything
used within the last minutes. Removed in any case: folders of work that nobody is doing any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dice_core.arena.build_cache import TEMPORARY, USERS, BuildCache
from dice_core.errors import UsageError

GRACE_S = 600.0
_DAY_S = 86400.0


@dataclass(frozen=True)
class SweepReport:
    """What `sweep` found and removed (or would remove). Sizes are bytes on disk."""

    entries: int  #: found
    bytes: int
    removed_old: int  #: entries unused for longer than the age that is allowed
    removed_for_size: int  #: entries that had to go so that the rest fits, the longest unused first
    removed_kits: int  #: light kits of toolchains that are gone
    removed_orphans: int  #: folders of work that was killed
    freed_bytes: int
    in_use: int  #: entries that had to stay although a bound was exceeded
    left_bytes: int
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """Plain JSON form."""
        return asdict(self)


@dataclass(frozen=True)
class _Item:
    path: Path
    used: float
    size: int


def sweep(
    cache_dir: Path, *, max_bytes: int, max_age_days: float, grace_s: float = GRACE_S, dry_run: bool = False
) -> SweepReport:
    """Bound the build cache under `cache_dir`.

    Args:
        cache_dir: The cache; need not exist.
        max_bytes: Size that its entries may have in all.
        max_age_days: Entries that nobody used for longer are removed whatever the size.
        grace_s: Nothing used within so many seconds is removed.
        dry_run: Only say what would be done.

    Raises:
        UsageError: a bound is negative.
    """
    if max_bytes < 0 or max_age_days < 0:
        raise UsageError("the bounds of the build cache must not be negative")
    now = time.time()
    safe_since = min([now - grace_s, *_living_users(cache_dir, clean=not dry_run)])
    items = sorted(_entries(cache_dir), key=lambda item: item.used)
    total = left = sum(item.size for item in items)
    counts = {"old": 0, "size": 0, "kits": 0, "orphans": 0, "in_use": 0}
    freed = 0
    for item in items:
        reason = "old" if item.used < now - max_age_days * _DAY_S else "size" if left > max_bytes else ""
        if not reason:
            continue
        if item.used >= safe_since:
            counts["in_use"] += 1
        elif _remove(cache_dir, item, safe_since, dry_run):
            counts[reason] += 1
            left -= item.size
            freed += item.size
    for name, item in _leftovers(cache_dir):
        unused_since = now - max_age_days * _DAY_S if name == "kits" else safe_since
        if item.used < min(unused_since, safe_since) and _remove(cache_dir, item, safe_since, dry_run):
            counts[name] += 1
            freed += item.size
    return SweepReport(
        entries=len(items), bytes=total, removed_old=counts["old"], removed_for_size=counts["size"],
        removed_kits=counts["kits"], removed_orphans=counts["orphans"], freed_bytes=freed, in_use=counts["in_use"],
        left_bytes=left, dry_run=dry_run,
    )  # fmt: skip


def _living_users(cache_dir: Path, *, clean: bool) -> list[float]:
    """When each living farm on this cache began. Lock files whose farm is gone are removed."""
    began = []
    for path in (cache_dir / USERS).glob("*.lock"):
        with contextlib.suppress(FileNotFoundError), path.open("r+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                began.append(path.stat().st_mtime)
            else:
                # A farm that has made its file and not locked it yet is younger than this.
                if clean and path.stat().st_mtime < time.time() - 60:
                    path.unlink()
    return began


def _entries(cache_dir: Path) -> Iterator[_Item]:
    for path in cache_dir.glob("??/*"):
        yield from _item(path)


def _leftovers(cache_dir: Path) -> Iterator[tuple[str, _Item]]:
    if not cache_dir.is_dir():
        return
    for path in sorted(cache_dir.iterdir()):
        if path.name.startswith(TEMPORARY):
            yield from (("orphans", item) for item in _item(path))
        elif path.name.startswith(".kit-") and path.is_dir():
            yield from (("kits", item) for item in _item(path))


def _item(path: Path) -> Iterator[_Item]:
    """The folder as an item; nothing when it has gone meanwhile."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        used = path.stat().st_mtime
        size = 0
        for folder, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    size += os.lstat(os.path.join(folder, name)).st_blocks * 512
        yield _Item(path, used, size)


def _remove(cache_dir: Path, item: _Item, safe_since: float, dry_run: bool) -> bool:
    """Move aside in one step, then delete; put back if somebody used it between the look and the move."""
    if dry_run:
        return True
    aside = BuildCache(cache_dir).temporary("broken")
    moved = aside / "entry"
    try:
        item.path.rename(moved)
        if moved.stat().st_mtime >= safe_since:
            moved.rename(item.path)
            return False
        return True
    except OSError:
        return False
    finally:
        shutil.rmtree(aside, ignore_errors=True)
