"""The bundled tasks: one TOML file each (task, C++ kernel, CUDA kernel), and the files generated from them.

`python -m dice_core.curation.task_samples` writes `tasks.jsonl` in KernelBench's columns and one
`task_kernels_<device>.jsonl` per device beside the folder of sources.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dice_core.bench.kernelbench import kernel_file_name
from dice_core.curation.authored import read_toml, write_generated
from dice_core.curation.structures import DEVICES
from dice_core.errors import ContractError, UsageError
from dice_core.files import write_atomic

#: The folder of sources in a source checkout.
TASKS_FOLDER = Path(__file__).parents[2] / "datasets" / "samples" / "tasks"
#: What a bundled kernel is meant to be; a leaderboard of nothing but good kernels would show nothing.
CANDIDATES = ("fast", "slow", "wrong")
#: Each bundled task has one kernel per device.
SAMPLE_ID = 0

_FIELDS = {"level": int, "problem_id": int, "name": str, "candidate": str, "pytorch": str, "cpu": str, "cuda": str}


@dataclass(frozen=True)
class TaskSample:
    """One bundled task in KernelBench's form with our kernel for each device."""

    level: int
    problem_id: int
    name: str  #: begins with the problem_id, as KernelBench's names do
    candidate: str  #: one of CANDIDATES; what the kernels are meant to be, not a measurement
    pytorch: str
    kernels: dict[str, str]  #: device -> source of a module with `ModelNew`


def read_tasks(folder: Path = TASKS_FOLDER) -> list[TaskSample]:
    """Read and check every task of a folder, sorted by level and problem_id.

    Raises:
        UsageError: the folder is not there or holds no task.
        SourceError: a file is not UTF-8 or not TOML.
        ContractError: a task breaks a rule; names file and field.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of tasks")
    tasks = [_read_task(path) for path in sorted(folder.glob("*.toml"))]
    if not tasks:
        raise UsageError(f"{folder}: no task (*.toml) in this folder")
    return sorted(tasks, key=lambda task: (task.level, task.problem_id))


def task_rows(tasks: Iterable[TaskSample]) -> list[dict[str, Any]]:
    """KernelBench's columns: level, problem_id, name, code."""
    return [
        {"level": task.level, "problem_id": task.problem_id, "name": task.name, "code": task.pytorch} for task in tasks
    ]


def kernel_rows(tasks: Iterable[TaskSample], device: str) -> list[dict[str, Any]]:
    """One row per bundled kernel: level, problem_id, sample_id, problem_name, kernel_code.

    Raises:
        UsageError: there are no kernels for `device`.
    """
    if device not in DEVICES:
        raise UsageError(f"bundled kernels are for {' and '.join(DEVICES)}, not for {device!r}")
    return [
        {
            "level": task.level,
            "problem_id": task.problem_id,
            "sample_id": SAMPLE_ID,
            "problem_name": task.name,
            "kernel_code": task.kernels[device],
        }
        for task in tasks
    ]


def jsonl(rows: Iterable[dict[str, Any]]) -> str:
    """JSON Lines text of `rows`, keys in their own order."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def generated_files(folder: Path = TASKS_FOLDER) -> dict[Path, str]:
    """The files made from a folder of tasks and what is to be in them. Raises as `read_tasks` does."""
    tasks = read_tasks(folder)
    files = {folder.parent / "tasks.jsonl": jsonl(task_rows(tasks))}
    for device in DEVICES:
        files[folder.parent / f"task_kernels_{device}.jsonl"] = jsonl(kernel_rows(tasks, device))
    return files


def write_kernel_folder(path: Path, device: str, folder: Path = TASKS_FOLDER) -> list[Path]:
    """Write the bundled kernels as a KernelBench run folder; returns the files in order of level and problem_id.

    Raises:
        UsageError: there are no kernels for `device`; and as `read_tasks` does.
    """
    return [
        write_atomic(path / kernel_file_name(row["level"], row["problem_id"], row["sample_id"]), row["kernel_code"])
        for row in kernel_rows(read_tasks(folder), device)
    ]


def _read_task(path: Path) -> TaskSample:
    data = read_toml(path)
    for field, kind in _FIELDS.items():
        if field not in data:
            raise ContractError(f"{path}: field {field} is missing")
        if not isinstance(data[field], kind) or isinstance(data[field], bool):
            raise ContractError(f"{path}: field {field} must be {kind.__name__}, got {data[field]!r:.60}")
    if unknown := sorted(data.keys() - _FIELDS.keys()):
        raise ContractError(f"{path}: field {', '.join(unknown)} is not known; known: {', '.join(_FIELDS)}")
    if not data["name"].startswith(f"{data['problem_id']}_") or path.stem != f"{data['level']}_{data['name']}":
        raise ContractError(
            f"{path}: field name must be <problem_id>_<words> and the file <level>_<name>.toml, got {data['name']!r}"
        )
    if data["candidate"] not in CANDIDATES:
        raise ContractError(f"{path}: field candidate is {data['candidate']!r}, not one of {', '.join(CANDIDATES)}")
    return TaskSample(
        level=data["level"],
        problem_id=data["problem_id"],
        name=data["name"],
        candidate=data["candidate"],
        pytorch=data["pytorch"],
        kernels={device: data[device] for device in DEVICES},
    )


def main() -> None:
    """Write the generated files and name each that changed."""
    write_generated(generated_files())


if __name__ == "__main__":
    main()
