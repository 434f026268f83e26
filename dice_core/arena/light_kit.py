"""What every module of the light and the aten tier is compiled and linked with, made once for each toolchain.

- `include/`: leads only to torch's header-only 16-bit floats, so that nothing else of torch is seen by accident.
- `support_*.o`: the light tier's own code that is no template.
- `binding/`: leads to the binding's header alone, for the aten tier, whose `torch/` must be torch's own.
- `aten_binding.o`: the binding over torch's own at::Tensor, made when the aten tier is first needed (it costs as much
  as one build there).
- `lib/`: link-time stand-ins for libtorch with the exported C names alone. Linking against the real library reads
  hundreds of megabytes (0.5 s of CPU against 0.1 s); at run time the real one is loaded, by its soname.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dice_core.arena.build_run import GIB, run_step
from dice_core.arena.toolchain import ATEN_INCLUDE, LIGHT_INCLUDE, LIGHT_STANDARD, Toolchain, own_headers_digest
from dice_core.errors import ArenaError
from dice_core.files import file_lock, sha256_bytes

#: Exported names that the light headers may refer to: the C ABI, and two C++ functions without a C entry.
_CPP_NAMES = ("_ZN2at4cuda26getCurrentCUDABlasLtHandleEv", "_ZN2at6native14getCudnnHandleEv")
_C_NAME = re.compile(rf"^\S+ T ((?:aoti_)?torch_\w+|{'|'.join(_CPP_NAMES)})$", re.MULTILINE)
_STAND_INS = ("libtorch_cpu.so", "libtorch_cuda.so")
_SUPPORT = ("support_tensor", "support_binding")
_DEADLINE_S = 120.0


@dataclass(frozen=True)
class LightKit:
    """Folders and files of a finished kit."""

    folder: Path

    @property
    def include(self) -> Path:
        """Goes on the include path after the light headers."""
        return self.folder / "include"

    @property
    def objects(self) -> tuple[Path, ...]:
        """The object files to link in."""
        return tuple(self.folder / f"{name}.o" for name in _SUPPORT)

    @property
    def complete(self) -> bool:
        """Whether every object file is there."""
        return all(path.is_file() for path in self.objects)

    @property
    def binding_include(self) -> Path:
        """Goes on the include path of the aten tier: `dice_light/bind.h` and nothing else of the light headers."""
        return self.folder / "binding"

    @property
    def aten_binding(self) -> Path:
        """The binding of the aten tier."""
        return self.folder / "aten_binding.o"

    @property
    def lib(self) -> Path:
        """Goes on the library path instead of torch's own folder."""
        return self.folder / "lib"


def make_light_kit(cache_dir: Path, toolchain: Toolchain) -> LightKit:
    """Find or make the kit for this toolchain under `cache_dir`. Safe to call from many processes at once.

    Raises:
        ArenaError: the light tier's own sources do not compile here; the text is the compiler's.
    """
    key = sha256_bytes(json.dumps([toolchain.identity, own_headers_digest(), str(cache_dir)], sort_keys=True))
    kit = LightKit(cache_dir / f".kit-{key[:16]}")
    if kit.complete:
        with contextlib.suppress(OSError):
            os.utime(kit.folder)  # its last use, for housekeeping
        return kit
    with file_lock(cache_dir / ".kit.lock", what="making the light kit"):
        if not kit.complete:
            work = Path(tempfile.mkdtemp(prefix=".work-", dir=cache_dir))
            try:
                _fill(work, toolchain)
                shutil.rmtree(kit.folder, ignore_errors=True)
                work.rename(kit.folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return kit


def make_aten_binding(kit: LightKit, cache_dir: Path, toolchain: Toolchain) -> None:
    """Add `aten_binding.o` to a finished kit. Safe to call from many processes at once.

    Raises:
        ArenaError: it does not compile with this torch; the text is the compiler's.
    """
    if kit.aten_binding.is_file():
        return
    with file_lock(cache_dir / ".kit.lock", what="making the aten binding"):
        if kit.aten_binding.is_file():
            return
        work = Path(tempfile.mkdtemp(prefix=".work-", dir=cache_dir))
        try:
            include = toolchain.torch_root / "include"
            _run(
                [str(toolchain.cxx), f"-std={toolchain.standard}", "-O2", "-fPIC", "-fvisibility=hidden",
                 "-fno-gnu-unique", "-DAT_PER_OPERATOR_HEADERS", "-DDICE_ATEN", f"-I{ATEN_INCLUDE}",
                 f"-I{kit.binding_include}", "-isystem", str(include), "-isystem",
                 str(include / "torch/csrc/api/include"), "-isystem", str(toolchain.python_include),
                 "-c", str(LIGHT_INCLUDE / "support_binding.cpp"), "-o", "aten_binding.o"],
                work, toolchain,
            )  # fmt: skip
            (work / "aten_binding.o").rename(kit.aten_binding)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _fill(work: Path, toolchain: Toolchain) -> None:
    link = work / "include" / "torch" / "headeronly"
    link.parent.mkdir(parents=True)
    link.symlink_to(toolchain.torch_root / "include" / "torch" / "headeronly")
    (work / "binding" / "dice_light").mkdir(parents=True)
    (work / "binding" / "dice_light" / "bind.h").symlink_to(LIGHT_INCLUDE / "dice_light" / "bind.h")
    (work / "lib").mkdir()
    for name in _STAND_INS:
        real = toolchain.torch_lib / name
        if real.is_file():
            listing = _run([_tool(toolchain, "nm"), "-D", "--defined-only", str(real)], work, toolchain)
            names = sorted(set(_C_NAME.findall(listing)))
            (work / "stand_in.c").write_text("".join(f"void {symbol}(void) {{}}\n" for symbol in names))
            _run(
                [str(toolchain.cxx), "-x", "c", "-shared", "-fPIC", f"-Wl,-soname,{name}", "stand_in.c",
                 "-o", f"lib/{name}"],
                work, toolchain,
            )  # fmt: skip
    _run(
        [str(toolchain.cxx), f"-std={LIGHT_STANDARD}", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique",
         f"-I{LIGHT_INCLUDE}", "-isystem", str(toolchain.python_include), "-c",
         *(str(LIGHT_INCLUDE / f"{name}.cpp") for name in _SUPPORT)],
        work, toolchain,
    )  # fmt: skip


def _tool(toolchain: Toolchain, name: str) -> str:
    found = shutil.which(name, path=toolchain.path)
    if found is None:
        raise ArenaError(f"{name} (binutils) is not on {toolchain.path}")
    return found


def _run(argv: list[str], work: Path, toolchain: Toolchain) -> str:
    outcome = run_step(
        argv, cwd=work, path=toolchain.path, deadline_s=_DEADLINE_S, memory_bytes=8 * GIB, log_name="kit.log"
    )
    if outcome.returncode != 0:
        raise ArenaError(f"the light kit cannot be made: {' '.join(argv)}\n{outcome.log}")
    return (work / "kit.log").read_text(errors="replace")
