"""The metadata that others' tools read: Croissant by its own validator, the card by Hugging Face's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import curated
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dice_core.curation.croissant import COLUMNS
from dice_core.curation.cuke import MEMBER_SCHEMA

# Its libraries warn of their own syntax and of each other.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    home = tmp_path_factory.mktemp("croissant")
    rows = [json.loads(line) for line in (root / "datasets/samples/concur_cuda.jsonl").read_text("utf-8").splitlines()]
    version = curated.curate(home, [curated.write_rows(home / "rows.jsonl", rows)]).version
    return home / "datasets" / "cuke" / version.version_id


def validated(folder: Path) -> Any:
    import mlcroissant

    return mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))


def test_croissant_validates_without_errors(folder: Path) -> None:
    dataset = validated(folder)
    issues = dataset.metadata.issues
    assert issues.errors == set()
    # Dates are left out, so that equal versions have equal bytes.
    assert all("datePublished" in one for one in issues.warnings), issues.report()


def test_croissant_reads_the_members_back(folder: Path) -> None:
    dataset = validated(folder)
    for part in ("train", "validation"):
        expected = pq.ParquetFile(folder / f"{part}.parquet").read(use_threads=False).to_pylist()
        rows = [{name.split("/")[-1]: value for name, value in row.items()} for row in dataset.records(part)]
        assert len(rows) == len(expected) > 0
        assert [row["record_id"].decode() for row in rows] == [row["record_id"] for row in expected]
        assert [row["kernel_code"].decode() for row in rows] == [row["kernel_code"] for row in expected]


def test_a_broken_croissant_is_found(folder: Path, tmp_path: Path) -> None:
    import mlcroissant

    data = json.loads((folder / "croissant.json").read_text("utf-8"))
    del data["recordSet"][0]["field"][0]["source"]["fileObject"]
    (tmp_path / "croissant.json").write_text(json.dumps(data))
    with pytest.raises(mlcroissant.ValidationError):
        mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))


def test_every_column_is_described_with_its_type() -> None:
    kinds = {pa.string(): "sc:Text", pa.float64(): "sc:Float"}
    described = {name: kind for name, (kind, _) in COLUMNS.items()}
    assert {field.name: kinds[field.type] for field in MEMBER_SCHEMA} == described
    assert all(meaning for _, meaning in COLUMNS.values())


def test_the_manifest_covers_the_metadata(folder: Path) -> None:
    files = json.loads((folder / "manifest.json").read_text("utf-8"))["files"]
    assert {"croissant.json", "README.md"} <= files.keys()


def test_the_card_is_a_hugging_face_card(folder: Path) -> None:
    from huggingface_hub import DatasetCard, DatasetCardData

    text = (folder / "README.md").read_text("utf-8")
    card = DatasetCard(text)
    data = card.data
    assert isinstance(data, DatasetCardData)
    again = DatasetCardData(**data.to_dict())
    assert again.to_dict() == data.to_dict()
    assert (data.pretty_name, data.license) == ("CuKe", "other")
    assert data.size_categories == ["n<1K"]
    assert data.task_categories == ["text-generation"]
    [config] = data.to_dict()["configs"]
    assert {entry["path"] for entry in config["data_files"]} == {"train.parquet", "validation.parquet"}
    assert card.text.lstrip().startswith("# CuKe")
    assert DatasetCard(str(card)).data.to_dict() == data.to_dict()


def test_the_card_tells_levels_and_columns(folder: Path) -> None:
    text = (folder / "README.md").read_text("utf-8")
    levels = text.split("## Difficulty")[1].split("##")[0]
    counts = [int(cell) for line in levels.splitlines() if line.startswith("| ") and line[2].isdigit()
              for cell in line.strip("| ").split(" | ")[1:]]
    members = json.loads((folder / "manifest.json").read_text("utf-8"))["members"]
    assert sum(counts) == sum(len(ids) for ids in members.values())
    assert all(f"| {name} |" in text for name in COLUMNS)


def test_the_folder_loads_as_a_dataset(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path))
    members = json.loads((folder / "manifest.json").read_text("utf-8"))["members"]
    assert {part: len(rows) for part, rows in loaded.items()} == {part: len(ids) for part, ids in members.items()}
