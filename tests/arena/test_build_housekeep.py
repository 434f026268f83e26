from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dice_core.arena.build_cache import USERS, BuildCache
from dice_core.arena.build_housekeep import sweep
from dice_core.errors import UsageError
from dice_core.settings import Settings
from flows.housekeep import housekeep

HOUR = 3600.0


def entry(cache: Path, key: str, age_s: float, kib: int = 64) -> Path:
    """An entry of so many KiB that was used so long ago."""
    folder = BuildCache(cache).entry(key)
    folder.mkdir(parents=True)
    (folder / "m.so").write_bytes(os.urandom(kib << 10))
    (folder / "result.json").write_text("{}")
    return used(folder, age_s)


def used(path: Path, age_s: float) -> Path:
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_the_longest_unused_go_first_until_the_rest_fits(tmp_path: Path) -> None:
    entries = [entry(tmp_path, f"{i}{i}aa", (5 - i) * HOUR) for i in range(5)]
    size = sweep(tmp_path, max_bytes=1 << 40, max_age_days=90).bytes
    planned = sweep(tmp_path, max_bytes=size * 3 // 5, max_age_days=90, dry_run=True)
    assert all(one.exists() for one in entries)
    done = sweep(tmp_path, max_bytes=size * 3 // 5, max_age_days=90)
    assert (planned.removed_for_size, planned.freed_bytes) == (done.removed_for_size, done.freed_bytes)
    assert [one.exists() for one in entries] == [False, False, True, True, True]
    assert done.freed_bytes == size - done.left_bytes
    again = sweep(tmp_path, max_bytes=size * 3 // 5, max_age_days=90)
    assert (again.entries, again.freed_bytes) == (3, 0)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".broken-")]


def test_age_and_orphans(tmp_path: Path) -> None:
    old, young = entry(tmp_path, "aaaa", 100 * 24 * HOUR), entry(tmp_path, "bbbb", HOUR)
    (tmp_path / ".work-dead" / "deep").mkdir(parents=True)
    (tmp_path / ".work-new").mkdir()
    (tmp_path / ".kit-old").mkdir()
    used(tmp_path / ".work-dead", 2 * HOUR)
    used(tmp_path / ".kit-old", 100 * 24 * HOUR)
    done = sweep(tmp_path, max_bytes=1 << 40, max_age_days=90)
    assert (done.removed_old, done.removed_orphans, done.removed_kits) == (1, 1, 1)
    assert not old.exists() and young.exists()
    assert not (tmp_path / ".work-dead").exists() and (tmp_path / ".work-new").exists()


def test_what_a_living_farm_may_have_handed_out_stays(tmp_path: Path) -> None:
    before, since = entry(tmp_path, "aaaa", 5 * HOUR), entry(tmp_path, "bbbb", 2 * HOUR)
    code = (
        f"from pathlib import Path; from dice_core.arena.build_cache import BuildCache; import sys, os, time\n"
        f"cache = BuildCache(Path({str(tmp_path)!r})); cache.lease(cache)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None and holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        for lock in (tmp_path / USERS).iterdir():
            used(lock, 3 * HOUR)  # it began three hours ago
        done = sweep(tmp_path, max_bytes=0, max_age_days=90)
        assert (done.removed_for_size, done.in_use) == (1, 1)
        assert not before.exists() and since.exists()
        holder.kill()
    assert sweep(tmp_path, max_bytes=0, max_age_days=90).removed_for_size == 1
    assert not since.exists()
    assert not list((tmp_path / USERS).iterdir())


def test_an_entry_used_a_moment_ago_stays(tmp_path: Path) -> None:
    one = entry(tmp_path, "aaaa", 30.0)
    assert sweep(tmp_path, max_bytes=0, max_age_days=90).in_use == 1
    assert one.exists()


def test_the_command_reports_and_a_second_time_has_nothing_to_do(tmp_path: Path) -> None:
    settings = Settings.load({"home": tmp_path, "build_cache_bytes": 0}, env={}, config_file=None)
    entry(settings.cache_dir, "aaaa", HOUR)
    assert housekeep(settings, dry_run=True).facts["removed_for_size"] == 1
    outcome = housekeep(settings, dry_run=False)
    assert outcome.worked and json.loads(json.dumps(outcome.as_dict()))["left_bytes"] == 0
    assert not housekeep(settings, dry_run=False).worked
    assert sweep(tmp_path / "nowhere", max_bytes=0, max_age_days=1).entries == 0
    with pytest.raises(UsageError):
        sweep(tmp_path, max_bytes=-1, max_age_days=1)
