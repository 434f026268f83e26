"""The arena's temporary folder. One that a killed run left behind is removed by the next run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
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
            remove_tree(folder)


def _remove_if_abandoned(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / _LOCK).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all below, however deep a candidate nested it; what cannot be removed stays."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    # Deeper than the stack, or than descriptors last: folders move up to the top one, until none holds another.
    waiting, prefix, number = [folder], f"{_PREFIX}{secrets.token_hex(8)}-", 0
    while waiting:
        with contextlib.suppress(OSError):
            top = waiting.pop()
            inner = [Path(one.path) for one in os.scandir(top) if one.is_dir(follow_symlinks=False)]
            for one in inner if top != folder else ():
                number += 1
                waiting.append(one.rename(folder / f"{prefix}{number}"))
            if top == folder:
                waiting += inner
    shutil.rmtree(folder, ignore_errors=True)
