"""What a candidate asks to be compiled, caught instead of done.

A candidate calls `torch.utils.cpp_extension.load_inline` or `load` while it is imported. Inside the untrusted process
those names belong to a stand-in module made here, which turns each call into a `BuildRequest` and gives it to a
handler: in capture mode the handler collects requests and returns `CapturePlaceholder`; in run mode it returns the
module that the build farm made. Standard library only, and the real `torch.utils.cpp_extension` is never imported
(importing it before a fork makes the children refuse CUDA).
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from dice_core.files import sha256_bytes

#: Sources of one request, all together, in bytes.
MAX_SOURCE_BYTES = 10 * 1024 * 1024
#: Entries in any list of flags, functions or sources.
MAX_ENTRIES = 1000
_CUDA_SUFFIXES = (".cu", ".cuh")
_INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
#: A relative path without a step up.
_HEADER_NAME = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))[\w.+-]+(?:/[\w.+-]+)*")


class CaptureOnly(RuntimeError):
    """A function of an extension was called while the candidate was only being captured, not run."""


class CapturePlaceholder:
    """Stands in for a compiled module in capture mode: every attribute is a function that raises `CaptureOnly`."""

    def __init__(self, name: str = "extension") -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Callable[..., Any]:
        if attribute.startswith("__") and attribute.endswith("__"):
            raise AttributeError(attribute)

        def refuse(*_args: object, **_kwargs: object) -> Any:
            raise CaptureOnly(f"{self.__name__}.{attribute} was called while the candidate was being captured")

        return refuse


@dataclass(frozen=True)
class BuildRequest:
    """One extension that a candidate wants compiled.

    Attributes:
        name: The candidate's own name for it; no part of the key.
        cpp_sources: C++ sources, joined into one file unless `separate_sources`.
        cuda_sources: CUDA sources, joined likewise.
        functions: (name, docstring) pairs to bind; empty when the sources hold their own PYBIND11_MODULE.
        extra_cflags: Flags for the C++ compiler, unfiltered.
        extra_cuda_cflags: Flags for nvcc, unfiltered.
        extra_ldflags: Flags for the linker, unfiltered.
        extra_include_paths: Include folders as the candidate wrote them.
        with_cuda: Whether CUDA headers and libraries are wanted.
        implicit_headers: Whether torch's headers are put before the sources, as `load_inline` does.
        separate_sources: Whether each source is a file of its own, as in `load`.
        headers: (name as it is included, text) of the candidate's own header files.
    """

    name: str
    cpp_sources: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()
    functions: tuple[tuple[str, str], ...] = ()
    extra_cflags: tuple[str, ...] = ()
    extra_cuda_cflags: tuple[str, ...] = ()
    extra_ldflags: tuple[str, ...] = ()
    extra_include_paths: tuple[str, ...] = ()
    with_cuda: bool = False
    implicit_headers: bool = True
    separate_sources: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Hex sha256 over the canonical JSON of everything but the name."""
        payload = {key: value for key, value in asdict(self).items() if key != "name"}
        return sha256_bytes(json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True))

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> BuildRequest:
        """Read a request that an untrusted process sent.

        Raises:
            ValueError: a field is missing, unknown, of another type or too large. The message names the field.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"a build request must be an object, not {type(data).__name__}")
        known = {field.name for field in fields(cls)}
        unknown = sorted(str(key) for key in data if key not in known)
        if unknown:
            raise ValueError(f"a build request has unknown fields: {', '.join(unknown)[:200]}")
        name = data.get("name")
        if not isinstance(name, str) or len(name) > 500:
            raise ValueError("build request, field name: must be a text of at most 500 characters")
        _must_be_text("name", name)
        texts = {
            field: _texts(field, data.get(field, ()))
            for field in (
                "cpp_sources",
                "cuda_sources",
                "extra_cflags",
                "extra_cuda_cflags",
                "extra_ldflags",
                "extra_include_paths",
            )
        }
        flags = {
            field: _flag(field, data.get(field, default))
            for field, default in (("with_cuda", False), ("implicit_headers", True), ("separate_sources", False))
        }
        functions = _pairs("functions", data.get("functions", ()), str.isidentifier)
        headers = _pairs("headers", data.get("headers", ()), lambda name: _HEADER_NAME.fullmatch(name) is not None)
        size = sum(len(text.encode("utf-8", "surrogatepass")) for group in texts.values() for text in group)
        size += sum(len(left) + len(right) for left, right in (*functions, *headers))
        if size > MAX_SOURCE_BYTES:
            raise ValueError(f"build request {name!r}: {size} bytes of source, at most {MAX_SOURCE_BYTES} are taken")
        return cls(name=name, functions=functions, headers=headers, **texts, **flags)  # type: ignore[arg-type]


def _texts(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_ENTRIES:
        raise ValueError(f"build request, field {field}: must be a list of at most {MAX_ENTRIES} texts")
    for item in value:
        if not isinstance(item, str):
            raise ValueError(f"build request, field {field}: holds a {type(item).__name__}, only texts are taken")
        _must_be_text(field, item)
    return tuple(value)


def _must_be_text(field: str, item: str) -> None:
    """No NUL and no lone surrogate: neither can stand in a source file or a command line."""
    if "\0" in item:
        raise ValueError(f"build request, field {field}: holds a NUL character")
    try:
        item.encode()
    except UnicodeEncodeError:
        raise ValueError(f"build request, field {field}: holds a lone surrogate") from None


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"build request, field {field}: must be true or false")
    return value


def _pairs(field: str, value: object, good: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list | tuple) or len(value) > MAX_ENTRIES:
        raise ValueError(f"build request, field {field}: must be a list of at most {MAX_ENTRIES} pairs")
    pairs: list[tuple[str, str]] = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise ValueError(f"build request, field {field}: each entry must be a pair of texts (name, text)")
        if not good(pair[0]):
            raise ValueError(f"build request, field {field}: {pair[0][:80]!r} is no name that is taken")
        _must_be_text(field, pair[1])
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _as_texts(value: object) -> tuple[str, ...]:
    """A str, a sequence of str or None, as torch's own functions take them; empty flags are dropped."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,) if value.strip() else ()
    if isinstance(value, Iterable):
        return tuple(str(item) for item in value if str(item).strip())
    raise TypeError(f"expected a string or a list of strings, got {type(value).__name__}")


