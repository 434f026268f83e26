"""The bundled ConCuR-like rows: one TOML file each (module, C++ and CUDA kernel), and the files made of them.

`python -m dice_core.curation.samples` writes `concur_<device>.jsonl` beside the folder of sources: rows in
the columns of ConCuR (arXiv:2510.07356). Most rows are sound; some are wrong, deceptive, doubled or broken on
purpose, and each source says so in `kind` and `expect`.
"""

from __future__ import annotations

import ast
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dice_core.curation.authored import read_toml, write_generated
from dice_core.curation.concur import REQUIRED_COLUMNS
from dice_core.curation.structures import DEVICES
from dice_core.errors import ContractError, UsageError
from dice_core.files import write_atomic

#: The folder of sources in a source checkout.
SAMPLES_FOLDER = Path(__file__).parents[2] / "datasets" / "samples" / "concur"

#: Kind of a sample to what may be expected of it: an arena verdict, or where the funnel stops the row.
EXPECTED: dict[str, tuple[str, ...]] = {
    "honest_fast": ("CORRECT",),
    "honest_slow": ("CORRECT",),
    "wrong": (
        "INCORRECT_NUMERICAL",
        "INCORRECT_SHAPE",
        "INCORRECT_DTYPE",
        "COMPILE_ERROR",
        "RUNTIME_ERROR",
    ),
    "deceptive": ("deceptive",),
    "duplicate": ("duplicate",),
    "contract": ("quarantined",),
}
#: Columns of a row, in their order in the files.
COLUMNS = (*REQUIRED_COLUMNS[:-1], "generated_think", REQUIRED_COLUMNS[-1])
#: Values of `override` that stand for what TOML cannot say: JSON's null, and a column that is not there.
NULL, MISSING = "@null", "@missing"

_TEXTS = ("name", "uuid", "kind", "expect", "claim_note", "think", "pytorch", *DEVICES, "copy_of")
_OTHERS = ("speedup_over_eager", "reformat", "override")
_ALWAYS = ("name", "uuid", "kind", "expect", "speedup_over_eager")
_CODE = ("think", "pytorch", *DEVICES)


@dataclass(frozen=True)
class Sample:
    """One bundled row with a kernel for each device.

    Attributes:
        name: Problem name; the file is `<number>_<name>.toml`.
        uuid: The row's stable id.
        kind: One of `EXPECTED`'s keys: what the row is meant to be.
        expect: One of the kind's expectations.
        speedup_over_eager: Eager time / kernel time as the row claims it; not always true.
        claim_note: What is untrue about the claim or the kernel, or "".
        think: Reasoning text.
        pytorch: Source of a module with `Model`, `get_inputs` and `get_init_inputs`.
        kernels: Device to the source of a module with `ModelNew`.
        override: Column to the raw value that replaces it (`@null`, `@missing`, or a value of any type).
    """

    name: str
    uuid: str
    kind: str
    expect: str
    speedup_over_eager: float
    claim_note: str
    think: str
    pytorch: str
    kernels: Mapping[str, str]
    override: Mapping[str, Any] = field(default_factory=dict)

    def row(self, device: str) -> dict[str, Any]:
        """The row in ConCuR's columns, overrides applied.

        Raises:
            UsageError: there are no kernels for `device`.
        """
        if device not in self.kernels:
            raise UsageError(f"bundled kernels are for {' and '.join(self.kernels)}, not for {device!r}")
        kernel = self.kernels[device]
        values = (self.uuid, self.name, self.pytorch, kernel, self.think, self.speedup_over_eager)
        row = {**dict(zip(COLUMNS, values, strict=True)), **self.override}
        return {key: None if value == NULL else value for key, value in row.items() if value != MISSING}


