"""Show results: Prefect artifacts and the report."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from dice_core.report.build import build_report
from tasks.context import Run


@task(cache_policy=NO_CACHE)
def show_table(run: Run, key: str, description: str, sql: str) -> None:
    """Keep the rows of a report view as a Prefect table artifact."""
    with run.lake(read_only=True) as lake:
        rows = lake.query(sql).to_pylist()
    table = [{name: None if value is None else str(value) for name, value in row.items()} for row in rows]
    create_table_artifact(table=table, key=key, description=description)


@task(cache_policy=NO_CACHE)
def write_report(run: Run) -> Path:
    """Write the HTML report and link it."""
    run.progress("report", 0, 1)
    with run.lake(read_only=True) as lake:
        paths = build_report(lake, run.settings.report_dir)
    create_link_artifact(link=paths.html.as_uri(), key="report", description="DICE report")
    run.progress("report", 1, 1, str(paths.html))
    html: Path = paths.html
    return html
