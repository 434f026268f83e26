"""The cache of the build farm: a folder of entries named by content, each put in place by one rename.

Any number of farms in any number of processes may share it. Failed compilations are entries too; timeouts and faults of
ours are not. An entry's time of change is its last use, which is what `build_housekeep` goes by; a farm holds a lock
on a file of its own in `.users/` for as long as it lives, so that nothing it has handed out is removed under it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import weakref
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from dice_core.files import fsync_dir, sha256_file, write_atomic

USERS = ".users"
#: Prefixes of folders that exist only while something is being made or thrown away.
TEMPORARY = (".work-", ".broken-")


@dataclass(frozen=True)
class BuildResult:
    """What became of one request.

    Attributes:
        request_key: `BuildRequest.key`.
        status: "ok", "compile_error" (the candidate's fault), "timeout" or "infra_error" (ours).
        tier: The header tier that decided: "light", "aten", "full" or "" when none ran.
        artefact: Absolute path of the shared library, "" if there is none.
        artefact_sha256: Hex sha256 of its bytes.
        module_name: Name of its Python module, unique by content.
        log: The compiler's own words (of the full tier when both failed), head and tail.
        argv: The commands that were run, in order.
        seconds: Wall time of the build that made the entry.
        cpu_seconds: CPU time of that build, all tiers tried.
        cached: Whether the entry was there already.
        dropped_flags: Flags of the candidate that were refused.
    """

    request_key: str
    status: str
    tier: str = ""
    artefact: str = ""
    artefact_sha256: str = ""
    module_name: str = ""
    log: str = ""
    argv: tuple[tuple[str, ...], ...] = ()
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    cached: bool = False
    dropped_flags: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is an artefact to load."""
        return self.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BuildResult:
        """The inverse of `to_json`.

        Raises:
            ValueError: a field is missing or unknown, or the status is none of the four.
        """
        names = {field.name for field in fields(cls)}
        if set(data) != names:
            raise ValueError(f"a build result must have exactly the fields {sorted(names)}, got {sorted(data)}")
        if data["status"] not in ("ok", "compile_error", "timeout", "infra_error"):
            raise ValueError(f"build result, field status: {data['status']!r} is unknown")
        values = {
            **data,
            "argv": tuple(tuple(command) for command in data["argv"]),
            "dropped_flags": tuple(data["dropped_flags"]),
        }
        return cls(**values)


class BuildCache:
    """Entries under one folder.

    Args:
        folder: Made when absent.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def entry(self, key: str) -> Path:
        """Where the entry of `key` is or would be."""
        return self.folder / key[:2] / key

    def lease(self, holder: object) -> None:
        """Say that entries are in use from now on, until `holder` is collected or this process ends."""
        users = self.folder / USERS
        users.mkdir(exist_ok=True)
        fd, name = tempfile.mkstemp(dir=users, suffix=".lock")
        fcntl.flock(fd, fcntl.LOCK_EX)
        weakref.finalize(holder, _end_lease, fd, name)

    def temporary(self, what: str = "work") -> Path:
        """A new folder for work in progress, on the file system of the entries."""
        return Path(tempfile.mkdtemp(prefix=f".{what}-", dir=self.folder))

    def read(self, key: str, request_key: str) -> BuildResult | None:
        """The cached result, or None when there is none or it does not hold what it says. Marks it as used."""
        entry = self.entry(key)
        try:
            result = BuildResult.from_json(json.loads((entry / "result.json").read_text()))
        except FileNotFoundError:
            if entry.exists():
                self.discard(entry)
            return None
        except (OSError, ValueError, TypeError, KeyError):
            self.discard(entry)
            return None
        with contextlib.suppress(OSError):
            os.utime(entry)  # before the look at the artefact: from here on housekeeping leaves it alone
        whole = result.request_key == request_key
        if whole and result.status == "ok":
            artefact = entry / result.artefact
            whole = artefact.is_file() and sha256_file(artefact) == result.artefact_sha256
            result = replace(result, artefact=str(artefact))
        if not whole:
            self.discard(entry)
            return None
        return replace(result, cached=True)

    def store(self, key: str, work: Path, library: str, result: BuildResult) -> BuildResult:
        """Put a finished build in place by one rename; when another farm was first, its entry is the result.

        Args:
            key: Of the entry.
            work: Folder that holds the library, on the cache's file system.
            library: File name of the shared library in `work`; not looked at when the build failed.
            result: What became of it.
        """
        staged = work / "entry"
        staged.mkdir()
        if result.status == "ok":
            target = staged / library
            shutil.move(work / library, target)
            target.chmod(0o644)
            with target.open("rb") as handle:
                os.fsync(handle.fileno())
            result = replace(
                result,
                artefact=library,  # relative inside the entry, so that a cache can be moved
                artefact_sha256=sha256_file(target),
                module_name=library.removesuffix(".so"),
            )
        write_atomic(staged / "result.json", json.dumps(result.to_json(), indent=1))
        entry = self.entry(key)
        entry.parent.mkdir(exist_ok=True)
        try:
            staged.rename(entry)
        except OSError:
            found = self.read(key, result.request_key)
            if found is None:
                raise
            return replace(found, cached=False, seconds=result.seconds, cpu_seconds=result.cpu_seconds)
        fsync_dir(entry.parent)
        return replace(result, artefact=str(entry / result.artefact) if result.artefact else "")

    def discard(self, entry: Path) -> None:
        """Move an entry aside in one step and remove it."""
        aside = self.temporary("broken")
        with contextlib.suppress(OSError):
            entry.rename(aside / "entry")
        shutil.rmtree(aside, ignore_errors=True)


def _end_lease(fd: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)
    os.close(fd)
