"""`dice datasets`: listing, comparing, following a row, exporting."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import curated
import curation_rows as make
import duckdb
import pyarrow as pa
import pytest

from dice_core.curation.pipeline import CurationConfig
from dice_core.lake.catalog import Lake
from dice_core.lake.checks import run_checks
from flows import cli


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Dice = Callable[..., Done]


@dataclass(frozen=True)
class House:
    home: Path
    old: curated.Curated
    new: curated.Curated


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two versions: the second has another threshold, a measurement, and one more source."""
    home = tmp_path_factory.mktemp("house")
    plain = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return torch.relu(x)\n"
    rows = [make.raw_row(number) for number in range(12)]
    rows += [make.raw_row(0, uuid="again"), make.raw_row(1, uuid="plain", generated_code=plain),
             make.raw_row(2, uuid="empty", generated_code=None), make.raw_row(3, uuid="slow", speedup_over_eager=1.2,
                                                                          pytorch_code=make.module("relu", 999)),
             make.raw_row(13, uuid="edge", speedup_over_eager=1.6)]
    first = curated.write_rows(home / "rows.jsonl", rows, broken_line=True)
    more = curated.write_rows(home / "more.jsonl", [make.raw_row(20, uuid="u20"), make.raw_row(20, uuid="u20 again")])
    old = curated.curate(home, [first])
    measured = curated.attempt_for(old.record("u4"))
    new = curated.curate(home, [first, more], CurationConfig(threshold=1.5), attempts=[measured])
    return House(home, old, new)


