"""Nights over a folder: only what is new is read, nothing accepted is lost. Tasks are called without Prefect."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dice_core.curation import pipeline
from dice_core.curation.pipeline import Step
from dice_core.curation.readings import with_known
from dice_core.curation.requests import SourceRequest
from dice_core.curation.tables import curation_tables
from dice_core.lake.checks import run_checks
from dice_core.records import Environment, utc_now
from dice_core.settings import Settings
from tasks.context import Run
from tasks.contract import check_contract, curation_config
from tasks.ingest import SourcesRead, identify, read_sources, remember_nights


class Silent:
    def __call__(self, step: str, done: int, total: int, note: str = "") -> None:
        pass


@pytest.fixture
def run(home: Path) -> Run:
    settings = Settings.load({"home": str(home), "evidence": "claimed"}, env={})
    return Run(settings, "run_0", "cpu", Environment({"isolation": "none"}, {}), Silent())


@pytest.fixture
def rows(root: Path) -> list[dict[str, Any]]:
    text = (root / "datasets/samples/concur_cuda.jsonl").read_text("utf-8")
    return [row for row in map(json.loads, text.splitlines()) if row.get("uuid")][:24]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def night(run: Run, folder: Path, number: int) -> tuple[SourcesRead, Step, str]:
    """The first two steps of a night as the flow does them, and their commit."""
    run = replace(run, run_id=f"run_{number}")
    read = read_sources.fn(run, [SourceRequest(folder)], nightly=True)
    config = curation_config(run, None, None)
    curation = identify(run, read, config, augmented=False)
    ingested, contract = with_known(read.new, check_contract.fn(run, read.new), read.known, read.files)
    steps = [contract, pipeline.deduplicate(contract)]
    tables = curation_tables(run.run_id, curation, config, ingested, steps, counters=pipeline.funnel(ingested, steps),
                             started_at=utc_now())
    with run.lake() as lake:
        lake.commit(tables, message="night", run_id=run.run_id)
        assert [check.name for check in run_checks(lake) if not check.passed] == []
    remember_nights(run, read)
    return read, contract, curation


def codes(step: Step) -> list[tuple[str, str]]:
    return [(record.uuid, record.row_locator) for record in step.records]


@pytest.mark.slow
def test_only_new_and_changed_files_are_read_and_nothing_accepted_is_lost(
    tmp_path: Path, run: Run, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path / "in"
    first = write(folder / "dt=2026-11-30" / "rows.jsonl", [*rows[:4], {**rows[4], "speedup_over_eager": -1}])
    first.write_text(first.read_text("utf-8") + "{broken\n", "utf-8")
    read, one, id_one = night(run, folder, 1)
    assert (len(read.new.rows), read.known) == (5, ())
    assert one.counters == {"in": 5, "kept": 4, "out:speedup_range": 1}

    # The same again changes nothing.
    read, again, id_again = night(run, folder, 2)
    assert (read.new.rows, read.new.counters) == ((), {"in": 0, "kept": 0})
    assert (again.counters, codes(again), id_again) == (one.counters, codes(one), id_one)
    assert again.records == one.records

    # A late file in an older date's folder is found, and read alone.
    late = write(folder / "dt=2026-11-29" / "late.jsonl", rows[6:10])
    read, two, id_two = night(run, folder, 3)
    assert [row.values["uuid"] for row in read.new.rows] == [row["uuid"] for row in rows[6:10]]
    assert two.counters == {"in": 9, "kept": 8, "out:speedup_range": 1}
    assert codes(two) == [*codes(one), *((row["uuid"], f"line {n}") for n, row in enumerate(rows[6:10], 1))]
    assert id_two != id_one

    # What is rotated away stays; what is changed is replaced; what is renamed is the same.
    first.unlink()
    write(late, rows[6:9])
    write(folder / "new.jsonl", rows[10:12])
    read, three, _ = night(run, folder, 4)
    assert len(read.new.rows) == 5
    assert sorted(uuid for uuid, _ in codes(three)) == sorted(row["uuid"] for row in [*rows[:4], *rows[6:9],
                                                                                       *rows[10:12]])
    assert any("rows.jsonl: no longer there; its 4 records" in note for note in read.notes)
    assert any("late.jsonl: changed since the last night" in note for note in read.notes)
    shutil.move(folder / "new.jsonl", folder / "renamed.jsonl")
    read, four, _ = night(run, folder, 5)
    assert not read.new.rows and sorted(codes(four)) == sorted(codes(three))
    with run.lake() as lake:
        assert lake.query("select count(*) from quarantine").column(0)[0].as_py() == 2


@pytest.mark.slow
def test_a_night_in_pieces_is_the_same_as_one_over_all(
    tmp_path: Path, run: Run, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path / "in"
    for number in range(4):
        write(folder / f"{number}.jsonl", rows[number * 6 : number * 6 + 6])
        _, pieces, identity = night(run, folder, number)
    other = replace(run, settings=replace(run.settings, home=tmp_path_factory.mktemp("other")))
    _, whole, at_once = night(other, folder, 9)
    assert pieces.records == whole.records and pieces.counters == whole.counters
    assert identity == at_once


def test_another_contract_or_declaration_is_another_reading(
    tmp_path: Path, run: Run, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    folder = tmp_path / "in"
    write(folder / "rows.jsonl", rows[:3])
    night(run, folder, 1)
    other = tmp_path / "contract.json"
    other.write_text((root / "datasets/concur/contract.json").read_text("utf-8") + "\n", "utf-8")
    monkeypatch.setattr("tasks.ingest.CONTRACT", other)
    read = read_sources.fn(run, [SourceRequest(folder)], nightly=True)
    assert len(read.new.rows) == 3 and not read.known


def test_a_gone_file_that_never_reached_the_lake_is_named(
    tmp_path: Path, run: Run, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path / "in"
    lost = write(folder / "lost.jsonl", rows[:2])
    write(folder / "kept.jsonl", rows[2:4])
    remember_nights(run, read_sources.fn(run, [SourceRequest(folder)], nightly=True))  # and killed before the commit
    lost.unlink()
    read = read_sources.fn(run, [SourceRequest(folder)], nightly=True)
    assert len(read.new.rows) == 2
    assert any("lost.jsonl: no longer there, and the lake does not have" in note for note in read.notes)
