from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dice_core.curation.cuke import SPLITS, CukeVersion, Kept, Recipe, assemble, verify_version, write_version
from dice_core.curation.families import families, split
from dice_core.curation.merkle import merkle_root
from dice_core.curation.speedup_filter import Measurement
from dice_core.errors import AuditError, UsageError
from dice_core.model.prompts import extract_kernel
from dice_core.records import Decision, Honesty, TrainingRecord, Verdict

MakeRecord = Callable[..., TrainingRecord]

FUNNEL = {
    "ingest": {"in": 14, "kept": 14},
    "speedup": {"in": 14, "kept": 12, "out:below_threshold": 1, "out:infra_retry": 1},
    "cuke": {"in": 12, "kept": 12},
}
SOURCE = {"uri": "hub://rows", "revision": "abc", "sha256": "0" * 64, "size_bytes": 9, "licence": "MIT"}


def _version(make_record: MakeRecord, count: int = 12, *, threshold: str = "2", backwards: bool = False) -> CukeVersion:
    records = [make_record(number) for number in range(count)]
    ids = (records[0].problem_id, records[0].kernel_id)
    measured = Measurement("att_1", *ids, "env_1", "cpu", Verdict.CORRECT, Honesty.OWN, 3.0, 2.5, 3.5)
    kept = [Kept(records[0], "measured", measured), *(Kept(record, "claimed") for record in records[1:])]
    decisions = [
        Decision(records[0].record_id, "honesty", "has_fallback", "flag", ""),
        Decision("rec_gone", "honesty", "no_kernel", "drop", ""),
        Decision(records[0].record_id, "overlap", "no_overlap", "keep", ""),
    ]
    recipe = Recipe("cur_1", {"threshold": threshold, "evidence": "auto"}, [SOURCE], {"gpu": "none"})
    return assemble(kept[::-1] if backwards else kept, recipe, funnel=FUNNEL, decisions=decisions)


def test_merkle_root_is_rfc_6962s() -> None:
    def leaf(text: str) -> bytes:
        return hashlib.sha256(b"\x00" + text.encode()).digest()

    def node(left: bytes, right: bytes) -> bytes:
        return hashlib.sha256(b"\x01" + left + right).digest()

    assert merkle_root([]) == hashlib.sha256(b"").hexdigest()
    assert merkle_root(["a"]) == leaf("a").hex()
    ab = node(leaf("a"), leaf("b"))
    assert merkle_root(["c", "a", "b"]) == node(ab, leaf("c")).hex()
    cd = node(leaf("c"), leaf("d"))
    assert merkle_root("edcba") == node(node(ab, cd), leaf("e")).hex()
    with pytest.raises(ValueError, match="twice"):
        merkle_root(["a", "a"])


def test_a_family_is_joined_through_names_structures_and_parents(
    make_record: MakeRecord, make_module: Callable[..., str]
) -> None:
    relu = make_record(0)
    resized = make_record(1, pytorch_code=make_module("relu", 5))
    same_name = make_record(2, problem_name="Relu twice-0")
    generic = [make_record(3, problem_name="Model"), make_record(4, problem_name="model")]
    labelled = [make_record(5, structure="gqa"), make_record(6, structure="gqa")]
    child = make_record(7, parent_record_id=labelled[0].record_id)
    records = [relu, resized, same_name, *generic, *labelled, child]
    family = families(records)
    groups = [family[record.record_id] for record in records]
    assert groups[0] == groups[1] == groups[2]
    assert groups[3] != groups[4]
    assert groups[5] == groups[6] == groups[7]
    assert len(set(groups)) == 4
    assert families(records[::-1]) == family


def test_the_split_never_divides_a_family_and_takes_about_a_tenth(make_record: MakeRecord) -> None:
    records = [
        make_record(number, problem_name=f"problem {number // 4}", pytorch_code=f"class Model{number // 4}: pass",
                    kernel_code=f"kernel {number // 4}")
        for number in range(800)
    ]
    parts = split(records)
    by_family: dict[str, set[str]] = {}
    for record in records:
        by_family.setdefault(record.problem_name, set()).add(parts[record.record_id])
    assert all(len(found) == 1 for found in by_family.values())
    assert 0.04 < list(parts.values()).count("validation") / len(parts) < 0.18
    # More data leaves the split of what was there as it was.
    assert {key: parts[key] for key in split(records[:400])} == split(records[:400])


def test_ten_families_have_a_validation_set_and_nine_have_none(make_record: MakeRecord) -> None:
    for count in range(10, 13):
        assert "validation" in split([make_record(number) for number in range(count)]).values()
    nine = split([make_record(number) for number in range(9)])
    assert set(nine.values()) == {"train"}


def test_a_family_that_is_most_of_the_data_stays_in_training(make_record: MakeRecord) -> None:
    for salt in range(40):
        large = [make_record(0, row_locator=f"row {n}", problem_name=f"salt {salt}") for n in range(20)]
        parts = split(large + [make_record(number) for number in range(1, 12)])
        assert parts[large[0].record_id] == "train"


