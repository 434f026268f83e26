from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from dice_core import files
from dice_core.errors import BusyError


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.write_atomic(tmp_path / "a" / "x.txt", "old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(path, "new")
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in path.parent.iterdir()] == ["x.txt"]


def test_hashes(tmp_path: Path) -> None:
    data = b"x" * 3_000_001
    path = files.write_atomic(tmp_path / "x", data)
    assert files.sha256_file(path) == hashlib.sha256(data).hexdigest() == files.sha256_bytes(data)


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "run.lock"
    code = (f"import pathlib, time; from dice_core.files import file_lock\n"
            f"with file_lock(pathlib.Path({str(lock)!r})):\n  print('held', flush=True); time.sleep(60)")
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=f"a run is already being done by process {holder.pid}"), files.file_lock(
            lock, wait=False, what="a run"
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    with files.file_lock(lock, wait=False):
        pass
