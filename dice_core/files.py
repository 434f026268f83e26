"""Durable files: written under a temporary name, synced, renamed, folder synced. A reader never sees half a file."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dice_core.errors import BusyError


def fsync_dir(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: bytes | str) -> Path:
    """Write `data` to `path` so that the file is either absent (or old) or whole.

    Temporary names start with a dot, so globs such as `*.parquet` never see them.
    """
    raw = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    fsync_dir(path.parent)
    return path


def sha256_bytes(data: bytes | str) -> str:
    """Hex sha256 of bytes, or of a text's UTF-8 form (lone surrogates kept, so that any text has a hash)."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return hashlib.sha256(raw).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while piece := source.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


@contextlib.contextmanager
def file_lock(path: Path, *, wait: bool = True, what: str = "this work") -> Iterator[None]:
    """Hold an exclusive lock on `path`. The kernel frees it when the process dies, so it cannot go stale.

    Raises:
        BusyError: `wait` is false and another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            raise BusyError(f"{what} is already being done by process {holder} (lock {path})") from None
        handle.seek(0)
        handle.truncate()
        handle.write(str(os.getpid()))
        handle.flush()
        yield
