from __future__ import annotations

import ast
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from candidate_modules import assert_discriminating, assert_same_state

from dice_core.bench.kernelbench import read_kernel_folder
from dice_core.bench.problems import load_suite
from dice_core.curation.overlap import OverlapIndex
from dice_core.curation.task_samples import TASKS_FOLDER, TaskSample, generated_files, read_tasks, write_kernel_folder
from dice_core.errors import ContractError, SourceError, UsageError

TASKS = read_tasks()


def test_generated_files_are_up_to_date() -> None:
    files = generated_files()
    assert {path.name for path in files} == {"tasks.jsonl", "task_kernels_cpu.jsonl", "task_kernels_cuda.jsonl"}
    for path, text in files.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m dice_core.curation.task_samples"


def test_tasks_are_a_suite_in_kernelbench_form() -> None:
    problems = load_suite(TASKS_FOLDER.parent / "tasks.jsonl", "samples")
    assert Counter(problem.level for problem in problems) == {1: 5, 2: 4, 3: 3}
    assert [problem.name for problem in problems] == [task.name for task in TASKS]
    for problem in problems:
        body = ast.parse(problem.source).body
        sizes = [node for node in body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
        assert sizes, f"{problem.name} has no module-level size"


def test_bundled_kernels_are_not_all_good() -> None:
    assert Counter(task.candidate for task in TASKS) == {"fast": 9, "slow": 2, "wrong": 1}


def test_kernel_rows_name_their_problem() -> None:
    for device in ("cpu", "cuda"):
        text = (TASKS_FOLDER.parent / f"task_kernels_{device}.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
        assert [(row["level"], row["problem_id"], row["problem_name"]) for row in rows] == [
            (task.level, task.problem_id, task.name) for task in TASKS
        ]
        assert all(row["sample_id"] == 0 and "class ModelNew" in row["kernel_code"] for row in rows)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_references_depend_on_inputs_and_weights(task: TaskSample, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    assert_discriminating(task.pytorch, tmp_path)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_kernels_keep_parameters_and_ask_for_one_build(task: TaskSample, device: str, tmp_path: Path) -> None:
    requests = assert_same_state(task.pytorch, task.kernels[device], tmp_path)
    assert len(requests) == 1 and requests[0].with_cuda == (device == "cuda")


def test_no_task_is_kernelbenchs_own(real_data: Path) -> None:
    suite = load_suite(real_data / "kernelbench" / "kernelbench_v0_2.parquet")
    index = OverlapIndex.build([(problem.name, problem.source) for problem in suite])
    theirs = {problem.name.partition("_")[2].lower() for problem in suite}
    for task in TASKS:
        assert index.find(task.pytorch) is None
        assert task.name.partition("_")[2].lower() not in theirs


def test_kernel_folder_has_kernelbench_names(tmp_path: Path) -> None:
    written = write_kernel_folder(tmp_path / "run", "cuda")
    assert written[0].name == "level_1_problem_1_sample_0_kernel.py"
    found = read_kernel_folder(tmp_path / "run")
    assert [(one.level, one.number, one.sample_id) for one in found] == [(t.level, t.problem_id, 0) for t in TASKS]
    assert [one.source for one in found] == [task.kernels["cuda"] for task in TASKS]
    with pytest.raises(UsageError, match="not for 'tpu'"):
        write_kernel_folder(tmp_path / "run", "tpu")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("level = 1", "", "field level is missing"),
        ("level = 1", 'level = "1"', "field level must be int"),
        ("level = 1", "level = 2", "field name must be"),
        ('candidate = "fast"', 'candidate = "best"', "field candidate is 'best'"),
        ("level = 1", "level = 1\nspeed = 3", "field speed is not known"),
    ],
)
def test_broken_task_names_file_and_field(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = Path(shutil.copy(TASKS_FOLDER / "1_1_SnakeActivation.toml", tmp_path))
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(ContractError, match=message) as error:
        read_tasks(tmp_path)
    assert str(path) in str(error.value)


def test_unreadable_tasks(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        read_tasks(tmp_path / "absent")
    with pytest.raises(UsageError, match="no task"):
        read_tasks(tmp_path)
    path = tmp_path / "1_1_SnakeActivation.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(SourceError, match=f"{path}: byte 0 is not UTF-8"):
        read_tasks(tmp_path)
    path.write_text("level = ")
    with pytest.raises(SourceError, match=f"{path}: not TOML"):
        read_tasks(tmp_path)
