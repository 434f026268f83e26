"""From a build request to files and command lines, for one header tier.

All tiers compile the same text with the same flags as `torch.utils.cpp_extension.load_inline` would; they differ in
where `#include <torch/extension.h>` leads: to DICE's light headers, to DICE's choice of torch's, or to torch's own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from dice_core.arena.build_run import GIB
from dice_core.arena.build_tiers import aten_flags, light_flags
from dice_core.arena.capture import BuildRequest
from dice_core.arena.light_kit import LightKit
from dice_core.arena.toolchain import (
    ATEN_INCLUDE,
    LIGHT_INCLUDE,
    LIGHT_STANDARD,
    NVCC_FLAGS,
    Toolchain,
    filter_cflags,
    filter_includes,
    filter_ldflags,
    filter_nvcc_flags,
)

#: Resident bytes to expect of one compilation, by tier (measured with nvcc 13.0 and torch 2.11 and 2.13).
_NVCC_BYTES = {"light": GIB * 6 // 10, "aten": GIB * 15 // 10, "full": GIB * 35 // 10}
_CXX_BYTES = {"light": GIB * 6 // 10, "aten": GIB * 8 // 10, "full": GIB * 12 // 10}
_HEADERS = "headers"  # folder of the candidate's own
_CUDA_HEADERS = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>"


@dataclass(frozen=True)
class Step:
    """One compiler run: its command, what memory to expect and what address space to allow (bytes)."""

    argv: tuple[str, ...]
    expected_bytes: int
    limit_bytes: int
    is_link: bool = False


@dataclass(frozen=True)
class Plan:
    """Everything needed to make one shared library.

    Attributes:
        files: File name to text, to be written into the working folder.
        steps: Compilations in order, the link last.
        output: File name of the shared library.
        dropped_flags: Flags of the candidate that were not passed on.
    """

    files: dict[str, str]
    steps: tuple[Step, ...]
    output: str
    dropped_flags: tuple[str, ...] = field(default=())


def module_source(functions: tuple[tuple[str, str], ...]) -> str:
    """The PYBIND11_MODULE that `load_inline` writes for a list of functions."""
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for name, doc in functions:
        lines.append(f"  m.def({json.dumps(name)}, torch::wrap_pybind_function({name}), {json.dumps(doc)});")
    return "\n".join([*lines, "}", ""])


def _sources(request: BuildRequest) -> dict[str, str]:
    """File name to text. Names are numbered by us; the candidate's own file names never reach the disk."""
    if request.separate_sources:
        files = {f"source_{i}.cpp": text for i, text in enumerate(request.cpp_sources)}
        files |= {f"source_{i}.cu": text for i, text in enumerate(request.cuda_sources)}
        if request.functions:
            files["binding.cpp"] = "#include <torch/extension.h>\n" + module_source(request.functions)
        return files
    cpp = list(request.cpp_sources)
    if request.implicit_headers:
        cpp.insert(0, "#include <torch/extension.h>")
    if request.functions:
        cpp.append(module_source(request.functions))
    files = {"main.cpp": "\n".join(cpp)}
    if request.cuda_sources:
        head = [_CUDA_HEADERS] if request.implicit_headers else []
        files["cuda.cu"] = "\n".join([*head, *request.cuda_sources])
    return files


