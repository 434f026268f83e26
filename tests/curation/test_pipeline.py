from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dice_core.curation import pipeline
from dice_core.curation.cuke import CukeVersion, write_version
from dice_core.curation.overlap import OverlapIndex
from dice_core.curation.pipeline import CurationConfig, Ingested, SourceSpec, Step
from dice_core.curation.speedup_filter import Measurement
from dice_core.curation.tables import curation_tables, version_tables
from dice_core.errors import SourceError, UsageError
from dice_core.lake.rows import to_table
from dice_core.records import Honesty, SourceFile, TrainingRecord, Verdict
from dice_core.schemas import KEYS, SCHEMAS

MakeRow = Callable[..., dict[str, Any]]
MakeRecord = Callable[..., TrainingRecord]

PLAIN = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"


def _measure(record: TrainingRecord, low: float = 2.5, **changes: Any) -> Measurement:
    fields = {"verdict": Verdict.CORRECT, "honesty": Honesty.OWN, "speedup": low + 0.5, "speedup_low": low}
    return Measurement(
        f"att_{record.record_id}",
        record.problem_id,
        record.kernel_id,
        "env_1",
        "cpu",
        **{**fields, "speedup_high": low + 1.0, **changes},
    )


def _by_pair(*measured: Measurement) -> dict[tuple[str, str], Measurement]:
    return {(one.problem_id, one.kernel_id): one for one in measured}


def _run(
    ingested: Ingested,
    suite_path: Path,
    config: CurationConfig,
    index: OverlapIndex | None = None,
    measurements: Mapping[tuple[str, str], Measurement] | None = None,
) -> list[Step]:
    steps = [pipeline.contract(ingested, suite_path)]
    steps.append(pipeline.deduplicate(steps[-1]))
    steps.append(pipeline.check_overlap(steps[-1], index, config.overlap))
    steps.append(pipeline.check_honesty(steps[-1]))
    steps.append(pipeline.filter_speedup(steps[-1], config, measurements))
    return steps


@pytest.fixture
def source(tmp_path: Path, make_row: MakeRow) -> Path:
    """Twelve good rows, and one or more of everything that can go wrong."""
    rows = [make_row(number) for number in range(12)]
    rows += [
        make_row(0, uuid="again"),
        make_row(1, generated_code=PLAIN),
        make_row(2, generated_code=None),
        make_row(3, speedup_over_eager=math.nan),
        make_row(4, speedup_over_eager=1.2, generated_code=make_row(5)["generated_code"]),
        make_row(6, uuid=None, speedup_over_eager=-1.0),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), "{broken"]))
    return path


def _version(source: Path, suite_path: Path) -> tuple[CukeVersion, Ingested, list[Step], CurationConfig]:
    config = CurationConfig()
    ingested = pipeline.ingest([SourceSpec(source, uri="hub://rows", licence="MIT")])
    steps = _run(ingested, suite_path, config)
    identity = pipeline.curation_id(ingested.source_files, config)
    return pipeline.make_version(identity, config, ingested, steps), ingested, steps, config


def test_every_row_is_accounted_for_at_every_step(source: Path, suite_path: Path) -> None:
    version, ingested, steps, _ = _version(source, suite_path)
    funnel = version.funnel
    assert list(funnel) == ["ingest", "contract", "dedup", "overlap", "honesty", "speedup", "cuke"]
    assert funnel["ingest"] == {"in": 19, "kept": 18, "out:json_line": 1}
    assert funnel["contract"] == {"in": 18, "kept": 15, "out:not_null": 2, "out:speedup_finite": 1}
    assert funnel["dedup"] == {"in": 15, "kept": 14, "out:exact": 1}
    assert funnel["honesty"]["kept"] == 13
    assert funnel["speedup"] == {"in": 13, "kept": 12, "out:below_threshold": 1}
    assert funnel["cuke"] == {"in": 12, "kept": 12}
    for counters in funnel.values():
        out = sum(value for name, value in counters.items() if name.startswith("out:"))
        assert counters["in"] == counters["kept"] + out
    # One quarantine row for each broken rule, also where a row breaks two.
    assert len(ingested.quarantine) + len(steps[0].quarantine) == 5