def read_samples(folder: Path = SAMPLES_FOLDER) -> list[Sample]:
    """Read and check every sample of a folder, in order of file name.

    Raises:
        UsageError: the folder is not there or holds no sample.
        SourceError: a file is not UTF-8 or not TOML.
        ContractError: a sample breaks a rule; names file and field.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of samples")
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise UsageError(f"{folder}: no sample (*.toml) in this folder")
    samples: dict[str, Sample] = {}
    origin: dict[str, Path] = {}
    for path in paths:
        sample = _read_sample(path, samples)
        for key in (sample.name, sample.uuid):
            if key in origin:
                raise ContractError(f"{path}: {key!r} is already taken by {origin[key].name}")
            origin[key] = path
        samples[sample.name] = sample
    return list(samples.values())


def jsonl(samples: Iterable[Sample], device: str) -> str:
    """JSON Lines text of the rows for `device`. A NaN claim is written as `NaN`, which Python's reader takes.

    Raises:
        UsageError: there are no kernels for `device`.
    """
    return "".join(json.dumps(sample.row(device), ensure_ascii=False) + "\n" for sample in samples)


def write_rows(samples: Iterable[Sample], device: str, path: Path) -> Path:
    """Write the rows for `device` as JSON Lines; the file is old or whole, never half.

    Raises:
        UsageError: there are no kernels for `device`.
    """
    return write_atomic(path, jsonl(samples, device))


def generated_files(folder: Path = SAMPLES_FOLDER) -> dict[Path, str]:
    """The files made from a folder of samples and what is to be in them. Raises as `read_samples` does."""
    samples = read_samples(folder)
    return {folder.parent / f"concur_{device}.jsonl": jsonl(samples, device) for device in DEVICES}


def _read_sample(path: Path, earlier: Mapping[str, Sample]) -> Sample:
    data = read_toml(path)
    _check_fields(path, data)
    original = None
    if "copy_of" in data:
        original = earlier.get(data["copy_of"])
        if original is None:
            raise ContractError(f"{path}: field copy_of: no earlier sample is named {data['copy_of']!r}")
    elif missing := [name for name in _CODE if name not in data]:
        raise ContractError(f"{path}: field {missing[0]} is missing (only a sample with copy_of may omit it)")
    if original is None:
        sample = Sample(
            **{key: data[key] for key in (*_ALWAYS, "think", "pytorch")},
            claim_note=data.get("claim_note", ""),
            kernels={device: data[device] for device in DEVICES},
            override=data.get("override", {}),
        )
    else:
        kernels = {device: data.get(device, original.kernels[device]) for device in DEVICES}
        sample = replace(
            original,
            **{key: data[key] for key in _ALWAYS},
            claim_note=data.get("claim_note", ""),
            think=data.get("think", original.think),
            pytorch=data.get("pytorch", original.pytorch),
            kernels=kernels,
            override=data.get("override", {}),
        )
    if data.get("reformat", False):
        # Same syntax tree by construction: only comments, quotes, blank lines and line breaks change.
        sample = replace(
            sample,
            pytorch=_respelt(sample.pytorch),
            kernels={device: _respelt(code) for device, code in sample.kernels.items()},
        )
    _check_code(path, sample)
    return replace(sample, speedup_over_eager=float(sample.speedup_over_eager))


def _check_fields(path: Path, data: Mapping[str, Any]) -> None:
    for name in _ALWAYS:
        if name not in data:
            raise ContractError(f"{path}: field {name} is missing")
    if unknown := sorted(data.keys() - {*_TEXTS, *_OTHERS}):
        known = ", ".join((*_TEXTS, *_OTHERS))
        raise ContractError(f"{path}: field {', '.join(unknown)} is not known; known: {known}")
    for name in _TEXTS:
        if name in data and (not isinstance(data[name], str) or not data[name].strip()):
            raise ContractError(f"{path}: field {name} must be a text, not empty; got {data[name]!r:.60}")
    claim = data["speedup_over_eager"]
    if not isinstance(claim, int | float) or isinstance(claim, bool):
        raise ContractError(f"{path}: field speedup_over_eager must be a number, got {claim!r:.60}")
    if not isinstance(data.get("reformat", False), bool):
        raise ContractError(f"{path}: field reformat must be true or false, got {data['reformat']!r:.60}")
    override = data.get("override", {})
    if not isinstance(override, dict) or (strange := sorted(override.keys() - set(COLUMNS))):
        what = f"column {', '.join(strange)}" if isinstance(override, dict) else repr(override)
        raise ContractError(f"{path}: field override: {what} is none of {', '.join(COLUMNS)}")
    kind, expect = data["kind"], data["expect"]
    if kind not in EXPECTED:
        raise ContractError(f"{path}: field kind is {kind!r}, not one of {', '.join(EXPECTED)}")
    if expect not in EXPECTED[kind]:
        known = ", ".join(EXPECTED[kind])
        raise ContractError(f"{path}: field expect is {expect!r}; for {kind} it is one of {known}")
    try:
        uuid.UUID(data["uuid"])
    except ValueError as error:
        raise ContractError(f"{path}: field uuid: {data['uuid']!r} is no UUID") from error
    number, _, name = path.stem.partition("_")
    name_given = data["name"]
    if not number.isdigit() or name != name_given:
        raise ContractError(f"{path}: field name is {name_given!r}; the file must be <number>_<name>.toml")


def _check_code(path: Path, sample: Sample) -> None:
    """Every source defines what its side needs; what a contract row breaks, it breaks through `override`."""
    wanted: list[tuple[str, str, tuple[str, ...]]] = [
        ("pytorch", sample.pytorch, ("Model", "get_inputs", "get_init_inputs"))
    ]
    wanted += [(device, code, ("ModelNew",)) for device, code in sample.kernels.items()]
    for name, code, needs in wanted:
        try:
            tree = ast.parse(code)
        except SyntaxError as error:
            raise ContractError(f"{path}: field {name}, line {error.lineno}: {error.msg}") from error
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for need in needs:
            if need not in defined:
                raise ContractError(f"{path}: field {name} defines no {need}")


def _respelt(code: str) -> str:
    return ast.unparse(ast.parse(code)) + "\n"


def main() -> None:
    """Write the generated files and name each one that changed."""
    write_generated(generated_files())


if __name__ == "__main__":
    main()