def make_plan(
    request: BuildRequest, tier: str, *, module_name: str, toolchain: Toolchain, arch: str | None, kit: LightKit | None
) -> Plan:
    """Files and commands for one request in one tier.

    Args:
        request: What to compile.
        tier: "light", "aten" or "full".
        module_name: Name of the Python module, unique by content.
        toolchain: The compilers.
        arch: GPU architecture such as "sm_90"; needed when there are CUDA sources.
        kit: What the light and the aten tier need; not used by the full tier.

    Raises:
        ValueError: `kit` is missing in a tier that needs it.
    """
    if kit is None and tier != "full":
        raise ValueError(f"the {tier} tier needs its kit")
    files = _sources(request)
    light = tier == "light"
    standard = LIGHT_STANDARD if light else toolchain.standard
    cuda = request.with_cuda or bool(request.cuda_sources)
    cflags, dropped = filter_cflags(request.extra_cflags)
    nvcc_flags, dropped_nvcc = filter_nvcc_flags(request.extra_cuda_cflags)
    ldflags, dropped_ld = filter_ldflags(request.extra_ldflags)
    includes, dropped_inc = filter_includes(request.extra_include_paths, toolchain)

    common = [f"-DTORCH_EXTENSION_NAME={module_name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    if tier == "aten":
        common.append(f"-I{ATEN_INCLUDE}")
    if kit is not None and tier != "full":
        common.append(f"-I{LIGHT_INCLUDE}" if light else f"-I{kit.binding_include}")
    common += [f"-I{path}" for path in includes]
    common += [f"-I{_HEADERS}"] if request.headers else []
    if kit is not None and light:
        common += ["-isystem", str(kit.include)]
    else:
        include = toolchain.torch_root / "include"
        common += ["-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]
    if cuda and toolchain.cuda_home is not None:
        common += ["-isystem", str(toolchain.cuda_home / "include")]
    common += ["-isystem", str(toolchain.python_include)]

    steps = []
    for name, text in files.items():
        extra = light_flags(text) if light else aten_flags(text, toolchain) if tier == "aten" else []
        if name.endswith(".cu"):
            number = (arch or "").removeprefix("sm_")
            argv = [str(toolchain.nvcc), *common, *extra, *NVCC_FLAGS]
            argv += [f"-gencode=arch=compute_{number},code=sm_{number}", "--compiler-options", "-fPIC", *nvcc_flags]
            if not any(flag.startswith(("-std=", "--std=")) for flag in nvcc_flags):
                argv.append(f"-std={standard}")
            expected, limit = _NVCC_BYTES[tier], 16 * GIB
        else:
            argv = [str(toolchain.cxx), *common, *extra, "-fPIC", f"-std={standard}", "-O2", *cflags]
            if tier != "full":
                argv.append("-fno-gnu-unique")
            expected, limit = _CXX_BYTES[tier], 8 * GIB
        steps.append(Step((*argv, "-c", name, "-o", f"{name}.o"), expected, limit))

    output = f"{module_name}.so"
    link = [str(toolchain.cxx), *(f"{name}.o" for name in files), "-shared", "-o", output, *ldflags]
    if "-fopenmp" in cflags and "-fopenmp" not in ldflags:
        link.append("-fopenmp")
    if kit is not None and light:
        # Every name must be found now, so that what is missing sends the kernel to the full tier instead of failing
        # at import. Python's own names come from the interpreter, hence warnings that the farm reads.
        link += [
            *(str(path) for path in kit.objects),
            f"-L{kit.lib}",
            "-ltorch_cpu",
            *(["-ltorch_cuda"] if cuda else []),
        ]
    else:
        link += [str(kit.aten_binding)] if kit is not None and tier == "aten" else []
        link += [f"-L{toolchain.torch_lib}", "-lc10", *(["-lc10_cuda"] if cuda else []), "-ltorch_cpu"]
        link += [*(["-ltorch_cuda"] if cuda else []), *(["-ltorch", "-ltorch_python"] if tier == "full" else [])]
    if tier != "full":
        link += ["-Wl,-z,defs", "-Wl,--warn-unresolved-symbols"]
    link.append(f"-Wl,-rpath,{toolchain.torch_lib}")
    if cuda and toolchain.cuda_home is not None:
        folder = toolchain.cuda_home / "lib64"
        link += [f"-L{folder if folder.is_dir() else toolchain.cuda_home / 'lib'}", "-lcudart"]
    steps.append(Step(tuple(link), GIB * 3 // 10, 8 * GIB, is_link=True))
    files |= {f"{_HEADERS}/{name}": text for name, text in request.headers}
    return Plan(files, tuple(steps), output, (*dropped, *dropped_nvcc, *dropped_ld, *dropped_inc))


#: Python itself, and what libtorch_global_deps.so of a CUDA build depends on (loaded with RTLD_GLOBAL).
_PROCESS_BRINGS = ("Py", "_Py", "cublas", "cudnn", "cufft", "curand", "cusparse", "cusolver", "nvrtc", "cuda")
_UNRESOLVED = re.compile(r"undefined reference to [`']([^']+)'")


def unresolved_names(link_log: str) -> list[str]:
    """Names that no library has, apart from Python's own and those of the CUDA libraries that torch loads globally.

    The process brings both. A kernel that calls cublasLt without linking it works with `load_inline` for this reason.
    """
    names = {name for name in _UNRESOLVED.findall(link_log) if not name.startswith(_PROCESS_BRINGS)}
    return sorted(names)