def test_every_record_has_its_trail(source: Path, suite_path: Path) -> None:
    version, _, steps, _ = _version(source, suite_path)
    trail: dict[str, list[str]] = {}
    for step in steps:
        for decision in step.decisions:
            trail.setdefault(decision.record_id, []).append(decision.step)
    assert set(trail) == {record.record_id for record in steps[0].records}
    for member in version.members:
        assert list(dict.fromkeys(trail[member.record.record_id])) == ["dedup", "overlap", "honesty", "speedup"]
        assert member.evidence == "claimed"


def test_a_second_run_gives_the_same_version(source: Path, suite_path: Path, tmp_path: Path) -> None:
    one, two = (_version(source, suite_path)[0] for _ in range(2))
    assert one.version_id == two.version_id
    assert write_version(one, tmp_path / "v") == write_version(two, tmp_path / "v")


def test_sources_add_up_and_the_same_content_counts_once(tmp_path: Path, source: Path, make_row: MakeRow) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(source.read_bytes())
    more = tmp_path / "more.json"
    more.write_text(json.dumps([make_row(20, extra=1)]))
    once = pipeline.ingest([source])
    both = pipeline.ingest([source, copy, more, source])
    assert both.counters["in"] == once.counters["in"] + 1
    assert len(both.source_files) == 2
    same = [note for note in both.notes if "the same content as" in note]
    assert len(same) == 2 and "copy.jsonl" in same[0]
    assert any("columns not used: extra" in note for note in both.notes)


def test_an_unreadable_source_stops_the_run_by_name(tmp_path: Path, source: Path) -> None:
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(SourceError, match=r"empty\.parquet"):
        pipeline.ingest([source, tmp_path / "empty.parquet"])
    with pytest.raises(UsageError, match="at least one source"):
        pipeline.ingest([])


def test_the_curation_id_follows_content_options_and_evidence(tmp_path: Path, source: Path, make_row: MakeRow) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps([make_row(0)]))
    files = pipeline.ingest([source, other]).source_files
    config = CurationConfig()
    identity = pipeline.curation_id(files, config)
    assert pipeline.curation_id(files[::-1], config) == identity
    others = [
        pipeline.curation_id(files[:1], config),
        pipeline.curation_id(files, CurationConfig(threshold=1.5)),
        pipeline.curation_id(files, CurationConfig(overlap="flag")),
        pipeline.curation_id(files, config, evidence_digest="evd_1"),
    ]
    assert len({identity, *others}) == 5


def test_overlap_with_the_benchmark_is_dropped_before_the_filter(
    source: Path, suite_path: Path, make_row: MakeRow
) -> None:
    index = OverlapIndex.build([("1/1", make_row(7)["pytorch_code"])])
    steps = _run(pipeline.ingest([source]), suite_path, CurationConfig(), index)
    assert steps[2].counters["out:benchmark_exact"] == 1
    assert all(record.uuid != "u7" for record in steps[-1].records)


def test_measurements_outrank_claims(source: Path, suite_path: Path) -> None:
    ingested = pipeline.ingest([source])
    records = pipeline.contract(ingested, suite_path).records
    slow, wrong, fast = records[0], records[2], records[4]
    measurements = _by_pair(
        _measure(slow, 1.0), _measure(wrong, verdict=Verdict.INCORRECT_SHAPE), _measure(fast),
    )
    last = _run(ingested, suite_path, CurationConfig(), measurements=measurements)[-1]
    assert last.counters["out:incorrect"] == 1
    evidence = {member.record.uuid: member.evidence for member in last.kept}
    assert (evidence["u4"], evidence["u5"]) == ("measured", "claimed")
    assert "u0" not in evidence and "u2" not in evidence


