"""Which layer of the sandbox a device does not bear: `python3 -m dice_core.arena.probe [cpu|cuda]`.

All layers up to each level are tried in a fresh child that brings the device up and computes. Where Landlock or the
filter of system calls makes that fail, they are tried again with one part changed, so that the part is named.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dice_core.arena import landlock, sandbox, seccomp

_TEXT = 600
_DEADLINE_S = 60
#: Landlock with one thing changed.
_VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {}, "without scopes": {"scope": False}, "without TCP rules": {"network": False},
    **{f"with {place} writable": {"writable": (place,)} for place in ("/proc", "/dev", "/tmp", "/sys", "/run")},
    "with everything readable": {"readable": ("/",)}, "with everything allowed": {"writable": ("/",)},
}


@dataclass(frozen=True)
class Step:
    """What came of one try. `error` is empty when the device worked."""

    name: str
    error: str

    def __str__(self) -> str:
        return f"{'ok    ' if not self.error else 'FAILED'}  {self.name}{': ' + self.error if self.error else ''}"


def diagnose(device: str, use: Callable[[], object] | None = None) -> Iterator[Step]:
    """Try layer by layer; yields each result as it is known. `use` is what has to work, a small sum by default."""
    use = use or _sum_on(device)

    def reach(level: str, folder: Path) -> None:
        limits = sandbox.Limits(level, None, 60, 1 << 26, 1024, 1024, sandbox.WORKER_UID, unix_sockets=device == "cuda")
        reached = sandbox.confine(limits, folder)
        if reached != level:
            raise OSError(f"only {reached} is reached")

    def files(changes: dict[str, Any], folder: Path) -> None:
        readable = sandbox.python_folders()
        reach("netns", folder)
        if not landlock.restrict(replace(landlock.Rules(readable, folder), **changes)):
            raise OSError("this kernel offers no Landlock")

    def calls(groups: Sequence[str], folder: Path) -> None:
        reach("netns", folder)
        if not seccomp.install(unix_sockets=device == "cuda", groups=groups):
            raise OSError("this kernel takes no filter")

    def nothing(folder: Path) -> None:
        assert folder.is_dir()

    everything = list(seccomp.GROUPS)
    failed = set()
    yield _try("nothing", nothing, use)
    for level in sandbox.LEVELS:
        step = _try(_up_to(level), partial(reach, level), use)
        failed |= {level} if step.error else set()
        yield step
    if "landlock" in failed:
        for name, changes in _VARIANTS.items():
            yield _try(f"Landlock {name}", partial(files, changes), use)
    if "seccomp" in failed:
        yield _try("the filter of system calls without Landlock", partial(calls, everything), use)
        for group in everything:
            yield _try(f"filter without its group '{group}'",
                       partial(calls, [one for one in everything if one != group]), use)
            yield _try(f"filter with only its group '{group}'", partial(calls, [group]), use)


def _sum_on(device: str) -> Callable[[], None]:
    import torch  # before the forks, which it would slow down

    def use() -> None:
        value = torch.ones(8, device=device).sum().item()
        if value != 8.0:
            raise ValueError(f"the device computes {value} for 8.0")

    return use


def _up_to(level: str) -> str:
    return f"all layers up to {level}"


def _try(name: str, confine: Callable[[Path], None], use: Callable[[], object]) -> Step:
    """Run both in a child; the error is the exception, the signal or the deadline that ended it."""
    read_end, write_end = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            signal.alarm(_DEADLINE_S)
            try:
                confine(Path(folder))
                use()
                told = ""
            except BaseException as error:
                number = getattr(error, "errno", None)
                told = f"{type(error).__name__}{f' [errno {number}]' if number else ''}: {error}"[:_TEXT]
            os.write(write_end, told.encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as answer:
            told = answer.read().decode()
        _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        told = f"ended by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return Step(name, " ".join(told.split()))


def main(argv: list[str]) -> int:
    """Print every step; 0 when all layers together work."""
    device = argv[0] if argv else "cpu"
    worked = {}
    for step in diagnose(device):
        print(step, flush=True)
        worked[step.name] = not step.error
    return 0 if worked[_up_to(sandbox.LEVELS[-1])] else 7


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
