"""What the report shows: rows of the lake's report views, read at one snapshot, shaped for the page.

Every section names the queries it rests on, so that each number on the page can be asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dice_core.lake.catalog import Lake
from dice_core.lake.checks import CheckResult, run_checks
from dice_core.lake.objects import SqlObject, ordered_views
from dice_core.lake.query import Reader

Row = dict[str, Any]

#: Section -> its query; `?` stands for the id of the latest curation.
QUERIES: dict[str, str] = {
    "total": "SELECT * FROM rpt_total",
    "funnel": "SELECT * FROM rpt_funnel WHERE curation_id = ? ORDER BY step_order",
    "exits": "SELECT step, kind, reason, n_rows FROM fct_funnel WHERE curation_id = ? AND kind NOT IN ('in', 'kept') "
             "AND n_rows > 0 ORDER BY step_order, n_rows DESC, reason",
    "quarantine": "SELECT * FROM rpt_quarantine ORDER BY n_rows DESC, source_uri, rule, field",
    "speedup": "SELECT * FROM rpt_speedup ORDER BY speedup DESC, attempt_id",
    "verdict": "SELECT * FROM rpt_verdict ORDER BY device, n_attempts DESC, verdict",
    "honesty": "SELECT honesty, device, count(*) AS n_correct, "
               "count(*) / sum(count(*)) OVER (PARTITION BY device) AS share FROM fct_attempt "
               "WHERE is_correct GROUP BY honesty, device ORDER BY device, n_correct DESC, honesty",
    "leaderboard": "SELECT * FROM rpt_leaderboard ORDER BY created_at DESC, evaluation_id, level NULLS LAST",
    "score": "SELECT * FROM rpt_score WHERE p IN (0, 1, 2) ORDER BY created_at DESC, evaluation_id, "
             "level NULLS LAST, score_view, p",
    "trait": "SELECT * FROM rpt_problem_trait WHERE NOT is_discriminating OR stochastic OR mutates_inputs "
             "ORDER BY suite, level, number, problem_id",
    "claim": "SELECT model, level, claimed_correct, outcome, count(*) AS n_kernels FROM rpt_claim GROUP BY ALL "
             "ORDER BY model, level, claimed_correct DESC, n_kernels DESC, outcome",
    "model": "SELECT * FROM dim_model_version ORDER BY created_at DESC, model_version_id",
    "curve": "SELECT model_version_id, model_name, model_version, step, loss FROM fct_training_step "
             "ORDER BY model_version_id, step",
    "augmentation": "SELECT * FROM rpt_augmentation WHERE curation_id = ? ORDER BY structure",
    "dataset": "SELECT * FROM dim_dataset_version ORDER BY created_at DESC, dataset_version_id",
    "environment": "SELECT * FROM rpt_environment ORDER BY n_attempts DESC, environment_id, kind DESC, name",
}
_LATEST_CURATION = "SELECT curation_id FROM curation ORDER BY ended_at DESC, curation_id LIMIT 1"


@dataclass(frozen=True)
class EnvironmentCard:
    """One environment with its properties."""

    environment_id: str
    n_attempts: int
    identity: dict[str, str]
    facts: dict[str, str]

    @property
    def name(self) -> str:
        """The processor that did the work."""
        return self.identity.get("gpu") or self.identity.get("cpu") or "unknown processor"


@dataclass(frozen=True)
class ReportData:
    """All rows of one report."""

    snapshot_id: int
    committed_at: str
    curation_id: str
    n_curations: int
    rows: Mapping[str, list[Row]]
    checks: list[CheckResult]
    definitions: tuple[SqlObject, ...] = field(default_factory=tuple)

    @property
    def total(self) -> Row:
        """Rows of the main tables."""
        return self.rows["total"][0]

    @property
    def best(self) -> Row | None:
        """The evaluation with the highest fast_1 over all levels; None when nothing was evaluated."""
        whole = [row for row in self.rows["leaderboard"] if row["scope"] == "all" and row["fast_1"] is not None]
        return max(whole, key=lambda row: (row["fast_1"], row["n_problems"]), default=None)

    @property
    def devices(self) -> list[str]:
        """Devices with timed attempts; speedups of different devices are never shown in one plot."""
        return sorted({row["device"] for row in self.rows["speedup"]})

    def speedups(self, device: str) -> list[Row]:
        """Timed attempts of one device, fastest first."""
        return [row for row in self.rows["speedup"] if row["device"] == device]

    @property
    def environments(self) -> list[EnvironmentCard]:
        """Environments, most used first."""
        cards: dict[str, EnvironmentCard] = {}
        for row in self.rows["environment"]:
            card = cards.setdefault(
                row["environment_id"], EnvironmentCard(row["environment_id"], row["n_attempts"], {}, {})
            )
            (card.identity if row["kind"] == "identity" else card.facts)[row["name"]] = row["value"] or ""
        return list(cards.values())


def gather(lake: Lake) -> ReportData:
    """Read everything that the report shows, all at the present snapshot."""
    snapshot = lake.snapshots()[-1]
    reader = Reader(lake.lake_dir, as_of=snapshot.snapshot_id, materialise=True)
    try:
        latest = reader.query(_LATEST_CURATION).to_pylist()
        curation = latest[0]["curation_id"] if latest else ""
        rows = {
            name: reader.query(sql, [curation] * sql.count("?")).to_pylist() for name, sql in QUERIES.items()
        }
        n_curations = reader.query("SELECT count(curation_id) AS n FROM curation").to_pylist()[0]["n"]
        checks = run_checks(reader)
    finally:
        reader.close()
    return ReportData(
        snapshot_id=snapshot.snapshot_id,
        committed_at=snapshot.committed_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        curation_id=curation,
        n_curations=n_curations,
        rows=rows,
        checks=checks,
        definitions=ordered_views(),
    )