def test_equal_inputs_give_equal_bytes_whatever_their_order(tmp_path: Path, make_record: MakeRecord) -> None:
    one = write_version(_version(make_record), tmp_path / "a")
    two = write_version(_version(make_record, backwards=True), tmp_path / "b")
    assert one.name == two.name
    files = sorted(path.name for path in one.iterdir())
    assert files == [
        "README.md", "croissant.json", "manifest.json", "sft_train.json", "sft_validation.json", "train.parquet",
        "validation.parquet",
    ]  # fmt: skip
    for name in files:
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert [path for path in (tmp_path / "a").iterdir() if path.suffix == ".tmp"] == []


def test_other_members_or_another_recipe_are_another_version(make_record: MakeRecord) -> None:
    versions = [
        _version(make_record), _version(make_record, 11), _version(make_record, threshold="3"),
    ]  # fmt: skip
    assert len({version.version_id for version in versions}) == 3
    assert versions[0].merkle_root == versions[2].merkle_root != versions[1].merkle_root


def test_an_existing_version_is_verified_and_not_rewritten(tmp_path: Path, make_record: MakeRecord) -> None:
    version = _version(make_record)
    folder = write_version(version, tmp_path)
    before = (folder / "train.parquet").stat().st_mtime_ns
    assert write_version(version, tmp_path) == folder
    assert (folder / "train.parquet").stat().st_mtime_ns == before
    assert verify_version(folder)["version_id"] == version.version_id


@pytest.mark.parametrize("name", ["train.parquet", "sft_train.json", "README.md", "manifest.json"])
def test_any_altered_or_missing_file_is_found(tmp_path: Path, make_record: MakeRecord, name: str) -> None:
    version = _version(make_record)
    folder = write_version(version, tmp_path)
    data = (folder / name).read_bytes()
    changed = data.replace(b'"rec_', b'"rec-', 1) if name == "manifest.json" else data[:-1] + bytes([data[-1] ^ 1])
    (folder / name).write_bytes(changed)
    with pytest.raises(AuditError, match=version.version_id):
        write_version(version, tmp_path)
    (folder / name).unlink()
    with pytest.raises(AuditError, match=name):
        verify_version(folder)


def test_what_a_killed_writer_left_is_cleared(tmp_path: Path, make_record: MakeRecord) -> None:
    version = _version(make_record)
    left = tmp_path / f".{version.version_id}.abc.tmp"
    left.mkdir()
    (left / "train.parquet").write_bytes(b"half")
    folder = write_version(version, tmp_path)
    assert not left.exists()
    verify_version(folder, version)


def test_files_hold_every_member_once_with_its_evidence(tmp_path: Path, make_record: MakeRecord) -> None:
    version = _version(make_record)
    folder = write_version(version, tmp_path)
    rows = []
    for part in SPLITS:
        table = pq.ParquetFile(folder / f"{part}.parquet").read(use_threads=False).to_pylist()
        assert {row["split"] for row in table} == {part}
        pairs = json.loads((folder / f"sft_{part}.json").read_text())
        assert len(pairs) == len(table) > 0
        for row, pair in zip(table, pairs, strict=True):
            assert set(pair) == {"prompt", "response"}
            assert row["pytorch_code"].strip() in pair["prompt"]
            assert extract_kernel(pair["response"]) == row["kernel_code"]
        rows += table
    assert {row["record_id"] for row in rows} == {member.record.record_id for member in version.members}
    (measured,) = (row for row in rows if row["evidence"] == "measured")
    assert (measured["measured_speedup"], measured["speedup_low"], measured["speedup_high"]) == (3.0, 2.5, 3.5)
    assert all(row["measured_speedup"] is None for row in rows if row["evidence"] == "claimed")
    assert measured["source"] == "source:src_test#row 1"


def test_the_card_states_funnel_evidence_honesty_and_overlap(tmp_path: Path, make_record: MakeRecord) -> None:
    card = (write_version(_version(make_record), tmp_path) / "README.md").read_text()
    assert card.startswith("---\npretty_name: CuKe\n")
    for text in (
        "| speedup | fast enough | 14 | 12 | below_threshold 1, infra_retry 1 |",
        "measured: 1 pairs",
        "claimed: 11 pairs",
        "| no_kernel | 1 | 0 |",
        "| has_fallback | 0 | 1 |",
        "| no_overlap | keep | 1 |",
        "Held back until they can be measured again: 1.",
        "| hub://rows | abc | MIT |",
        "| env_1 | cpu | 1 |",
    ):
        assert text in card


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_datasets_reads_files_and_folder(tmp_path: Path, make_record: MakeRecord) -> None:
    datasets = pytest.importorskip("datasets")
    for count, parts in ((12, ["train", "validation"]), (3, ["train"])):  # the second has no validation members
        version = _version(make_record, count)
        folder = write_version(version, tmp_path / "cuke")
        cache = str(tmp_path / "cache")
        files = {part: str(folder / f"{part}.parquet") for part in parts}
        by_files = datasets.load_dataset("parquet", data_files=files, cache_dir=cache)
        by_card = datasets.load_dataset(str(folder), cache_dir=cache)
        for loaded in (by_files, by_card):
            assert {part: loaded[part].num_rows for part in loaded} == {part: version.count(part) for part in parts}
            assert set(loaded["train"]["split"]) == {"train"}
        assert pq.read_metadata(folder / "validation.parquet").num_rows == version.count("validation")


def test_nothing_kept_is_no_version() -> None:
    with pytest.raises(UsageError, match="no record passed"):
        assemble([], Recipe("cur_1", {}, []), funnel={})