@pytest.fixture
def dice(house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Dice]:
    """Run the command in this process."""

    def run(*argv: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["dice", "--home", str(house.home), *argv])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        shown = capsys.readouterr()
        code = stop.value.code
        return Done(code if isinstance(code, int) else 0, shown.out, shown.err)

    for name in ("DICE_HOME", "DICE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    yield run


def test_versions_are_listed_and_shown(house: House, dice: Dice) -> None:
    listed = dice("datasets", "ls", "--json").json
    assert {row["dataset_version_id"] for row in listed} == {house.old.version.version_id, house.new.version.version_id}
    assert dice("datasets", "--json").json == listed
    shown = dice("datasets", "show", house.old.version.version_id[:12], "--json").json
    assert shown["dataset_version_id"] == house.old.version.version_id
    assert sum(shown["members"].values()) == shown["n_records"] == len(house.old.version.members)
    assert [row["step"] for row in shown["funnel"]][:2] == ["ingest", "contract"]
    assert house.old.version.merkle_root in dice("datasets", "show", house.old.version.version_id).out


def test_the_lake_is_sound(house: House) -> None:
    with Lake.open(house.home, read_only=True) as lake:
        assert [one.name for one in run_checks(lake) if not one.passed] == []


def test_the_card_is_printed(house: House, dice: Dice) -> None:
    done = dice("datasets", "card", house.new.version.version_id)
    folder = house.home / "datasets" / "cuke" / house.new.version.version_id
    assert done.out == (folder / "README.md").read_text("utf-8")
    assert dice("datasets", "card", house.new.version.version_id, "--json").json == {"card": done.out}


def test_diff_finds_what_changed(house: House, dice: Dice) -> None:
    old, new = house.old.version.version_id, house.new.version.version_id
    found = dice("datasets", "diff", old, new, "--json").json
    assert {row["uuid"] for row in found["added"]} == {"edge", "u20"}
    assert found["removed"] == []
    changed = {row["record_id"]: row for row in found["changed"]}
    record = house.old.record("u4").record_id
    assert changed[record]["evidence"] == {"old": "claimed", "new": "measured"}
    assert {row["name"]: (row["old"], row["new"]) for row in found["config"]} == {"threshold": ("2", "1.5")}
    assert {"name": "ingest in", "old": 18, "new": 20} in found["funnel"]
    assert [row["uri"] for row in found["sources"]["only_new"]] == ["more.jsonl"]
    assert not found["same"]
    back = dice("datasets", "diff", new, old, "--json").json
    why = {row["uuid"]: row["why"] for row in back["removed"]}
    assert why["edge"] == "dropped at speedup by below_threshold: claimed 1.6x < 2x"
    assert why["u20"] == "not among what the new curation kept"
    text = dice("datasets", "diff", old, new).out
    assert "added: 2" in text and "evidence claimed -> measured" in text and "threshold: 2 -> 1.5" in text


def test_diff_of_a_version_with_itself_is_empty(house: House, dice: Dice) -> None:
    one = house.old.version.version_id
    assert dice("datasets", "diff", one, one, "--json").json["same"] is True
    assert dice("datasets", "diff", one, one).out.splitlines()[-1] == "the same"


def test_explain_a_member_with_its_measurement(house: House, dice: Dice) -> None:
    record = house.old.record("u4")
    found = dice("datasets", "explain", record.record_id, "--json").json
    assert [row["record_id"] for row in found["records"]] == [record.record_id]
    assert found["source"]["row_locator"] == record.row_locator
    assert found["source"]["uri"] == "rows.jsonl"
    assert len(found["curations"]) == 2
    for curation in found["curations"]:
        steps = list(dict.fromkeys(one["step"] for one in curation["decisions"]))
        assert steps == ["dedup", "overlap", "honesty", "speedup"]
        assert curation["outcome"].startswith("member of dsv_")
    [attempt] = found["attempts"]
    assert attempt["decided"] and attempt["verdict"] == "CORRECT"
    assert attempt["timed_samples"] > attempt["candidate_samples"] > 0
    assert attempt["speedup_low"] < attempt["speedup"] < attempt["speedup_high"]
    assert {row["evidence"] for row in found["versions"]} == {"claimed", "measured"}
    text = dice("datasets", "explain", record.record_id[:16]).out
    assert "decided" in text and "timed calls" in text and "measured_speedup" in text


@pytest.mark.parametrize(
    ("uuid", "step", "rule"), [("again", "dedup", "exact"), ("plain", "honesty", "no_custom_kernel"),
                               ("slow", "speedup", "below_threshold")])
def test_explain_a_dropped_row(house: House, dice: Dice, uuid: str, step: str, rule: str) -> None:
    found = dice("datasets", "explain", uuid, "--json").json
    assert found["curations"][0]["outcome"] == f"dropped at {step} by {rule}"
    assert found["versions"] == []


def test_explain_names_duplicates_on_both_sides(house: House, dice: Dice) -> None:
    first, again = house.old.record("u0"), house.old.record("again")
    kept = dice("datasets", "explain", first.record_id, "--json").json
    assert {row["record_id"] for row in kept["duplicates"]} == {again.record_id}
    repeat = dice("datasets", "explain", again.record_id, "--json").json
    assert repeat["duplicate_of"] == [first.record_id]


def test_explain_a_quarantined_row_and_a_broken_line(house: House, dice: Dice) -> None:
    found = dice("datasets", "explain", "empty", "--json").json
    assert found["records"] == [] and found["curations"] == []
    assert {row["field"] for row in found["quarantine"]} == {"generated_code"}
    row = found["quarantine"][0]
    assert dice("datasets", "explain", row["quarantine_id"], "--json").json == found
    broken = house.old.ingested.quarantine[0]
    place = f"{broken.source_file_id}#{broken.row_locator}"
    assert dice("datasets", "explain", place, "--json").json["quarantine"][0]["rule"] == "json_line"
    assert "quarantined qua_" in dice("datasets", "explain", place).out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("explain", "rec_"), "rows: "),
        (("explain", "nobody"), "no row 'nobody'"),
        (("explain", ""), "no row ''"),
        (("explain", "%"), "no row '%'"),
        (("diff", "latest", "dsv_none"), "no dataset version 'dsv_none'"),
        (("show", "dsv_"), "is the beginning of 2 dataset versions"),
        (("card", ""), "no dataset version ''"),
        (("export", "latest", "--format", "csv"), "known are infilling"),
    ],
)
def test_wrong_names_are_usage_errors(dice: Dice, argv: tuple[str, ...], says: str) -> None:
    done = dice("datasets", *argv)
    assert done.code == 2
    assert says in " ".join(done.err.split())
    assert done.out == ""


def test_export_writes_into_the_home_or_where_it_is_told(house: House, dice: Dice, tmp_path: Path) -> None:
    version = house.new.version.version_id
    found = dice("datasets", "export", version, "--format", "dice-infilling", "--json").json
    folder = house.home / "exports" / version / "dice-infilling"
    assert (found["folder"], found["written"], found["left_out"]) == (str(folder), True, {})
    assert found["rows"] == found["members"] == len(house.new.version.members)
    assert dice("datasets", "export", version, "--format", "dice-infilling", "--json").json["written"] is False
    done = dice("datasets", "export", version, "--format", "tasks", "--out", str(tmp_path / "t"))
    assert done.out.strip() == str(tmp_path / "t")
    assert (tmp_path / "t" / "tasks_train.jsonl").is_file()
    assert "members" in done.err


