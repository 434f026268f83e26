"""A dataset version in the forms that trainers read, sorted easy to hard.

    infilling        our infilling items, one JSON object a line
    tasks            our tasks (one for each distinct module), one JSON object a line
    dice-infilling   DICE's infilling schema: a JSON list of id, pytorch_code, cuda_code, prefix, middle, suffix
    dice-tasks       DICE's end-to-end schema: a JSON list of idx, level, pytorch_code, cuda_code, raw_answer
    sft              prompt and response as our own training uses them, one JSON object a line
    llamafactory     CuKe_dataset.json and dataset_info.json, as LLaMA-Factory's SDAR fork reads them
    parquet          all members with levels and cuts, one file a split, for `datasets.load_dataset`

Equal versions give equal bytes. A member that a form has no place for is left out with a reason in the manifest.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dice_core.curation.cuke import MANIFEST, MEMBER_SCHEMA, SPLITS
from dice_core.curation.difficulty import LEVELS, RULE_VERSION, Difficulty, difficulty
from dice_core.curation.infilling import Infilling, Uncut, cut
from dice_core.curation.versions import StoredVersion
from dice_core.errors import SourceError, UsageError
from dice_core.files import sha256_bytes, write_atomic
from dice_core.records import problem_id

_KIND = "dice export"
ITEM_SCHEMA = pa.schema([
    *MEMBER_SCHEMA, ("level", pa.int64()), ("operators", pa.int64()), ("depth", pa.int64()),
    ("parameters", pa.int64()), ("cut", pa.string()), ("prefix", pa.string()), ("middle", pa.string()),
    ("suffix", pa.string()),
])
#: What each column of our own forms means; in the manifest of every export.
COLUMNS: Mapping[str, str] = {
    "record_id": "the member's id in the lake",
    "problem_id": "id of the module's text",
    "problem_name": "name in the source",
    "uuid": "the source's own id of the row",
    "level": ", ".join(f"{level} {name}" for level, name in LEVELS.items()),
    "operators": "operators in forward, by parsing",
    "depth": "operators on the longest chain from an input",
    "parameters": "elements of all parameters; null where the text does not tell",
    "evidence": "measured (by the arena) or claimed (by the source)",
    "speedup": "eager time / kernel time: lower end of the 95% interval where measured, else the claim",
    "pytorch_code": "the module to be made faster",
    "kernel_code": "prefix + middle + suffix, byte for byte",
    "cut": "source (strings that are compiled), triton (bodies of jit functions), mixed; else why it was not cut",
    "prefix": "given: what stands before the middle",
    "middle": "to be written: the kernel's own source",
    "suffix": "given: declarations, build call, ModelNew",
    "prompt": "the user turn, as in training, rollout and evaluation",
    "response": "the answer that training teaches",
}


@dataclass(frozen=True)
class Item:
    """One member with its level and its cut."""

    row: Mapping[str, Any]
    difficulty: Difficulty
    cut: Infilling | Uncut

    def facts(self, *names: str) -> dict[str, Any]:
        """Columns of the member, and of what was read off it, by name."""
        traits = self.difficulty.traits
        low = self.row["speedup_low"]
        whole = self.cut if isinstance(self.cut, Infilling) else None
        known = {
            **self.row,
            "problem_id": problem_id(self.row["pytorch_code"]),
            "level": self.difficulty.level, "operators": len(traits.operators), "depth": traits.depth,
            "parameters": self.difficulty.parameters,
            "speedup": low if low is not None else self.row["claimed_speedup"],
            "cut": whole.kind if whole else str(getattr(self.cut, "reason", "")),
            "prefix": whole and whole.prefix, "middle": whole and whole.middle, "suffix": whole and whole.suffix,
        }
        return {name: known[name] for name in names}


@dataclass(frozen=True)
class LeftOut:
    """A member that is not in an export."""

    record_id: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Export:
    """The files of one export, before they are written."""

    files: Mapping[str, bytes]  #: without the manifest
    manifest: Mapping[str, Any]
    rows: int
    left_out: Mapping[str, int]  #: by reason


def export(version: StoredVersion, members: Sequence[Mapping[str, Any]], form: str) -> Export:
    """Make the files of an export.

    Args:
        version: the dataset version.
        members: its rows (`versions.read_members`).
        form: one of `FORMS`.

    Raises:
        UsageError: unknown form.
    """
    if form not in FORMS:
        raise UsageError(f"export format {form!r}: known are {', '.join(FORMS)}")
    items, gone = read_items(members)
    chosen, more = FORMS[form].choose(items)
    gone = sorted([*gone, *more], key=lambda one: (one.reason, one.record_id))
    files: dict[str, bytes] = {}
    listed: dict[str, list[str]] = {}
    for part in SPLITS:
        inside = [item for item in chosen if item.row["split"] == part]
        files[FORMS[form].name.format(part=part)] = FORMS[form].write(inside)
        listed[part] = [item.row["record_id"] for item in inside]
    if form == "llamafactory":
        files = {_llamafactory_name(name): data for name, data in files.items()}
        files["dataset_info.json"] = _json(_dataset_info(files))
    counts = dict(sorted(Counter(one.reason for one in gone).items()))
    manifest = {
        "kind": _KIND, "format": form, "dataset_version_id": version.version_id, "merkle_root": version.merkle_root,
        "curation_id": version.curation_id, "difficulty_rule_version": RULE_VERSION, "order": "easy to hard",
        "rows": len(chosen), "members": len(members), "rows_by_split": {part: len(ids) for part, ids in listed.items()},
        "levels": {str(level): sum(item.difficulty.level == level for item in chosen) for level in LEVELS},
        "left_out_by_reason": counts, "left_out": [vars(one) for one in gone], "record_ids": listed,
        "columns": {name: COLUMNS[name] for name in FORMS[form].columns if name in COLUMNS},
        "files": {
            name: {"sha256": sha256_bytes(data), "size_bytes": len(data)} for name, data in sorted(files.items())
        },
    }
    return Export(files, manifest, len(chosen), counts)


def read_items(members: Iterable[Mapping[str, Any]]) -> tuple[list[Item], list[LeftOut]]:
    """Members with their level and cut, easy to hard, and those that have no level."""
    items: list[Item] = []
    gone: list[LeftOut] = []
    for row in members:
        try:
            items.append(Item(row, difficulty(row["pytorch_code"]), cut(row["kernel_code"])))
        except SourceError as error:
            gone.append(LeftOut(row["record_id"], "no_level", str(error)))
    items.sort(key=lambda item: (item.difficulty.order, len(item.row["pytorch_code"]), item.row["record_id"]))
    return items, gone


def write_export(made: Export, folder: Path) -> bool:
    """Write the files and then the manifest; returns whether anything had to be written.

    An earlier export of the same format is replaced, file by file, each whole.

    Raises:
        UsageError: the folder holds something else.
    """
    before: dict[str, Any] = {}
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        try:
            before = json.loads((folder / MANIFEST).read_bytes())
            known = before["kind"] == _KIND and before["format"] == made.manifest["format"]
        except (OSError, ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise UsageError(f"{folder}: holds something else than such an export; name another folder with --out")
    data = {**made.files, MANIFEST: _json(made.manifest)}
    stale = [name for name in before.get("files", {}) if name not in data and Path(name).name == name]
    same = not stale and all((folder / name).is_file() and (folder / name).read_bytes() == content
                             for name, content in data.items())
    if same:
        return False
    (folder / MANIFEST).unlink(missing_ok=True)  # a manifest stands for files that are all there
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    for name, content in data.items():
        write_atomic(folder / name, content)
    return True


@dataclass(frozen=True)
class _Form:
    name: str  # of the file of a split
    columns: tuple[str, ...]
    choose: Callable[[Sequence[Item]], tuple[list[Item], list[LeftOut]]]
    write: Callable[[Sequence[Item]], bytes]


def _everything(items: Sequence[Item]) -> tuple[list[Item], list[LeftOut]]:
    return list(items), []


def _with_cut(items: Sequence[Item]) -> tuple[list[Item], list[LeftOut]]:
    gone = [LeftOut(item.row["record_id"], str(item.cut.reason), item.cut.detail)
            for item in items if isinstance(item.cut, Uncut)]
    return [item for item in items if isinstance(item.cut, Infilling)], gone


def _one_a_module(items: Sequence[Item]) -> tuple[list[Item], list[LeftOut]]:
    first: dict[str, Item] = {}
    gone: list[LeftOut] = []
    for item in items:
        identity = problem_id(item.row["pytorch_code"])
        if (there := first.setdefault(identity, item)) is not item:
            detail = f"the module of {there.row['record_id']}"
            gone.append(LeftOut(item.row["record_id"], "same_module", detail))
    return list(first.values()), gone


_INFILLING = ("record_id", "problem_name", "level", "operators", "depth", "parameters", "evidence", "speedup", "cut",
              "pytorch_code", "kernel_code", "prefix", "middle", "suffix")
_TASKS = ("problem_id", "record_id", "problem_name", "level", "operators", "depth", "parameters", "pytorch_code")
_SFT = ("record_id", "problem_name", "level", "prompt", "response")


def _lines(columns: tuple[str, ...]) -> Callable[[Sequence[Item]], bytes]:
    def write(items: Sequence[Item]) -> bytes:
        rows = (json.dumps(item.facts(*columns), ensure_ascii=False) for item in items)
        return "".join(f"{row}\n" for row in rows).encode()

    return write


def _sft_lines(items: Sequence[Item]) -> bytes:
    rows = ({**item.facts("record_id", "problem_name", "level"), **_pair(item)} for item in items)
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def _pairs(items: Sequence[Item]) -> bytes:
    return _json([_pair(item) for item in items])


def _pair(item: Item) -> dict[str, str]:
    # The one prompt of training, rollout and evaluation; imported late because it brings the tokenizer library.
    from dice_core.model.prompts import generation_prompt, kernel_response

    return {"prompt": generation_prompt(item.row["pytorch_code"]), "response": kernel_response(item.row["kernel_code"])}


def _dice_infilling(items: Sequence[Item]) -> bytes:
    rows = []
    for number, item in enumerate(items):
        cut_up = item.facts("prefix", "middle", "suffix")
        rows.append({"id": number, "pytorch_code": item.row["pytorch_code"], "cuda_code": item.row["kernel_code"],
                     **cut_up})
    return _json(rows)


def _dice_tasks(items: Sequence[Item]) -> bytes:
    rows = []
    for number, item in enumerate(items):
        level, traits = item.difficulty.level, item.difficulty.traits
        # DICE's field holds the answer of its judge, which ends in the boxed level; ours is the rule's.
        answer = f"{LEVELS[level]}: {', '.join(traits.operators) or 'no operator'} \\boxed{{{level}}}"
        rows.append({"idx": number, "level": str(level), "pytorch_code": item.row["pytorch_code"], "cuda_code": "",
                     "raw_answer": answer})
    return _json(rows)


def _parquet(items: Sequence[Item]) -> bytes:
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, ITEM_SCHEMA, compression="zstd", write_page_checksum=True) as writer:
        # The `datasets` package cannot read a row group of no rows; a file of no row groups is fine.
        if items:
            rows = [item.facts(*ITEM_SCHEMA.names) for item in items]
            writer.write_table(pa.Table.from_pylist(rows, schema=ITEM_SCHEMA))
    return buffer.getvalue()


def _llamafactory_name(name: str) -> str:
    return {"train.json": "CuKe_dataset.json", "validation.json": "CuKe_validation.json"}[name]


def _dataset_info(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Registry entries; without `formatting` the file is read by the alpaca converter, as DICE's is."""
    columns = {"prompt": "prompt", "response": "response"}
    return {name.removesuffix(".json").removesuffix("_dataset"): {"file_name": name, "columns": columns}
            for name in files}


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


FORMS: Mapping[str, _Form] = {
    "infilling": _Form("infilling_{part}.jsonl", _INFILLING, _with_cut, _lines(_INFILLING)),
    "tasks": _Form("tasks_{part}.jsonl", _TASKS, _one_a_module, _lines(_TASKS)),
    "dice-infilling": _Form("kernel_infilling_{part}.json", (), _with_cut, _dice_infilling),
    "dice-tasks": _Form("end_to_end_kernel_generation_{part}.json", (), _one_a_module, _dice_tasks),
    "sft": _Form("sft_{part}.jsonl", _SFT, _everything, _sft_lines),
    "llamafactory": _Form("{part}.json", ("prompt", "response"), _everything, _pairs),
    "parquet": _Form("{part}.parquet", tuple(ITEM_SCHEMA.names), _everything, _parquet),
}
