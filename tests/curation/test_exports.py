from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import curated
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice_core.curation.difficulty import difficulty
from dice_core.curation.exports import COLUMNS, FORMS, Export, export, read_items, write_export
from dice_core.curation.versions import StoredVersion, find_version, read_members
from dice_core.errors import AuditError, UsageError
from dice_core.lake.catalog import Lake
from dice_core.model.prompts import extract_kernel, generation_prompt

Members = list[dict[str, Any]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, root: Path) -> tuple[StoredVersion, Members]:
    """The bundled CUDA rows, curated on their claims, and one Triton kernel and one that nothing compiles."""
    home = tmp_path_factory.mktemp("exports")
    rows = [json.loads(line) for line in (root / "datasets/samples/concur_cuda.jsonl").read_text("utf-8").splitlines()]
    task = rows[0]["pytorch_code"]
    odd = {"generated_think": "", "speedup_over_eager": 4.0}
    computed = rows[0]["generated_code"].replace("load_inline(", "load_inline(extra_cflags=[], ", 1)
    computed += '\ncuda_source = "x" + "y"\nsource = "x" + "y"\nsources = "x" + "y"\n'
    rows.append({**odd, "uuid": "odd", "problem_name": "odd", "pytorch_code": task, "generated_code": computed})
    version = curated.curate(home, [curated.write_rows(home / "rows.jsonl", rows)]).version
    with Lake.open(home, read_only=True) as lake:
        found = find_version(lake, "latest", home / "datasets")
    assert found.version_id == version.version_id
    return found, read_members(found)


def made(stored: tuple[StoredVersion, Members], form: str) -> Export:
    return export(*stored, form)


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_lost_and_the_order_is_easy_to_hard(stored: tuple[StoredVersion, Members], form: str) -> None:
    version, members = stored
    one = made(stored, form)
    manifest = one.manifest
    listed = [identity for ids in manifest["record_ids"].values() for identity in ids]
    gone = [row["record_id"] for row in manifest["left_out"]]
    assert sorted(listed + gone) == sorted(row["record_id"] for row in members)
    assert one.rows == len(listed) == manifest["rows"]
    assert sum(one.left_out.values()) == len(gone)
    assert all(row["reason"] and row["detail"] for row in manifest["left_out"])
    code = {row["record_id"]: row["pytorch_code"] for row in members}
    split = {row["record_id"]: row["split"] for row in members}
    for part, ids in manifest["record_ids"].items():
        levels = [difficulty(code[identity]).order for identity in ids]
        assert levels == sorted(levels)
        assert {split[identity] for identity in ids} <= {part}
    assert len(one.files) == (3 if form == "llamafactory" else 2)
    assert manifest["dataset_version_id"] == version.version_id


def test_dices_infilling_schema(stored: tuple[StoredVersion, Members]) -> None:
    one = made(stored, "dice-infilling")
    items = json.loads(one.files["kernel_infilling_train.json"])
    assert len(items) > 20
    for number, item in enumerate(items):
        assert list(item) == ["id", "pytorch_code", "cuda_code", "prefix", "middle", "suffix"]
        assert item["id"] == number
        assert item["prefix"] + item["middle"] + item["suffix"] == item["cuda_code"]
        assert item["middle"]
    assert set(one.left_out) <= {"assigned_again", "computed_string", "no_kernel", "unknown_name"}
    assert one.left_out


def test_dices_task_schema(stored: tuple[StoredVersion, Members]) -> None:
    one = made(stored, "dice-tasks")
    items = json.loads(one.files["end_to_end_kernel_generation_train.json"])
    for number, item in enumerate(items):
        assert list(item) == ["idx", "level", "pytorch_code", "cuda_code", "raw_answer"]
        assert (item["idx"], item["cuda_code"]) == (number, "")
        assert item["level"] in ("0", "1", "2", "3")
        assert item["raw_answer"].endswith(f"\\boxed{{{item['level']}}}")
    assert len({item["pytorch_code"] for item in items}) == len(items)
    assert one.left_out["same_module"] >= 1


@pytest.mark.parametrize("form", ["infilling", "tasks", "sft"])
def test_our_own_lines_have_documented_columns(stored: tuple[StoredVersion, Members], form: str) -> None:
    one = made(stored, form)
    rows = [row for data in one.files.values() for row in lines(data)]
    assert len(rows) == one.rows
    for row in rows:
        assert list(row) == list(FORMS[form].columns)
        assert set(row) <= one.manifest["columns"].keys() <= COLUMNS.keys()


