"""Build the report: gather, draw, fill the template, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dice_core import __version__
from dice_core.files import write_atomic
from dice_core.lake.catalog import Lake
from dice_core.records import utc_now
from dice_core.report import charts
from dice_core.report.data import QUERIES, ReportData, gather
from dice_core.report.plots import write_plots
from dice_core.report.svg import clean

#: Rows shown at each end of the speedup table.
_ENDS = 12


@dataclass(frozen=True)
class ReportPaths:
    """Where a report is."""

    html: Path
    plots: tuple[Path, ...]


def build_report(lake: Lake, out_dir: Path) -> ReportPaths:
    """Write `report.html` (self-contained: no request leaves the page) and PNG plots to `out_dir`.

    All numbers are read at one snapshot, which the page names. A lake without rows gives a page that says what is
    missing and how to make it.

    Raises:
        LakeError: the lake cannot be read.
    """
    data = gather(lake)
    out_dir.mkdir(parents=True, exist_ok=True)
    plots = write_plots(data, out_dir / "plots")
    html = write_atomic(out_dir / "report.html", render(data))
    return ReportPaths(html, plots)


def render(data: ReportData) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "times": charts.times, "percent": charts.percent, "words": charts.words, "clean": clean,
        "number": lambda value: "–" if value is None else f"{value:,}",
        "short": lambda value: clean(value)[:12],
    }
    template = environment.get_template("report.html.j2")
    return template.render(
        data=data, pictures=_pictures(data), version=__version__, generated_at=utc_now(), queries=QUERIES, ends=_ENDS,
        most_dots=charts.MOST_DOTS, interval=charts.interval, share_bar=charts.share_bar,
    )


def _pictures(data: ReportData) -> dict[str, Any]:
    rows = data.rows
    return {
        "funnel": charts.funnel(rows["funnel"], rows["exits"]) if rows["funnel"] else None,
        "dots": {device: charts.dot_plot(data.speedups(device), device) for device in data.devices},
        "histograms": {device: charts.histogram(data.speedups(device), device) for device in data.devices},
        "verdicts": charts.verdicts(rows["verdict"]) if rows["verdict"] else None,
        "curves": charts.curves(rows["curve"]) if any(row["loss"] is not None for row in rows["curve"]) else None,
    }
