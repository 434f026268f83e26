from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dice_core.curation.hub import Fetched, HubPlace
from dice_core.curation.ingest import Ingested, ingest
from dice_core.curation.last_seen import check_drift
from dice_core.curation.requests import SourceRequest, parse_request, specs_of
from dice_core.errors import SchemaError, UsageError

MakeRow = Callable[..., dict[str, Any]]


def nobody(place: HubPlace) -> Fetched:
    raise AssertionError(f"nobody asked for {place}")


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_a_name_before_the_equals_sign_is_a_data_set_and_a_date_is_not(
    tmp_path: Path, make_row: MakeRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "dt=2026-11-30" / "rows.jsonl", [make_row(0)])
    write(tmp_path / "rows.jsonl", [make_row(0)])
    monkeypatch.chdir(tmp_path)
    named = parse_request("cuda_l1=rows.jsonl", licence="MIT")
    assert named.dataset is not None and named.dataset.name == "cuda_l1"
    assert (named.place, named.licence) == (Path("rows.jsonl"), "MIT")
    for text in ("dt=2026-11-30", "dt=2026-11-30/rows.jsonl"):
        assert parse_request(text) == SourceRequest(Path(text))
    other = parse_request("rows.jsonl", dataset="dice_tasks")
    assert other.dataset is not None and other.dataset.name == "dice_tasks"
    hub = parse_request("concur=hf://datasets/a/b@v1/x.parquet")
    assert hub.place == HubPlace("a/b", "v1", "x.parquet") and hub.dataset is not None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("none.jsonl", "none.jsonl: no such file or folder"),
        ("cuda_l1=none.jsonl", "none.jsonl: no such file or folder"),
        ("cuda_l2=none.jsonl", "'cuda_l2' is no declared data set (concur, cuda_l1"),
        ("hf://datasets/a", "expected hf://datasets/owner/name"),
    ],
)
def test_a_source_that_is_not_there_is_told_before_anything_starts(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_request(text)
    assert says in str(caught.value)


def test_a_folder_becomes_its_files_and_the_hub_its_fetched_ones(tmp_path: Path, make_row: MakeRow) -> None:
    for name in ("b.jsonl", "dt=1/a.jsonl"):
        write(tmp_path / name, [make_row(0)])
    (tmp_path / "what.bin").write_bytes(b"\0\1")
    file = tmp_path / "b.jsonl"
    place = HubPlace("a/b")

    def fetch(asked: HubPlace) -> Fetched:
        assert asked == place
        return Fetched({"data/x.jsonl": file}, "c" * 40, ("pinned",))

    specs, notes = specs_of([SourceRequest(tmp_path, licence="MIT"), SourceRequest(place)], fetch)
    assert [(spec.path.name, spec.uri, spec.revision, spec.licence) for spec in specs] == [
        ("b.jsonl", None, "", "MIT"), ("a.jsonl", None, "", "MIT"),
        ("b.jsonl", "hf://datasets/a/b/data/x.jsonl", "c" * 40, ""),
    ]  # fmt: skip
    assert len(notes) == 2 and "what.bin" in notes[0] and notes[1] == "pinned"


def test_a_file_that_rows_are_joined_to_is_no_source_in_a_folder(tmp_path: Path, make_row: MakeRow) -> None:
    run = {"run": "r", "model": "m", "level": 1, "problem_id": 2, "sample_id": 0, "problem_name": "p",
           "kernel_code": make_row(0)["generated_code"], "claimed_compiled": True, "claimed_correct": True,
           "claimed_runtime_ms": 1.5, "claimed_hardware": None}
    write(tmp_path / "runs.jsonl", [run])
    write(tmp_path / "kernelbench_v0_2.parquet", [{"level": 1, "problem_id": 2, "code": make_row(0)["pytorch_code"]}])
    specs, notes = SourceRequest(tmp_path).specs(nobody)
    assert [spec.path.name for spec in specs] == ["runs.jsonl"]
    assert len(notes) == 1 and "rows are joined to it" in notes[0]
    assert ingest(specs).rows[0].values["pytorch_code"] == make_row(0)["pytorch_code"]


def read(path: Path, rows: list[dict[str, Any]]) -> Ingested:
    specs, _ = parse_request(str(write(path, rows))).specs(nobody)
    return ingest(specs)


def test_columns_are_compared_with_those_last_curated(tmp_path: Path, make_row: MakeRow) -> None:
    assert check_drift(tmp_path, read(tmp_path / "1", [make_row(0)]).seen) == []
    more = read(tmp_path / "2", [make_row(0, extra=1, other="x")])
    assert check_drift(tmp_path, more.seen)[0].endswith("+ extra: number")
    # Unused columns may go and change.
    notes = check_drift(tmp_path, read(tmp_path / "3", [make_row(0, other=5)]).seen)
    assert [note.split(": ", 2)[2] for note in notes] == ["- extra: number", "~ other: was text, is number"]

    row = make_row(0, speedup_over_eager="fast")
    row["generated_thinking"] = row.pop("generated_think")
    changed = read(tmp_path / "4", [row])
    for _ in range(2):  # a refused change is not remembered
        with pytest.raises(SchemaError) as caught:
            check_drift(tmp_path, changed.seen)
        text = str(caught.value)
        assert text.startswith("concur: columns have changed since ")
        assert "- generated_think: text (now called generated_thinking?)" in text
        assert "~ speedup_over_eager: was number, is text" in text
        assert "+ generated_thinking: text" in text and "--accept-columns" in text
        assert caught.value.exit_code == 3
    check_drift(tmp_path, changed.seen, accept=True)
    assert check_drift(tmp_path, changed.seen) == []


def test_files_of_one_data_set_are_taken_together_and_nulls_are_no_type(tmp_path: Path, make_row: MakeRow) -> None:
    bare = make_row(1)
    del bare["generated_think"]
    check_drift(tmp_path, read(tmp_path / "x", [make_row(0)]).seen)
    files = [write(tmp_path / "a", [bare]), write(tmp_path / "b", [make_row(2, generated_think=None)])]
    assert check_drift(tmp_path, ingest(files).seen) == []


def test_what_was_seen_and_cannot_be_read_is_seen_anew(tmp_path: Path, make_row: MakeRow) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "concur.columns.json").write_text("{")
    seen = read(tmp_path / "x", [make_row(0)]).seen
    assert check_drift(tmp_path, seen) == []
    found = json.loads((tmp_path / "sources" / "concur.columns.json").read_text())
    assert found["columns"]["speedup_over_eager"] == ["number"]