def test_the_sft_pairs_are_those_of_training(stored: tuple[StoredVersion, Members]) -> None:
    code = {row["record_id"]: row for row in stored[1]}
    ours = lines(made(stored, "sft").files["sft_train.jsonl"])
    theirs = json.loads(made(stored, "llamafactory").files["CuKe_dataset.json"])
    assert [{"prompt": row["prompt"], "response": row["response"]} for row in ours] == theirs
    for row in ours:
        assert row["prompt"] == generation_prompt(code[row["record_id"]]["pytorch_code"])
        kernel = extract_kernel(row["response"])
        assert kernel is not None and kernel.strip() == code[row["record_id"]]["kernel_code"].strip()


def test_llamafactorys_registry_names_the_files(stored: tuple[StoredVersion, Members]) -> None:
    one = made(stored, "llamafactory")
    info = json.loads(one.files["dataset_info.json"])
    assert info["CuKe"] == {"file_name": "CuKe_dataset.json", "columns": {"prompt": "prompt", "response": "response"}}
    assert {entry["file_name"] for entry in info.values()} == one.files.keys() - {"dataset_info.json"}
    assert all("formatting" not in entry for entry in info.values())


@pytest.mark.filterwarnings("ignore")
def test_the_parquet_loads_with_datasets(
    stored: tuple[StoredVersion, Members], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    one = made(stored, "parquet")
    write_export(one, tmp_path / "out")
    files = {part: str(tmp_path / "out" / f"{part}.parquet") for part in ("train", "validation")}
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    assert {part: len(loaded[part]) for part in files} == one.manifest["rows_by_split"]
    assert loaded["train"]["record_id"][:] == one.manifest["record_ids"]["train"]
    assert set(loaded["train"].column_names) >= {"level", "middle", "pytorch_code", "kernel_code"}
    whole = [row for row in loaded["train"] if row["middle"] is not None]
    assert whole and all(row["prefix"] + row["middle"] + row["suffix"] == row["kernel_code"] for row in whole)


def test_writing_twice_writes_once_and_repairs(stored: tuple[StoredVersion, Members], tmp_path: Path) -> None:
    one = made(stored, "tasks")
    assert write_export(one, tmp_path / "out") is True
    assert write_export(made(stored, "tasks"), tmp_path / "out") is False
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "out" / "tasks_train.jsonl").write_text("")
    assert write_export(one, tmp_path / "out") is True
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    manifest = json.loads(before["manifest.json"])
    assert {name: len(data) for name, data in before.items() if name != "manifest.json"} == {
        name: entry["size_bytes"] for name, entry in manifest["files"].items()}


def test_anothers_folder_is_left_alone(stored: tuple[StoredVersion, Members], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    write_export(made(stored, "sft"), tmp_path / "sft")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path, tmp_path / "sft", tmp_path / "file"):
        with pytest.raises(UsageError, match="something else"):
            write_export(made(stored, "tasks"), folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine.txt", "sft"]


def test_unknown_formats_and_altered_versions(stored: tuple[StoredVersion, Members], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="known are infilling, tasks"):
        export(*stored, "csv")
    import shutil
    from dataclasses import replace

    copy = tmp_path / stored[0].version_id
    shutil.copytree(stored[0].folder, copy)
    with pytest.raises(AuditError, match="Merkle root"):
        read_members(replace(stored[0], folder=copy, merkle_root="0" * 64))
    (copy / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(AuditError, match=r"train\.parquet"):
        read_members(replace(stored[0], folder=copy))


@given(st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=10)
def test_the_order_of_members_does_not_matter(stored: tuple[StoredVersion, Members], chance: Any) -> None:
    members = list(stored[1])
    chance.shuffle(members)
    assert export(stored[0], members, "dice-tasks") == made(stored, "dice-tasks")


def test_a_module_without_a_level_is_left_out(make_module: Callable[..., str]) -> None:
    row = {"record_id": "r", "pytorch_code": "class Other: pass", "kernel_code": ""}
    items, gone = read_items([row, {**row, "record_id": "s", "pytorch_code": make_module()}])
    assert [item.row["record_id"] for item in items] == ["s"]
    assert [(one.record_id, one.reason) for one in gone] == [("r", "no_level")]
