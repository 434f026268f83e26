"""The same pictures as PNG files, for slides and messages."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullFormatter

from dice_core.files import write_atomic
from dice_core.report.charts import STEPS, by_model, percent
from dice_core.report.data import ReportData, Row

_COLOURS = {"own": "#0f766e", "mixed": "#c77700", "library": "#be123c", "none": "#7c3aed", "unknown": "#64748b",
            "kept": "#0f766e", "quarantined": "#be123c", "duplicate": "#c77700", "dropped": "#94a3b8"}
_MARKERS = {"own": "o", "mixed": "s", "library": "^", "none": "x", "unknown": "D"}
_INK, _MUTED = "#1c2430", "#5b6675"
_LINES = ("#0f766e", "#1d4ed8", "#c77700", "#7c3aed")


def write_plots(data: ReportData, folder: Path) -> tuple[Path, ...]:
    """Draw every plot that has data; PNGs of a former report that no longer apply are removed."""
    drawn: dict[str, Figure] = dict(_figures(data))
    paths = []
    for name, figure in drawn.items():
        sink = io.BytesIO()
        figure.savefig(sink, format="png", dpi=160, facecolor="white", metadata={"Software": None})
        paths.append(write_atomic(folder / f"{name}.png", sink.getvalue()))
    for old in folder.glob("*.png"):
        if old not in paths:
            old.unlink()
    return tuple(paths)


def _figures(data: ReportData) -> Iterator[tuple[str, Figure]]:
    rows = data.rows
    if rows["funnel"]:
        yield "funnel", _funnel(rows["funnel"])
    for device in data.devices:
        yield f"speedup_{device}", _speedups(data.speedups(device), device)
    if rows["verdict"]:
        yield "verdicts", _verdicts(rows["verdict"])
    if whole := [row for row in rows["leaderboard"] if row["scope"] == "all" and row["fast_1"] is not None]:
        yield "leaderboard", _leaderboard(whole)
    if by_model(rows["curve"]):
        yield "training", _training(rows["curve"])


def _figure(width: float, height: float, title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.14))
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=_INK, pad=12)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#cbd5e1")
    axes.tick_params(colors=_MUTED, labelsize=9)
    return figure, axes


def _plain(text: object, width: int = 40) -> str:
    """ASCII without mathematics signs: names are data, and `$` would start a formula."""
    return "".join(one if one.isascii() and one.isprintable() and one != "$" else "?" for one in str(text))[:width]


def _funnel(steps: list[Row]) -> Figure:
    figure, axes = _figure(9, 0.5 * len(steps) + 1.4, "Curation funnel: rows kept and lost at each step")
    for place, row in enumerate(steps):
        start = 0
        for kind in ("kept", "quarantined", "duplicate", "dropped"):
            count = row[f"rows_{kind}"]
            axes.barh(place, count, left=start, height=0.62, color=_COLOURS[kind],
                      label=kind if place == 0 else None)
            start += count
        axes.annotate(f"{row['rows_kept']:,}", (start, place), (6, 0), textcoords="offset points", va="center",
                      fontsize=9, color=_INK)
    axes.set_yticks(range(len(steps)), [STEPS.get(row["step"], _plain(row["step"])) for row in steps])
    axes.invert_yaxis()
    axes.set_xlabel("rows", color=_MUTED)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def _speedups(rows: list[Row], device: str) -> Figure:
    figure, axes = _figure(8, min(9.0, 2.6 + 0.055 * len(rows)), f"Speedup over eager PyTorch on {_plain(device)}")
    for honesty, colour in list(_COLOURS.items())[:5]:
        places = [place for place, row in enumerate(rows) if row["honesty"] == honesty]
        if not places:
            continue
        values = [rows[place]["speedup"] for place in places]
        below = [value - (rows[p]["speedup_low"] or value) for p, value in zip(places, values, strict=True)]
        above = [(rows[p]["speedup_high"] or value) - value for p, value in zip(places, values, strict=True)]
        axes.errorbar(values, places, xerr=[below, above], fmt=_MARKERS[honesty], markersize=4.5, linewidth=1,
                      color=colour, label=honesty)
    axes.set_xscale("log")
    for reference in (1, 2):
        axes.axvline(reference, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5)
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= tick <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.grid(axis="x", which="major", color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("speedup = eager time / kernel time, with 95 % interval", color=_MUTED)
    axes.legend(frameon=False, fontsize=9, loc="lower right", title="whose code ran", title_fontsize=9)
    return figure


def _verdicts(rows: list[Row]) -> Figure:
    figure, axes = _figure(8, 0.32 * len(rows) + 1.3, "Verdicts")
    labels = [f"{row['verdict'].replace('_', ' ').lower()} ({_plain(row['device'])})" for row in rows]
    colours = [_COLOURS["own" if row["verdict"] == "CORRECT" else "dropped"] for row in rows]
    axes.barh(range(len(rows)), [row["n_attempts"] for row in rows], color=colours, height=0.66)
    for place, row in enumerate(rows):
        axes.annotate(f"{row['n_attempts']:,}  ({percent(row['share'])})", (row["n_attempts"], place), (6, 0),
                      textcoords="offset points", va="center", fontsize=9, color=_INK)
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("attempts", color=_MUTED)
    return figure


def _leaderboard(rows: list[Row]) -> Figure:
    figure, axes = _figure(8, 0.75 * len(rows) + 1.6, "fast_p over all levels, with Wilson 95 % intervals")
    for offset, (p, colour) in enumerate(zip((0, 1, 2), _LINES, strict=False)):
        for place, row in enumerate(rows):
            share, y = row[f"fast_{p}"], place + 0.24 * (offset - 1)
            axes.errorbar(share, y, xerr=[[share - row[f"fast_{p}_low"]], [row[f"fast_{p}_high"] - share]], fmt="o",
                          color=colour, markersize=5.5, linewidth=1.4, label=f"fast_{p}" if place == 0 else None)
    axes.set_yticks(range(len(rows)), [_plain(row["evaluation_name"] or row["evaluation_id"], 32) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
    axes.grid(axis="x", color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("share of all problems", color=_MUTED)
    axes.legend(frameon=False, fontsize=9, loc="upper right")
    return figure


def _training(rows: list[Row]) -> Figure:
    figure, axes = _figure(8, 4, "Training loss")
    for number, points in enumerate(by_model(rows).values()):
        name = _plain(f"{points[0]['model_name']} v{points[0]['model_version']}")
        axes.plot([p["step"] for p in points], [p["loss"] for p in points], color=_LINES[number % len(_LINES)],
                  linewidth=1.3, label=name)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#e2e8f0", linewidth=0.8)
    axes.set_xlabel("optimizer step", color=_MUTED)
    axes.set_ylabel("loss, nats per token", color=_MUTED)
    axes.legend(frameon=False, fontsize=9)
    return figure
