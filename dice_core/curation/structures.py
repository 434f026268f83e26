"""Structures found in language models, as templates that turn dimensions into (PyTorch module, kernel) pairs.

One TOML file per structure holds a PyTorch module in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) and
one fused kernel per device (`ModelNew`, compiled by `load_inline`), all three written with `$NAME` for a dimension.
Kernels share pieces of C++ (a vector exponential, a reduction over a warp) by lines like `//@ warp_sum`, which are
replaced by that piece of `snippets.toml`: the kernel that comes out is whole. The kernels are our own; that they are
right and fast is decided by the arena, never here.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dice_core.curation.authored import read_toml
from dice_core.curation.dimensions import DimensionSpace, Sizes, dimension_space, listed_dims
from dice_core.errors import ContractError, UsageError

#: What part of a language model a structure belongs to.
FAMILIES = ("activation", "attention", "embedding", "head", "mlp", "norm", "position", "recurrent", "residual")
#: Devices that every structure has a kernel for, in the order in which they are listed.
DEVICES = ("cpu", "cuda")
#: Files of the folder that are no structures.
SNIPPETS_FILE, SOURCE_FILE = "snippets.toml", "source.toml"

_SNIPPET = re.compile(r"^//@ (\w+)\n", re.MULTILINE)
_TEXT_FIELDS = ("name", "family", "description", "pytorch", *DEVICES)
_NEEDED = {
    "pytorch": ("class Model(", "def get_inputs(", "def get_init_inputs("),
    "cpu": ("class ModelNew(", "load_inline("),
    "cuda": ("class ModelNew(", "load_inline(", "__global__"),
}


@dataclass(frozen=True)
class StructureTask:
    """One structure at one set of dimensions on one device: a problem and our kernel for it."""

    name: str  #: the structure's name
    family: str
    device: str  #: `cpu` or `cuda`
    dims: Sizes
    seed: int | None  #: the seed that the sizes were drawn with; None for a set that the file lists
    problem_name: str  #: name with dimensions, unique over the library, the same on every device
    pytorch_code: str
    kernel_code: str


@dataclass(frozen=True)
class Structure:
    """A template of a PyTorch module and of its kernels, with the dimensions it is instantiated at."""

    name: str
    family: str
    description: str
    dims: tuple[Sizes, ...]
    pytorch: str
    kernels: Mapping[str, str]  #: device -> kernel template, with its snippets filled in
    space: DimensionSpace | None = None  #: where further sizes are drawn from; None when the file has no `sample`

    def instances(self, device: str, *, sets: int = 0, drawn: int = 0, seed: int = 0) -> list[StructureTask]:
        """One task per set of dimensions: the listed ones in the file's order, then drawn ones.

        Args:
            device: `cpu` or `cuda`.
            sets: how many of the listed sets, from the first on; 0 means all.
            drawn: how many sets to draw besides; a structure without `sample` has none, one with a small space fewer.
            seed: of the draw.

        Raises:
            UsageError: there is no kernel for `device`.
        """
        listed = self.dims[:sets] if sets else self.dims
        tasks = [self.task(device, dims) for dims in listed]
        if self.space is not None and drawn:
            tasks += [self.task(device, dims, seed) for dims in self.space.draw(self.name, drawn, seed, self.dims)]
        return tasks

    def task(self, device: str, dims: Sizes, seed: int | None = None) -> StructureTask:
        """The structure at one set of dimensions.

        Raises:
            UsageError: there is no kernel for `device`, or `dims` are not this structure's.
        """
        if device not in self.kernels:
            raise UsageError(f"structure {self.name} has kernels for {', '.join(self.kernels)}, not for {device!r}")
        if dims.keys() != self.dims[0].keys():
            raise UsageError(f"structure {self.name} has dimensions {', '.join(self.dims[0])}, not {', '.join(dims)}")
        return StructureTask(
            name=self.name,
            family=self.family,
            device=device,
            dims=dims,
            seed=seed,
            problem_name=_problem_name(self.name, dims),
            pytorch_code=string.Template(self.pytorch).substitute(dims),
            kernel_code=string.Template(self.kernels[device]).substitute(dims),
        )


def load_structures(folder: Path) -> list[Structure]:
    """Read and validate every structure of a folder (`*.toml` but `source.toml` and `snippets.toml`), sorted by name.

    Raises:
        UsageError: the folder is not there or holds no structure.
        SourceError: a file is not UTF-8 or not TOML; names file and line.
        ContractError: a structure breaks a rule; names file and field.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of structures")
    paths = [path for path in sorted(folder.glob("*.toml")) if path.name not in (SNIPPETS_FILE, SOURCE_FILE)]
    snippets = read_snippets(folder / SNIPPETS_FILE) if (folder / SNIPPETS_FILE).exists() else {}
    structures = [read_structure(path, snippets) for path in paths]
    if not structures:
        raise UsageError(f"{folder}: no structure (*.toml) in this folder")
    return structures