def _as_functions(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return ((value, value),)
    if isinstance(value, Mapping):
        return tuple((str(name), str(doc)) for name, doc in value.items())
    if isinstance(value, Iterable):
        return tuple((str(name), str(name)) for name in value)
    raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(value)}")


def _own_headers(texts: Iterable[str], folders: Iterable[Path]) -> tuple[tuple[str, str], ...]:
    """The candidate's own headers among what `texts` include, and what those include, found in `folders`."""
    found: dict[str, str] = {}
    places = list(folders)
    waiting = list(texts)
    while waiting and len(found) < MAX_ENTRIES:
        for name in _INCLUDE.findall(waiting.pop()):
            if name in found or not _HEADER_NAME.fullmatch(name):
                continue
            for place in places:
                try:
                    found[name] = (place / name).read_text()
                except (OSError, UnicodeDecodeError):
                    continue
                places.append((place / name).parent)  # where a header's own includes are looked for
                waiting.append(found[name])
                break
    return tuple(sorted(found.items()))


def fake_cpp_extension(handler: Callable[[BuildRequest], Any]) -> types.ModuleType:
    """A module to stand at `sys.modules["torch.utils.cpp_extension"]`.

    Args:
        handler: Gets each `BuildRequest` and returns the object that the candidate receives as its module.

    Returns:
        A module with `load_inline` and `load` in torch's signatures and harmless values for the names that
        candidates read besides (CUDA_HOME, include_paths and the like).
    """

    def load_inline(
        name: str,
        cpp_sources: object = None,
        cuda_sources: object = None,
        sycl_sources: object = None,
        functions: object = None,
        extra_cflags: object = None,
        extra_cuda_cflags: object = None,
        extra_sycl_cflags: object = None,
        extra_ldflags: object = None,
        extra_include_paths: object = None,
        build_directory: object = None,
        verbose: object = False,
        with_cuda: bool | None = None,
        *_args: object,
        no_implicit_headers: bool = False,
        **_ignored: object,
    ) -> Any:
        """What torch offers as `load_inline`; arguments that do not change the compiled code are ignored."""
        cuda = _as_texts(cuda_sources)
        cpp = _as_texts(cpp_sources)
        places = [Path(path) for path in _as_texts(extra_include_paths)]
        request = BuildRequest(
            name=str(name),
            cpp_sources=cpp,
            cuda_sources=cuda,
            functions=_as_functions(functions),
            extra_cflags=_as_texts(extra_cflags),
            extra_cuda_cflags=_as_texts(extra_cuda_cflags),
            extra_ldflags=_as_texts(extra_ldflags),
            extra_include_paths=_as_texts(extra_include_paths),
            with_cuda=bool(cuda) if with_cuda is None else bool(with_cuda),
            implicit_headers=not no_implicit_headers,
            headers=_own_headers((*cpp, *cuda), places),
        )
        return handler(request)

    def load(
        name: str,
        sources: object,
        extra_cflags: object = None,
        extra_cuda_cflags: object = None,
        extra_sycl_cflags: object = None,
        extra_ldflags: object = None,
        extra_include_paths: object = None,
        build_directory: object = None,
        verbose: object = False,
        with_cuda: bool | None = None,
        *_args: object,
        **_ignored: object,
    ) -> Any:
        """What torch offers as `load`: the files are read here, so the request carries their text."""
        paths = [Path(path) for path in _as_texts(sources)]
        cuda = tuple(path.read_text() for path in paths if path.suffix in _CUDA_SUFFIXES)
        cpp = tuple(path.read_text() for path in paths if path.suffix not in _CUDA_SUFFIXES)
        places = [*(path.parent for path in paths), *(Path(path) for path in _as_texts(extra_include_paths))]
        request = BuildRequest(
            name=str(name),
            cpp_sources=cpp,
            cuda_sources=cuda,
            extra_cflags=_as_texts(extra_cflags),
            extra_cuda_cflags=_as_texts(extra_cuda_cflags),
            extra_ldflags=_as_texts(extra_ldflags),
            extra_include_paths=_as_texts(extra_include_paths),
            with_cuda=bool(cuda) if with_cuda is None else bool(with_cuda),
            implicit_headers=False,
            separate_sources=True,
            headers=_own_headers((*cpp, *cuda), places),
        )
        return handler(request)

    def nothing(*_args: object, **_kwargs: object) -> list[str]:
        return []

    def available(*_args: object, **_kwargs: object) -> bool:
        return True

    module = types.ModuleType("torch.utils.cpp_extension", "Build requests are captured, not executed.")
    module.__dict__.update(
        load_inline=load_inline,
        load=load,
        CUDA_HOME="/usr/local/cuda",
        CUDNN_HOME=None,
        ROCM_HOME=None,
        IS_HIP_EXTENSION=False,
        IS_WINDOWS=False,
        COMMON_NVCC_FLAGS=[],
        include_paths=nothing,
        library_paths=nothing,
        is_ninja_available=available,
        verify_ninja_availability=nothing,
    )
    return module
