"""`dice init` and `dice doctor`: make a home, and see whether the machine can do the work."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dice_core.errors import DiceError
from dice_core.files import write_atomic
from dice_core.settings import Settings, compiler_path
from flows.console import say


@dataclass(frozen=True)
class Check:
    """One thing that `dice doctor` looked at."""

    name: str
    ok: bool
    found: str
    required: bool = True

    def as_row(self) -> dict[str, Any]:
        """Plain form."""
        status = "ok" if self.ok else ("FAILED" if self.required else "absent")
        return {"check": self.name, "status": status, "found": self.found}


def initialise(settings: Settings) -> None:
    """Create the lake and the MLflow store."""
    from dice_core.lake.catalog import Lake
    from dice_core.tracking import Tracker

    Lake.open(settings.home).close()
    Tracker(settings.home)
    say(f"home {settings.home} is ready")


def examine(settings: Settings) -> list[Check]:
    """Look at the machine."""
    from dice_core.arena.build_sandbox import landlock_abi
    from dice_core.arena.sandbox import at_least, isolation_level
    from dice_core.environment import capture, resolve_device

    checks = [Check("python", sys.version_info >= (3, 11), sys.version.split()[0])]
    checks.append(_try("device", lambda: resolve_device(settings.device)))
    checks.append(_try("isolation", isolation_level))
    reached = checks[-1].found
    if checks[-1].ok:
        checks.append(Check("isolation wanted", at_least(reached, settings.isolation), settings.isolation))
    checks.append(_try("home is writable", lambda: _write(settings)))
    free = shutil.disk_usage(settings.home).free if settings.home.exists() else 0
    checks.append(Check("disk", free > 2 << 30, f"{free / 2**30:.1f} GiB free"))
    checks.append(_try("lake extensions", _extensions))
    for program, required in (("c++", True), ("ninja", False)):
        place = shutil.which(program, path=compiler_path())
        checks.append(Check(program, place is not None, place or "not on PATH", required))
    confined = landlock_abi() >= 1
    checks.append(Check("compiler isolation", confined, "landlock" if confined else "none", required=False))
    try:
        found = capture("cuda", isolation=reached, cpu_threads=settings.cpu_threads).identity
        checks.append(Check("gpu", bool(found["gpu"]), found["gpu"] or "none", required=False))
        checks.append(Check("nvcc", bool(found["nvcc"]), found["nvcc"] or "none", required=False))
    except DiceError as error:
        checks.append(Check("gpu", False, str(error), required=False))
    return checks


def _write(settings: Settings) -> str:
    write_atomic(settings.home / ".doctor", "ok").unlink()
    return str(settings.home)


def _extensions() -> str:
    from dice_core.lake.connection import extension_path

    return ", ".join(extension_path(name).name for name in ("ducklake", "sqlite_scanner"))


def _try(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except (DiceError, OSError) as error:
        return Check(name, False, str(error))
