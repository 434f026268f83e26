"""The arena's temporary folder. One that a killed run left behind is removed by the next run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "dice-arena-"
_LOCK = "in-use"


@contextlib.contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A new folder under `parent` (the system's temporary folder by default), removed afterwards.

    It is locked while in use; the kernel drops the lock with the process, which is how leftovers are told apart.
    """
    base = Path(tempfile.gettempdir()) if parent is None else parent
    base.mkdir(parents=True, exist_ok=True)
    for left in base.glob(f"{_PREFIX}*"):
        _remove_if_abandoned(left)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    os.chmod(folder, 0o711)  # children under another uid pass through to their own folders
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / _LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