def test_augmented_records_need_the_arena(make_record: MakeRecord) -> None:
    records = [
        make_record(number, origin="augmentation", structure=f"s{number}", claimed_speedup=None) for number in range(5)
    ]
    records[3] = make_record(3, origin="augmentation", kernel_code=PLAIN)
    measurements = _by_pair(
        _measure(records[0]), _measure(records[1], 1.1), _measure(records[2], verdict=Verdict.INFRA_TIMEOUT),
        _measure(records[3]),
    )  # fmt: skip
    step = pipeline.augment(records, CurationConfig(), measurements)
    assert [record.structure for record in step.records] == ["s0"]
    assert step.counters["in"] == 5 and step.counters["kept"] == 1
    assert {name: step.counters[name] for name in ("out:below_threshold", "out:infra_retry", "out:not_measured")} == {
        "out:below_threshold": 1,
        "out:infra_retry": 1,
        "out:not_measured": 1,
    }
    assert {decision.step for decision in step.decisions} == {"augment"}
    assert {decision.record_id for decision in step.decisions} == {record.record_id for record in records}


def test_tables_fit_the_lake_and_keys_are_unique(
    source: Path, suite_path: Path, make_record: MakeRecord, tmp_path: Path
) -> None:
    config = CurationConfig()
    ingested = pipeline.ingest([source])
    steps = _run(ingested, suite_path, config)
    extra = [make_record(number, origin="augmentation", row_locator=f"s/{number}") for number in range(2)]
    steps.append(pipeline.augment(extra, config, _by_pair(_measure(extra[0]))))
    identity = pipeline.curation_id(ingested.source_files, config)
    other = SourceFile("structures/", "", "1" * 64, 10, "Apache-2.0", "2026-01-01T00:00:00Z")
    version = pipeline.make_version(identity, config, ingested, steps, more_sources=[other])
    tables = curation_tables(
        "run_1", identity, config, ingested, steps,
        counters=version.funnel, started_at="2026-01-01T00:00:00Z", more_sources=[other],
    )  # fmt: skip
    tables |= version_tables(version, write_version(version, tmp_path / "cuke"))
    for name, rows in tables.items():
        assert rows, name
        assert set(rows[0]) == set(SCHEMAS[name].names)
        keys = [tuple(row[column] for column in KEYS[name]) for row in rows]
        assert len(set(keys)) == len(keys), name
        assert to_table(name, rows).num_rows == len(rows)
    assert len(tables["source_file"]) == len(version.recipe.sources) == 2
    known = {row["record_id"] for row in tables["training_record"]}
    assert {row["record_id"] for row in tables["decision"]} <= known
    assert {row["record_id"] for row in tables["dataset_member"]} <= known
    assert {row["language"] for row in tables["training_record"]} >= {"cuda"}


def test_cuda_l1_is_accounted_for_row_by_row(real_data: Path, suite_path: Path) -> None:
    ingested = pipeline.ingest([real_data / "cuda_l1" / "h100_claims_half.parquet"])
    assert ingested.counters == {"in": 121, "kept": 121}
    steps = _run(ingested, suite_path, CurationConfig())
    contract, honesty = steps[0], steps[3]
    # Six rows are empty, five more hold the word None with a claimed speedup: source.toml calls both empty.
    assert contract.counters == {"in": 121, "kept": 110, "out:not_null": 11}
    assert len(contract.quarantine) == 11 + 6  # six of them state no speedup either
    places = {row.row_locator for row in contract.quarantine} | {record.row_locator for record in contract.records}
    assert places == {f"row {number}" for number in range(1, 122)}
    dropped = {decision.record_id for decision in honesty.decisions if decision.verdict == "drop"}
    plain = {
        record.record_id
        for record in honesty.entered
        if not any(mark in record.kernel_code for mark in ("__global__", "cpp_extension", "@triton.jit"))
    }
    assert len(plain) == 64
    assert plain <= dropped
