"""Where the compilers, torch's headers and the CUDA toolkit are, and which of a candidate's flags they are given.

Nothing here imports torch: the trusted side of the arena only needs to know where it is installed.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dice_core.errors import UnfitError
from dice_core.files import sha256_bytes

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIGHT_INCLUDE = Path(__file__).resolve().parent / "light"
ATEN_INCLUDE = Path(__file__).resolve().parent / "aten"

#: The light tier's C++ standard: libstdc++'s headers cost a third less than under c++20, and what needs c++20 does not
#: compile and goes to the full tier.
LIGHT_STANDARD = "c++17"

#: What torch gives nvcc besides the architecture: half operators only through torch's own types.
NVCC_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


@dataclass(frozen=True)
class Toolchain:
    """The compilers and headers of this machine.

    Attributes:
        cxx: The C++ compiler.
        cxx_version: First line of its `--version`.
        nvcc: nvcc, or None where CUDA sources cannot be compiled.
        nvcc_version: Release line of its `--version`, or "".
        cuda_home: Root of the CUDA toolkit, or None.
        torch_root: The installed torch package.
        torch_version: For example `2.13.0+cpu`.
        python_include: Folder of Python.h.
        python_version: For example `3.11.7`.
        standard: The C++ standard that this torch's own extensions use, for example `c++20`.
        path: The PATH that compilers get.
    """

    cxx: Path
    cxx_version: str
    nvcc: Path | None
    nvcc_version: str
    cuda_home: Path | None
    torch_root: Path
    torch_version: str
    python_include: Path
    python_version: str
    standard: str
    path: str

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Toolchain:
        """The inverse of `to_json`."""
        paths = ("cxx", "nvcc", "cuda_home", "torch_root", "python_include")
        values: dict[str, Any] = {**data, **{name: Path(data[name]) for name in paths if data[name]}}
        return cls(**values)

    @property
    def torch_lib(self) -> Path:
        """Folder of libtorch."""
        return self.torch_root / "lib"

    @property
    def identity(self) -> dict[str, str]:
        """Everything about the tools that can change an artefact; part of each cache key."""
        return {
            "cxx": self.cxx_version,
            "nvcc": self.nvcc_version,
            "torch": self.torch_version,
            "torch_root": str(self.torch_root),
            "python": self.python_version,
            "standard": self.standard,
        }


@lru_cache(maxsize=8)
def find_toolchain(base_path: str = DEFAULT_PATH) -> Toolchain:
    """Find the compilers on `base_path` and torch in this Python.

    Raises:
        UnfitError: there is no C++ compiler, no Python.h or no torch.
    """
    cxx = shutil.which("g++", path=base_path) or shutil.which("c++", path=base_path)
    if cxx is None:
        raise UnfitError(f"no C++ compiler (g++ or c++) on {base_path}")
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise UnfitError("torch is not installed in this Python")
    torch_root = Path(spec.submodule_search_locations[0])
    include = Path(sysconfig.get_path("include", scheme="posix_prefix"))
    if not (include / "Python.h").is_file():
        raise UnfitError(f"Python's headers are not installed: {include}/Python.h is missing")
    cuda_home = _cuda_home(base_path)
    nvcc = None if cuda_home is None else cuda_home / "bin" / "nvcc"
    path = base_path if cuda_home is None else f"{cuda_home / 'bin'}:{base_path}"
    return Toolchain(
        cxx=Path(cxx),
        cxx_version=_version_line(Path(cxx), path),
        nvcc=nvcc,
        nvcc_version="" if nvcc is None else _version_line(nvcc, path),
        cuda_home=cuda_home,
        torch_root=torch_root,
        torch_version=_torch_version(torch_root),
        python_include=include,
        python_version=".".join(str(part) for part in sys.version_info[:3]),
        standard=_torch_standard(torch_root),
        path=path,
    )


def _cuda_home(base_path: str) -> Path | None:
    fixed = Path("/usr/local/cuda")
    if (fixed / "bin" / "nvcc").is_file():
        return fixed
    found = shutil.which("nvcc", path=base_path)
    if found is None:
        return None
    home = Path(found).resolve().parent.parent
    return home if (home / "include" / "cuda_runtime.h").is_file() else None


def _version_line(compiler: Path, path: str) -> str:
    run = subprocess.run(
        [str(compiler), "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": path, "LC_ALL": "C"},
    )
    lines = [line.strip() for line in run.stdout.splitlines() if line.strip()]
    if run.returncode != 0 or not lines:
        raise UnfitError(f"{compiler} --version failed: {run.stderr.strip()[:200]}")
    return next((line for line in lines if "release" in line), lines[0])


def _torch_version(torch_root: Path) -> str:
    text = (torch_root / "version.py").read_text()
    found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.MULTILINE)
    if found is None:
        raise UnfitError(f"{torch_root}/version.py states no version")
    return found.group(1)


def _torch_standard(torch_root: Path) -> str:
    """The standard that torch.utils.cpp_extension puts on its own command lines."""
    text = (torch_root / "utils" / "cpp_extension.py").read_text()
    found = re.search(r"'-fPIC', '-std=(c\+\+\d+)'", text) or re.search(r"'-std=(c\+\+\d+)'", text)
    return found.group(1) if found else "c++17"


@lru_cache(maxsize=1)
def own_headers_digest() -> str:
    """Hex sha256 over names and contents of every header of ours, those of the light and of the aten tier."""
    parts = []
    for root in (LIGHT_INCLUDE, ATEN_INCLUDE):
        for path in sorted(root.rglob("*")):
            if path.is_file():
                parts.append(f"{root.name}/{path.relative_to(root)}\0{path.read_text()}\0")
    return sha256_bytes("".join(parts))


def native_identity(flags: Iterable[str]) -> str:
    """What "native" means here when a flag says it (`-march=native`), else "": such code is for this CPU only."""
    if not any("native" in flag for flag in flags):
        return ""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return sha256_bytes("\n".join(sorted({line for line in lines if line.startswith(("flags", "model name"))})))


# ---- flags -------------------------------------------------------------------------------------------------------

_REFUSED_PREFIXES = (
    "-fplugin", "-fdump", "-fprofile", "-fsanitize", "-fopt-info", "-fsave-optimization", "-fcallgraph-info",
    "-fdiagnostics-format", "-fmodule", "-fdeps", "-Wl,", "-Wa,", "-Wp,", "-save-temps",
)  # fmt: skip
_CXX_ALLOWED = re.compile(r"-(O\w*|std=[\w+]+|D\w+(=.*)?|U\w+|f[\w+=.,-]+|m[\w=.,+-]+|W[\w=+-]*|w|g[\w-]*|pthread)")
_NVCC_ALLOWED = re.compile(
    r"-{1,2}(use_fast_math|use-fast-math|lineinfo|generate-line-info|extra-device-vectorization|restrict"
    r"|expt-relaxed-constexpr|expt-extended-lambda|extended-lambda|fmad=\w+|ftz=\w+|prec-div=\w+|prec-sqrt=\w+"
    r"|maxrregcount[= ]?\d+|threads[= ]?\d+|ptxas-options=[\w,=-]+|Xptxas=[\w,=-]+|default-stream=[\w-]+"
    r"|diag-suppress[= ]?\d+(,\d+)*|O\w*|std=[\w+]+|D\w+(=.*)?|U\w+|w|g|G)"
)
#: nvcc options whose value is the next argument; the value must match before both are kept.
_NVCC_PAIRS = {
    "-Xptxas": re.compile(r"[\w,=-]+"),
    "--ptxas-options": re.compile(r"[\w,=-]+"),
    "-maxrregcount": re.compile(r"\d+"),
    "--maxrregcount": re.compile(r"\d+"),
}
_NVCC_HOST = ("-Xcompiler", "--compiler-options")
_NVCC_ARCH_PAIRS = ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code")
_LIBRARIES = (
    "cudart", "cublas", "cublasLt", "cudnn", "curand", "cusparse", "cusolver", "cufft", "cuda", "nvrtc",
    "m", "pthread", "dl", "rt", "gomp", "stdc++", "c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python",
)  # fmt: skip
_LINK_FLAGS = ("-fopenmp", "-pthread", "-Wl,--no-as-needed", "-Wl,--as-needed", "-O1", "-O2", "-O3", "-s")


def _cxx_ok(flag: str) -> bool:
    if flag.startswith(_REFUSED_PREFIXES):
        return False
    if flag.startswith("-f") and "/" in flag:
        return False
    return _CXX_ALLOWED.fullmatch(flag) is not None


def filter_cflags(flags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split a candidate's C++ flags into (kept, dropped)."""
    kept: list[str] = []
    dropped: list[str] = []
    for flag in _words(flags):
        (kept if _cxx_ok(flag) else dropped).append(flag)
    return kept, dropped


