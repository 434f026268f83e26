"""Shared memory regions made by the judge: anonymous files of fixed size that children map.

Sizes are sealed, so that a worker cannot cut a file short under the judge's or referee's mapping. Worker and referee
each get read-only descriptors where they only read.
"""

from __future__ import annotations

import fcntl
import mmap
import os

_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; fcntl names it only from Python 3.13
_MINIMUM_BYTES = 4096


class Region:
    """One region, mapped read-write by the judge.

    Args:
        size: bytes; pages are taken only when touched.
        name: shown in /proc for people.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = max(size, _MINIMUM_BYTES)
        self.fd = os.memfd_create(f"dice-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._map = mmap.mmap(self.fd, self.size)

    def forbid_new_writers(self) -> None:
        """From now on only mappings that exist already may write: for regions that a worker must only read."""
        try:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
        except OSError:  # before Linux 5.1: the file mode still keeps other users out
            os.fchmod(self.fd, 0o400)

    def read_only(self) -> int:
        """A new read-only descriptor; the caller closes it."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def copy_from(self, other: Region, low: int, high: int) -> None:
        """Take bytes `low`..`high` of `other` into the same place here."""
        self._map[low:high] = memoryview(other._map)[low:high]

    def close(self) -> None:
        """Unmap and close."""
        self._map.close()
        os.close(self.fd)


def map_shared(fd: int, size: int, *, write: bool) -> mmap.mmap:
    """A child's mapping of a region; without `write` changes stay private to this process."""
    try:
        if write:
            return mmap.mmap(fd, size)
        return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(fd)
