"""Structures found in language models, as templates that turn dimensions into (PyTorch module, kernel) pairs.

One TOML file per structure holds a PyTorch module in KernelBench's form (`Model`, `get_inputs`, `get_init_inputs`) and
one fused kernel per device (`ModelNew`, compiled by `load_inline`), all three written with `$NAME` for a dimension.
The kernels are our own; that they are right and fast is decided by the arena, never here.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dice_core.curation.authored import read_toml
from dice_core.errors import ContractError, UsageError

#: What part of a language model a structure belongs to; train and validation are split by it.
FAMILIES = ("activation", "attention", "mlp", "norm", "position")
#: Devices that every structure has a kernel for, in the order in which they are listed.
DEVICES = ("cpu", "cuda")
#: Fewer than this many dimension sets is an example, not an augmentation.
MINIMUM_DIMS = 3

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
    dims: Mapping[str, int]
    problem_name: str  #: name with dimensions, unique over the library, the same on every device
    pytorch_code: str
    kernel_code: str


@dataclass(frozen=True)
class Structure:
    """A template of a PyTorch module and of its kernels, with the dimensions it is instantiated at."""

    name: str
    family: str
    description: str
    dims: tuple[Mapping[str, int], ...]
    pytorch: str
    kernels: Mapping[str, str]  #: device -> kernel template

    def instances(self, device: str) -> list[StructureTask]:
        """One task per set of dimensions, in the file's order.

        Raises:
            UsageError: there is no kernel for `device`.
        """
        if device not in self.kernels:
            raise UsageError(f"structure {self.name} has kernels for {', '.join(self.kernels)}, not for {device!r}")
        return [
            StructureTask(
                name=self.name,
                family=self.family,
                device=device,
                dims=dims,
                problem_name=_problem_name(self.name, dims),
                pytorch_code=string.Template(self.pytorch).substitute(dims),
                kernel_code=string.Template(self.kernels[device]).substitute(dims),
            )
            for dims in self.dims
        ]


def load_structures(folder: Path) -> list[Structure]:
    """Read and validate every structure of a folder (`*.toml` but `source.toml`), sorted by name.

    Raises:
        UsageError: the folder is not there or holds no structure.
        SourceError: a file is not UTF-8 or not TOML; names file and line.
        ContractError: a structure breaks a rule; names file and field.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of structures")
    structures = [read_structure(path) for path in sorted(folder.glob("*.toml")) if path.name != "source.toml"]
    if not structures:
        raise UsageError(f"{folder}: no structure (*.toml) in this folder")
    return structures


def read_structure(path: Path) -> Structure:
    """Read and validate one structure file. Raises as `load_structures` does."""
    data = read_toml(path)
    wanted = {*_TEXT_FIELDS, "dims"}
    if missing := sorted(wanted - data.keys()):
        raise ContractError(f"{path}: field {', '.join(missing)} is missing")
    if unknown := sorted(data.keys() - wanted):
        raise ContractError(f"{path}: field {', '.join(unknown)} is not known; known: {', '.join(sorted(wanted))}")
    for field in _TEXT_FIELDS:
        if not isinstance(data[field], str) or not data[field].strip():
            raise ContractError(f"{path}: field {field} must be a text that is not empty, got {data[field]!r:.60}")
    if data["name"] != path.stem:
        raise ContractError(f"{path}: field name is {data['name']!r}, but the file is named {path.stem!r}")
    if data["family"] not in FAMILIES:
        raise ContractError(f"{path}: field family is {data['family']!r}, not one of {', '.join(FAMILIES)}")
    dims = _dims(path, data["dims"])
    for field in ("pytorch", *DEVICES):
        _check_template(path, field, data[field], set(dims[0]))
    return Structure(
        name=data["name"],
        family=data["family"],
        description=data["description"],
        dims=dims,
        pytorch=data["pytorch"],
        kernels={device: data[device] for device in DEVICES},
    )


def _dims(path: Path, value: Any) -> tuple[dict[str, int], ...]:
    where = f"{path}: field dims"
    if not isinstance(value, list) or len(value) < MINIMUM_DIMS:
        raise ContractError(f"{where} must be a list of at least {MINIMUM_DIMS} tables")
    for number, table in enumerate(value):
        if not isinstance(table, dict) or not table:
            raise ContractError(f"{where}[{number}] must be a table of sizes, got {table!r:.60}")
        if table.keys() != value[0].keys():
            raise ContractError(f"{where}[{number}] has {', '.join(table)}, but [0] has {', '.join(value[0])}")
        for key, size in table.items():
            if re.fullmatch(r"[A-Z][A-Z0-9_]*", key) is None:
                raise ContractError(f"{where}[{number}].{key}: a dimension is named in capitals, like HEAD_DIM")
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ContractError(f"{where}[{number}].{key} must be a whole number above 0, got {size!r}")
    for (i, first), (j, second) in itertools.combinations(enumerate(value), 2):
        if first == second:
            raise ContractError(f"{where}[{j}] repeats [{i}]")
    return tuple(value)


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


def _problem_name(name: str, dims: Mapping[str, int]) -> str:
    return "_".join([name, *(f"{key.lower().replace('_', '')}{size}" for key, size in dims.items())])