def filter_nvcc_flags(flags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split a candidate's nvcc flags into (kept, dropped). The architecture is always ours, so theirs is dropped."""
    kept: list[str] = []
    dropped: list[str] = []
    words = _words(flags)
    while words:
        flag = words.pop(0)
        if flag in _NVCC_ARCH_PAIRS:
            dropped.append(" ".join([flag, *words[:1]]))
            words = words[1:]
        elif flag in _NVCC_PAIRS or flag in _NVCC_HOST:
            value = words.pop(0) if words else ""
            pattern = _NVCC_PAIRS.get(flag)
            good = bool(pattern.fullmatch(value)) if pattern else all(_cxx_ok(part) for part in value.split(","))
            if good and value:
                kept += [flag, value]
            else:
                dropped.append(f"{flag} {value}".strip())
        elif flag.startswith(tuple(f"{name}=" for name in _NVCC_HOST)):
            good = all(_cxx_ok(part) for part in flag.partition("=")[2].strip("'\"").split(","))
            (kept if good else dropped).append(flag)
        else:
            (kept if _NVCC_ALLOWED.fullmatch(flag) else dropped).append(flag)
    return kept, dropped


def filter_ldflags(flags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split a candidate's linker flags into (kept, dropped): known libraries and a few harmless switches stay."""
    kept: list[str] = []
    dropped: list[str] = []
    for flag in _words(flags):
        good = flag in _LINK_FLAGS or (flag.startswith("-l") and flag[2:] in _LIBRARIES)
        (kept if good else dropped).append(flag)
    return kept, dropped


def filter_includes(paths: Iterable[str], toolchain: Toolchain) -> tuple[list[str], list[str]]:
    """Split include folders into (kept, dropped): only folders of the CUDA toolkit and of torch are opened."""
    roots = [root.resolve() for root in (toolchain.cuda_home, toolchain.torch_root) if root is not None]
    kept: list[str] = []
    dropped: list[str] = []
    for text in paths:
        path = Path(text)
        inside = path.is_absolute() and any(path.resolve().is_relative_to(root) for root in roots)
        (kept if inside else dropped).append(text)
    return kept, dropped


def _words(flags: Iterable[str]) -> list[str]:
    """Flags one by one; a flag with blanks in it ("-Xptxas -O3") is two, unless it defines a macro."""
    words: list[str] = []
    for flag in flags:
        words += [flag.strip()] if flag.strip().startswith("-D") else flag.split()
    return [word for word in words if word]
