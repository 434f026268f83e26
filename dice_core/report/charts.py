"""The page's charts as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from dice_core.report.data import Row
from dice_core.report.svg import Canvas, LogScale, clean, nice_ticks

#: Honesty class -> marker shape; the CSS class of the same name gives the colour.
SHAPES = {"own": "circle", "mixed": "square", "library": "triangle", "none": "cross", "unknown": "diamond"}
STEPS = {
    "ingest": "Rows read", "contract": "Contract", "dedup": "Deduplication", "overlap": "Benchmark overlap",
    "honesty": "Honesty", "speedup": "Speedup filter", "augment": "Augmentation", "cuke": "CuKe",
}
#: More than this many marks in a chart are thinned out evenly; the page says so.
MOST_DOTS = 1_200
_MOST_POINTS = 500
_KINDS = ("quarantined", "duplicate", "dropped")


def funnel(steps: Sequence[Row], exits: Sequence[Row]) -> Markup:
    """Bars of rows kept and lost at each step; rows that augmentation adds stand apart."""
    left, right, row_height = 170, 190, 46
    apart = 22 if any(row["step"] == "augment" for row in steps) else 0
    canvas = Canvas(1080, len(steps) * row_height + 10 + apart)
    widest = max([row["rows_in"] for row in steps] + [1])
    scale = (canvas.width - left - right) / widest
    y = 4.0
    for row in steps:
        if row["step"] == "augment":
            canvas.line(0, y + 4, canvas.width, y + 4, "rule")
            y += apart
        middle = y + 15
        canvas.text(left - 14, middle, STEPS.get(row["step"], row["step"]), "label strong", "end")
        x = float(left)
        canvas.rect(x, y, row["rows_kept"] * scale, 22, "bar kept", f"kept: {row['rows_kept']}")
        x += row["rows_kept"] * scale
        for kind in _KINDS:
            count = row[f"rows_{kind}"]
            if count:
                canvas.rect(x + 1, y, count * scale - 1, 22, f"bar {kind}", f"{kind}: {count}")
                x += count * scale
        canvas.text(x + 10, middle, f"{row['rows_kept']:,}", "label strong")
        lost = row["rows_in"] - row["rows_kept"]
        if lost:
            canvas.text(x + 18 + 8.2 * len(f"{row['rows_kept']:,}"), middle, f"−{lost:,}", "label muted")
        reasons = ", ".join(f"{words(one['reason'])} {one['n_rows']:,}" for one in exits if one["step"] == row["step"])
        if reasons:
            canvas.text(left, y + 35, clean(reasons, 130), "small muted")
        y += row_height
    summary = "; ".join(f"{STEPS.get(r['step'], r['step'])}: {r['rows_kept']} of {r['rows_in']} kept" for r in steps)
    return canvas.render(f"Curation funnel. {summary}")


def dot_plot(rows: Sequence[Row], device: str) -> Markup:
    """Every timed attempt with its 95 % interval, sorted, on a logarithmic axis."""
    if len(rows) > MOST_DOTS:
        rows = [rows[round(place * (len(rows) - 1) / (MOST_DOTS - 1))] for place in range(MOST_DOTS)]
    named = len(rows) <= 48
    pitch = 15.0 if named else max(0.8, min(9.0, 760 / len(rows)))
    left, right, top = (190.0 if named else 26.0), 24.0, 30.0
    canvas = Canvas(680, top + pitch * len(rows) + 34)
    bottom = top + pitch * len(rows)
    ends = [value for row in rows for value in (row["speedup"], row["speedup_low"], row["speedup_high"])
            if value is not None and value > 0]
    scale = LogScale([min(max(value, 0.02), 200.0) for value in ends], left, canvas.width - right)
    _speedup_axis(canvas, scale, top - 6, bottom)
    for number, row in enumerate(rows):
        y = top + pitch * (number + 0.5)
        css = row["honesty"]
        low, high = row["speedup_low"], row["speedup_high"]
        about = f"{clean(row['problem_name'], 60)}: {times(row['speedup'])} {interval(low, high)}, {css}"
        if low is not None and high is not None:
            canvas.line(scale(low), y, scale(high), y, f"whisker {css}")
        canvas.marker(scale(row["speedup"]), y, SHAPES.get(css, "diamond"), f"dot {css}", 3.4 if pitch > 5 else 2.2,
                      about)
        if named:
            canvas.text(left - 12, y + 4, clean(row["problem_name"], 27), "small", "end")
    honest = sum(not row["is_deceptive"] for row in rows)
    return canvas.render(f"Speedup over eager PyTorch of {len(rows)} correct kernels on {device}, {honest} of them "
                         "honest, sorted, with 95 % intervals, logarithmic axis with lines at 1x and 2x.")


def histogram(rows: Sequence[Row], device: str) -> Markup:
    """How many attempts fall into each half-octave of speedup; deceptive ones stacked on top."""
    width, height, left, bottom = 380.0, 250.0, 40.0, 214.0
    canvas = Canvas(width, height)
    logs = [(2 * math.log2(min(max(row["speedup"], 0.02), 200.0)), row["is_deceptive"]) for row in rows]
    first, last = math.floor(min([x for x, _ in logs] + [-2.0])), math.ceil(max([x for x, _ in logs] + [4.0]))
    bins = {number: [0, 0] for number in range(first, last)}
    for x, deceptive in logs:
        bins[min(math.floor(x), last - 1)][bool(deceptive)] += 1
    top = max(sum(pair) for pair in bins.values())
    ticks = nice_ticks(top)
    y_of = (bottom - 26) / ticks[-1]
    for tick in ticks:
        y = bottom - tick * y_of
        canvas.line(left, y, width - 8, y, "grid")
        canvas.text(left - 7, y + 4, f"{tick:g}", "axis", "end")
    step = (width - 8 - left) / len(bins)
    for place, (number, (honest, deceptive)) in enumerate(bins.items()):
        x, y = left + place * step, bottom - honest * y_of
        span = f"{times(2 ** (number / 2))} to {times(2 ** ((number + 1) / 2))}"
        canvas.rect(x + 1, y, step - 2, honest * y_of, "bar own", f"{span}: {honest} honest")
        if deceptive:
            canvas.rect(x + 1, y - deceptive * y_of, step - 2, deceptive * y_of - 1, "bar library",
                        f"{span}: {deceptive} deceptive")
        if number % 2 == 0:
            canvas.text(x, bottom + 17, f"{2.0 ** (number / 2):g}×", "axis", "middle")
        if number in (0, 2):
            canvas.line(x, 14, x, bottom, "reference")
    canvas.line(left, bottom, width - 8, bottom, "rule")
    return canvas.render(f"Histogram of speedups on {device}: {len(rows)} correct kernels in half-octave bins.")


def verdicts(rows: Sequence[Row]) -> Markup:
    """Bars of verdict counts, grouped by device."""
    left, pitch = 190.0, 24.0
    devices = sorted({row["device"] for row in rows})
    canvas = Canvas(620, pitch * (len(rows) + 1.4 * len(devices)) + 6)
    scale = (canvas.width - left - 96) / max(row["n_attempts"] for row in rows)
    y = 4.0
    for device in devices:
        canvas.text(left, y + 14, device, "axis strong")
        y += pitch
        for row in [one for one in rows if one["device"] == device]:
            kind = "own" if row["verdict"] == "CORRECT" else "unknown" if row["is_infra"] else "dropped"
            canvas.text(left - 12, y + 13, row["verdict"].replace("_", " ").lower(), "small", "end")
            canvas.rect(left, y + 2, row["n_attempts"] * scale, 15, f"bar {kind}")
            canvas.text(left + row["n_attempts"] * scale + 8, y + 14,
                        f"{row['n_attempts']:,}  ({percent(row['share'])})", "small")
            y += pitch
        y += 0.4 * pitch
    return canvas.render("Verdicts: " + "; ".join(f"{r['device']} {r['verdict']} {r['n_attempts']}" for r in rows))


def share_bar(share: float, low: float, high: float) -> Markup:
    """A share between 0 and 1 with its interval, small enough for a table cell."""
    canvas = Canvas(132, 14)
    canvas.rect(0, 4, 132, 6, "track")
    canvas.rect(0, 4, 132 * share, 6, "bar own")
    canvas.line(132 * low, 7, 132 * high, 7, "whisker ink")
    for end in (low, high):
        canvas.line(132 * end, 4, 132 * end, 10, "whisker ink")
    return canvas.render(f"{percent(share)}, 95 % interval {percent(low)} to {percent(high)}")


def curves(rows: Sequence[Row]) -> Markup:
    """Training loss by step, one line for each model version, with the newest emphasised."""
    series = by_model(rows)
    width, height, left, top, bottom = 680.0, 300.0, 48.0, 16.0, 260.0
    canvas = Canvas(width, height)
    steps: int = max(row["step"] for row in rows)
    ticks = nice_ticks(max(row["loss"] for row in rows if row["loss"] is not None))
    right = width - 118

    def x_of(step: float) -> float:
        return left + step / max(steps, 1) * (right - left)

    def y_of(loss: float) -> float:
        return bottom - loss / ticks[-1] * (bottom - top)

    for tick in ticks:
        canvas.line(left, y_of(tick), right, y_of(tick), "grid")
        canvas.text(left - 8, y_of(tick) + 4, f"{tick:g}", "axis", "end")
    for tick in nice_ticks(steps, 5):
        if tick <= steps:
            canvas.text(x_of(tick), bottom + 18, f"{tick:g}", "axis", "middle")
    canvas.line(left, bottom, right, bottom, "rule")
    canvas.text(left, bottom + 36, "optimizer step", "axis")
    canvas.text(left, 10, "loss, nats per token", "axis")
    used: list[float] = []
    for number, every in enumerate(series.values()):
        means = _smooth(every)
        shown = range(0, len(every), max(1, len(every) // _MOST_POINTS))
        points = [every[place] for place in shown]
        css = f"curve c{number % 4}"
        name = f"{points[-1]['model_name'] or 'model'} v{points[-1]['model_version'] or '?'}"
        raw = [(x_of(p["step"]), y_of(p["loss"])) for p in points]
        canvas.polyline(raw, f"{css} faint")
        canvas.polyline([(x_of(every[place]["step"]), y_of(means[place])) for place in shown], css, name)
        y = raw[-1][1]
        while any(abs(y - other) < 15 for other in used):
            y -= 15
        used.append(y)
        canvas.text(raw[-1][0] + 8, y + 4, clean(name, 18), f"small c{number % 4} ink")
    ends = "; ".join(f"{p[-1]['model_name']} v{p[-1]['model_version']}: {p[0]['loss']:.3g} to {p[-1]['loss']:.3g}"
                     for p in series.values())
    return canvas.render(f"Training loss by step. {ends}")


def by_model(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Steps that have a loss, by model version."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        if row["loss"] is not None:
            series.setdefault(row["model_version_id"], []).append(row)
    return series


def _smooth(points: Sequence[Row]) -> list[float]:
    """Centred running mean over about a twentieth of the curve."""
    reach = max(1, len(points) // 40)
    losses = [p["loss"] for p in points]
    return [sum(part) / len(part) for i in range(len(losses)) if (part := losses[max(0, i - reach): i + reach + 1])]


def _speedup_axis(canvas: Canvas, scale: LogScale, top: float, bottom: float) -> None:
    for tick in scale.ticks():
        canvas.line(scale(tick), top, scale(tick), bottom, "grid")
        canvas.text(scale(tick), bottom + 17, f"{tick:g}×", "axis", "middle")
    for reference in (1.0, 2.0):
        canvas.line(scale(reference), top, scale(reference), bottom, "reference")
        canvas.text(scale(reference), top - 6, "as fast as eager" if reference == 1 else "2×", "axis",
                    "end" if reference == 1 else "start")


def times(value: float | None) -> str:
    """A speedup for people: three significant digits and a times sign."""
    return "–" if value is None else f"{_three(value)}×"


def interval(low: float | None, high: float | None) -> str:
    """An interval for people."""
    return "" if low is None or high is None else f"[{_three(low)}, {_three(high)}]"


def percent(share: float | None) -> str:
    """A share for people."""
    return "–" if share is None else f"{100 * share:.1f}%"


def words(name: str) -> str:
    """A rule's or column's name for people."""
    return str(name).replace("_", " ")


def _three(value: float) -> str:
    if value >= 1000 or (0 < value < 0.001):
        return f"{value:.2e}"
    digits = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(0, min(digits, 5))}f}"