def read_snippets(path: Path) -> dict[str, str]:
    """The pieces of C++ that kernels share, by name.

    Raises:
        SourceError: the file is not UTF-8 or not TOML.
        ContractError: a piece is no text, or uses one that is not there; names file and field.
    """
    snippets = read_toml(path)
    for name, text in snippets.items():
        if not isinstance(text, str) or not text.strip():
            raise ContractError(f"{path}: field {name} must be a text that is not empty, got {text!r:.60}")
    for name, text in snippets.items():
        _with_snippets(path, name, text, snippets)
    return snippets


def read_structure(path: Path, snippets: Mapping[str, str] | None = None) -> Structure:
    """Read and validate one structure file, whose kernels may use `snippets`. Raises as `load_structures` does."""
    data = read_toml(path)
    wanted = {*_TEXT_FIELDS, "dims"}
    if missing := sorted(wanted - data.keys()):
        raise ContractError(f"{path}: field {', '.join(missing)} is missing")
    if unknown := sorted(data.keys() - wanted - {"sample"}):
        known = ", ".join(sorted({*wanted, "sample"}))
        raise ContractError(f"{path}: field {', '.join(unknown)} is not known; known: {known}")
    for field in _TEXT_FIELDS:
        if not isinstance(data[field], str) or not data[field].strip():
            raise ContractError(f"{path}: field {field} must be a text that is not empty, got {data[field]!r:.60}")
    if data["name"] != path.stem:
        raise ContractError(f"{path}: field name is {data['name']!r}, but the file is named {path.stem!r}")
    if data["family"] not in FAMILIES:
        raise ContractError(f"{path}: field family is {data['family']!r}, not one of {', '.join(FAMILIES)}")
    dims = listed_dims(path, data["dims"])
    kernels = {device: _with_snippets(path, device, data[device], snippets or {}) for device in DEVICES}
    for field, text in (("pytorch", data["pytorch"]), *kernels.items()):
        _check_template(path, field, text, set(dims[0]))
    return Structure(
        name=data["name"],
        family=data["family"],
        description=data["description"],
        dims=dims,
        pytorch=data["pytorch"],
        kernels=kernels,
        space=dimension_space(path, data["sample"], dims) if "sample" in data else None,
    )


def _with_snippets(path: Path, field: str, text: str, snippets: Mapping[str, str]) -> str:
    """`text` with each `//@ name` line replaced by that piece and, before it, the pieces that it uses; each once."""
    used: set[str] = set()

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name not in snippets:
            raise ContractError(f"{path}: field {field} uses the snippet {name!r}, which {SNIPPETS_FILE} does not have")
        if name in used:
            return ""
        used.add(name)
        return _SNIPPET.sub(fill, snippets[name].strip("\n") + "\n")

    return _SNIPPET.sub(fill, text)


def _check_template(path: Path, field: str, text: str, dims: set[str]) -> None:
    template = string.Template(text)
    if not template.is_valid():
        line = next(n for n, part in enumerate(text.splitlines(), 1) if not string.Template(part).is_valid())
        raise ContractError(f"{path}: field {field}, line {line}: a `$` that starts no placeholder")
    used = set(template.get_identifiers())
    if unknown := sorted(used - dims):
        raise ContractError(f"{path}: field {field} uses ${', $'.join(unknown)}, which dims does not set")
    if field == "pytorch" and (unused := sorted(dims - used)):
        raise ContractError(f"{path}: field {field} never uses ${', $'.join(unused)}, which dims sets")
    for needed in _NEEDED[field]:
        if needed not in text:
            raise ContractError(f"{path}: field {field} has no `{needed}`")


def _problem_name(name: str, dims: Sizes) -> str:
    return "_".join([name, *(f"{key.lower().replace('_', '')}{size}" for key, size in dims.items())])
