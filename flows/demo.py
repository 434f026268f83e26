"""`dice demo`: the nightly chain on bundled data, then a summary of what is where."""

from __future__ import annotations

from typing import Any

from dice_core.errors import DiceError
from dice_core.lake.catalog import Lake
from dice_core.settings import Settings
from flows.console import out, print_rows, say
from flows.entry import run_nightly

_COUNTS = {
    "records": "select count(*) from training_record",
    "quarantined rows": "select count(distinct (source_file_id, row_locator)) from quarantine",
    "CuKe rows": "select count(*) from dataset_member",
    "verdicts": "select count(*) from attempt",
    "timing samples": "select count(*) from timing_sample",
    "evaluations": "select count(*) from evaluation",
    "model versions": "select count(*) from model_version",
}
_LEADERBOARD = """
select evaluation_name as evaluation, scope, n_problems as problems, n_correct as correct, n_fast_0 as fast_0,
       n_fast_1 as fast_1, n_fast_2 as fast_2, median_speedup
from rpt_leaderboard order by evaluation, scope
"""


def demonstrate(settings: Settings) -> dict[str, Any]:
    """Run the chain and print the summary.

    Raises:
        DiceError: a table is empty, so the chain did not do what it claims.
    """
    say("DICE demo: bundled rows -> CuKe -> arena -> block-diffusion SFT -> evaluation -> report (a few minutes)")
    outcome = run_nightly(settings, [], "tiny", None, dry_run=False, bundled_kernels=True)
    if not outcome.worked:
        say("all of it was there already: nothing was done again")
    with Lake.open(settings.home, read_only=True) as lake:
        counts = {name: int(lake.query(sql).column(0)[0].as_py()) for name, sql in _COUNTS.items()}
        verdicts = lake.query("select verdict, n_attempts from rpt_verdict order by n_attempts desc").to_pylist()
        leaders = lake.query(_LEADERBOARD).to_pylist()
    places = {"report": str(settings.report_dir / "report.html"), "lake": str(settings.home / "lake"),
              "mlflow": str(settings.home / "mlflow"), "datasets": str(settings.datasets_dir),
              "runs": str(settings.runs_dir)}
    _show(counts, verdicts, leaders, places)
    if empty := [name for name, count in counts.items() if not count]:
        raise DiceError(f"the demo left these tables empty: {', '.join(empty)}")
    return {"worked": outcome.worked, "counts": counts, "verdicts": verdicts, "leaderboard": leaders, **places}


def _show(counts: dict[str, int], verdicts: list[dict[str, Any]], leaders: list[dict[str, Any]],
          places: dict[str, str]) -> None:
    out.print("\nWhat the demo made", style="bold")
    for name, count in counts.items():
        out.print(f"  {name:<18}{count:>8}")
    out.print("  verdicts by kind: " + ", ".join(f"{row['verdict']} {row['n_attempts']}" for row in verdicts))
    out.print("\nLeaderboard (problems that are correct, honest and faster than p)", style="bold")
    print_rows(leaders, as_json=False)
    out.print("\nWhere it is", style="bold")
    for name, place in places.items():
        out.print(f"  {name:<10}{place}")
    out.print('\nNext: open the report; try  .venv/bin/dice query "select * from rpt_speedup limit 10"')
    out.print("      .venv/bin/dice run nightly --plan quick  finds nothing to do")
