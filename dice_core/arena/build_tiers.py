"""Header tiers: which are worth trying for a source, and what each needs on the command line.

*light* resolves `torch/extension.h` to DICE's own small header over PyTorch's stable C ABI; *aten* gives torch's real
`at::Tensor` and only those operator headers that the source names, with the light tier's binding; *full* is what
`load_inline` compiles. A source that one tier cannot compile goes to the next. The scan below reads names only: it
saves the attempts that are sure to fail and may not be relied on for anything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from dice_core.arena.capture import BuildRequest
from dice_core.arena.toolchain import ATEN_INCLUDE, LIGHT_INCLUDE, Toolchain

TIERS = ("light", "aten", "full")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"\w+")
_INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"]([^>\"]+)", re.MULTILINE)
_TORCH_NAME = re.compile(r"\b(?:torch|at|c10|py|pybind11)((?:\s*::\s*\w+)+)")
_TORCH_MACRO = re.compile(r"\b(?:AT|TORCH|C10|PYBIND11)_[A-Z]\w*")
_TORCH_CALL = re.compile(r"\b(?:torch|at)\s*::\s*(\w+)\s*\(")
_METHOD_CALL = re.compile(r"(?:\.|->)\s*(\w+)\s*\(")
_TORCH_HEADERS = ("torch/", "ATen/", "c10/", "pybind11/", "caffe2/")
#: Given by the command line or by every C++ compiler, not by a header.
_GIVEN = {"TORCH_EXTENSION_NAME", "TORCH_API_INCLUDE_EXTENSION_H"}
#: Parts of torch's C++ frontend that are in the full headers alone, and factories whose defaults at:: does not share.
_FULL_ONLY = re.compile(
    r"\b(?:torch\s*::\s*(?:nn|autograd|jit|optim|data|serialize|indexing|linalg|fft|special|cuda)\b"
    r"|TORCH_LIBRARY\w*|requires_grad\s*\()"
)
_BINDING = re.compile(r"\b(PYBIND11_\w+|pybind11|py)\b")
_REDUCED_FLOAT = re.compile(r"Half|BFloat16|_HALF|_REDUCED_FLOATING")
#: Standard headers that torch's own would have brought in, added where a source names something of them.
_STANDARD_HEADERS = {
    "array": r"\barray\s*<",
    "chrono": r"\bchrono::",
    "functional": r"\b(function\s*<|bind\(|hash\s*<|(plus|minus|multiplies|less|greater|equal_to)\s*<)",
    "iostream": r"\b(cout|cerr|clog|endl)\b",
    "map": r"\b(multi)?map\s*<",
    "memory": r"\b(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared|addressof)\b",
    "mutex": r"\b(mutex|lock_guard|unique_lock|call_once|once_flag)\b",
    "numeric": r"\b(accumulate|iota|inner_product|partial_sum|reduce|gcd|lcm)\s*\(",
    "set": r"\b(multi)?set\s*<",
    "sstream": r"\b[io]?stringstream\b",
    "thread": r"\b(thread|this_thread)\b",
    "unordered_map": r"\bunordered_map\s*<",
    "unordered_set": r"\bunordered_set\s*<",
}


def tiers_for(request: BuildRequest, tiers: Iterable[str], toolchain: Toolchain) -> list[str]:
    """Those of `tiers`, in their order, that may be able to compile `request`; always at least the last one."""
    allowed = list(tiers)
    texts = (*request.cpp_sources, *request.cuda_sources, *(text for _, text in request.headers))
    text = _COMMENT.sub(" ", "\n".join(texts))
    missing = {
        "light": lambda: light_lacks(text, toolchain),
        "aten": lambda: aten_lacks(text, toolchain),
    }
    return [tier for tier in allowed[:-1] if tier not in missing or not missing[tier]()] + allowed[-1:]


def light_lacks(text: str, toolchain: Toolchain) -> list[str]:
    """Names of torch in `text` (without comments) that occur nowhere in the light headers."""
    words, headers = _words_of(LIGHT_INCLUDE), _headers_of(LIGHT_INCLUDE)
    found = {name for name in _INCLUDE.findall(text) if name.startswith(_TORCH_HEADERS) and name not in headers}
    for path in _TORCH_NAME.findall(text):
        found |= {name for name in _WORD.findall(path) if name not in words}
    found |= {name for name in _TORCH_MACRO.findall(text) if name not in words and name not in _GIVEN}
    operators = toolchain.torch_root / "include" / "ATen" / "ops"
    methods = {name for name in _METHOD_CALL.findall(text) if name not in words}
    return sorted(found | {name for name in methods if (operators / f"{name.rstrip('_')}.h").is_file()})


def aten_lacks(text: str, toolchain: Toolchain) -> list[str]:
    """What in `text` needs the full headers for certain."""
    found = _FULL_ONLY.findall(text)
    words = _words_of(LIGHT_INCLUDE)
    for path in _TORCH_NAME.finditer(text):
        if path.group().startswith(("py", "pybind11")):
            found += [name for name in _WORD.findall(path.group(1)) if name not in words]
    include = toolchain.torch_root / "include"
    known = _headers_of(ATEN_INCLUDE) | _headers_of(LIGHT_INCLUDE)
    found += [
        header for header in _INCLUDE.findall(text)
        if header.startswith(_TORCH_HEADERS) and header not in known
        and (header.startswith(("torch/", "pybind11/", "caffe2/")) or not (include / header).is_file())
    ]  # fmt: skip
    return sorted(set(found))


def light_flags(text: str) -> list[str]:
    """What this text needs besides the light core: the binding, 16-bit floats, cuBLAS, rarer headers all cost time."""
    flags = []
    if _BINDING.search(text):
        flags.append("-DDICE_LIGHT_BINDING")
    if _REDUCED_FLOAT.search(text):
        flags.append("-DDICE_LIGHT_REDUCED_FLOAT")
    if "cublas" in text.lower():
        flags.append("-DDICE_LIGHT_CUBLAS")
    if "cudnn" in text.lower():
        flags.append("-DDICE_LIGHT_CUDNN")
    for header, pattern in _STANDARD_HEADERS.items():
        if re.search(pattern, text):
            flags += ["-include", header]
    return flags


def aten_flags(text: str, toolchain: Toolchain) -> list[str]:
    """The binding where it is named, and the header of each operator called as `torch::name(` or `at::name(`."""
    flags = ["-DAT_PER_OPERATOR_HEADERS", "-DDICE_ATEN"]
    if _BINDING.search(text):
        flags.append("-DDICE_LIGHT_BINDING")
    folder = toolchain.torch_root / "include" / "ATen" / "ops"
    for name in sorted(set(_TORCH_CALL.findall(text))):
        if name == "tensor":  # ours: at::tensor takes other defaults than torch::tensor
            flags += ["-DDICE_ATEN_TENSOR", "-include", "ATen/ops/empty.h"]
        elif (folder / f"{name}.h").is_file():
            flags += ["-include", f"ATen/ops/{name}.h"]
    return flags


@lru_cache(maxsize=4)
def _words_of(folder: Path) -> frozenset[str]:
    words: set[str] = set()
    for path in folder.rglob("*.h"):
        text = _INCLUDE.sub(" ", _COMMENT.sub(" ", path.read_text()))
        words |= set(_WORD.findall(text))
    return frozenset(words)


@lru_cache(maxsize=4)
def _headers_of(folder: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*.h"))