def test_an_altered_version_is_an_audit_error(house: House, dice: Dice) -> None:
    path = house.home / "datasets" / "cuke" / house.old.version.version_id / "train.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    try:
        for argv in (("export", path.parent.name, "--format", "sft"), ("card", path.parent.name)):
            done = dice("datasets", *argv)
            assert done.code == 4
            assert "train.parquet" in done.err
    finally:
        path.write_bytes(data)


def test_a_version_is_rebuilt_from_the_lake_now_and_then(house: House, dice: Dice, tmp_path: Path) -> None:
    with Lake.open(house.home, read_only=True) as lake:
        snapshots = [one.snapshot_id for one in lake.snapshots()]
    old, new = house.old.version, house.new.version
    for version in (old, new):
        found = dice("datasets", "rebuild", version.version_id, "--json").json
        assert (found["merkle_root"], found["written"]) == (version.merkle_root, False)
    out = tmp_path / "again"
    then = next(one for one in snapshots if dice("datasets", "rebuild", old.version_id, "--as-of", str(one),
                                                 "--out", str(out)).code == 0)
    assert then < snapshots[-1]
    folder = house.home / "datasets" / "cuke" / old.version_id
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in (out / old.version_id).iterdir()}
    early = dice("datasets", "rebuild", new.version_id, "--as-of", str(then))
    assert early.code == 2 and f"at snapshot {then}" in early.err
    assert dice("datasets", "rebuild", "latest", "--as-of", "9999").code == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("update training_record set kernel_code = kernel_code || '#' where uuid = 'u4'", "its text gives"),
        ("update training_record set claimed_speedup = 1.4 where uuid = 'u5'", "its evidence gives drop"),
        ("update attempt set speedup_low = 1.0", "its evidence gives drop by below_threshold"),
        ("delete from attempt", "its evidence gives keep by claimed_speedup"),
        ("update decision set verdict = 'drop' where step = 'honesty' and verdict = 'keep'", "dropped by an earlier"),
        ("delete from decision where record_id in (select record_id from training_record where uuid = 'u6')",
         "Merkle root"),
        ("delete from training_record where uuid = 'u7'", "not in the lake"),
        ("update dataset_version set funnel_json = '{}'", "its id is"),
        ("delete from curation", "not in the lake"),
    ],
)
def test_a_lake_that_was_altered_gives_another_version(house: House, tmp_path: Path, change: str, says: str) -> None:
    from dice_core.curation.rebuild import rebuild
    from dice_core.curation.versions import find_version
    from dice_core.errors import AuditError

    altered = Altered(house.home, change)
    stored = find_version(altered, house.new.version.version_id, house.home / "datasets")
    with pytest.raises(AuditError, match=says):
        rebuild(altered, stored)


def test_a_version_made_under_other_rules_is_told_apart(house: House) -> None:
    from dice_core.curation.rebuild import rebuild
    from dice_core.curation.versions import find_version
    from dice_core.errors import UsageError

    older = Altered(house.home, """update dataset_version set recipe_json = replace(recipe_json, '"rules_version":"',
                                   '"rules_version":"0')""")
    with pytest.raises(UsageError, match="rules version 02"):
        rebuild(older, find_version(older, house.new.version.version_id, house.home / "datasets"))


class Altered:
    """The lake's rows copied into plain tables, and one of them changed behind DICE's back."""

    def __init__(self, home: Path, change: str) -> None:
        self.con = duckdb.connect()
        with Lake.open(home, read_only=True) as lake:
            for name in ("training_record", "decision", "attempt", "source_file", "curation", "dataset_version"):
                self.con.register("incoming", lake.query(f"select * from {name}"))
                self.con.execute(f"create table {name} as select * from incoming")
        changed = self.con.execute(change).fetchone()
        assert changed is not None and changed[0] > 0

    def query(self, sql: str, parameters: Sequence[Any] = (), *, as_of: int | None = None) -> pa.Table:
        return self.con.execute(sql, list(parameters)).to_arrow_table()
