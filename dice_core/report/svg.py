"""A small SVG canvas: shapes with CSS classes, so that the page's light and dark colours apply. All text is escaped."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence

from markupsafe import Markup

_SHAPES = ("circle", "square", "triangle", "cross", "diamond")


def clean(text: object, width: int = 0) -> str:
    """Text fit for a page: no control or direction-override characters, cut to `width` characters if given."""
    plain = "".join(
        "\ufffd" if unicodedata.category(one) in ("Cc", "Cf", "Co", "Cs") and one not in "\n\t" else one
        for one in str(text)
    )
    return plain if not width or len(plain) <= width else plain[: width - 1] + "…"


class Canvas:
    """Shapes in user units; `render` gives the inline SVG."""

    def __init__(self, width: float, height: float) -> None:
        self.width = width
        self.height = height
        self._parts: list[Markup] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """A straight line."""
        self._parts.append(Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(
            css, _n(x1), _n(y1), _n(x2), _n(y2)))

    def rect(self, x: float, y: float, width: float, height: float, css: str, title: str = "") -> None:
        """A rectangle; `title` is its tooltip."""
        self._parts.append(Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="1.5">{}</rect>').format(
            css, _n(x), _n(y), _n(max(width, 0)), _n(height), _title(title)))

    def text(self, x: float, y: float, text: object, css: str = "label", anchor: str = "start") -> None:
        """One line of text."""
        self._parts.append(Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
            css, _n(x), _n(y), anchor, clean(text)))

    def polyline(self, points: Iterable[tuple[float, float]], css: str, title: str = "") -> None:
        """A line through points."""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(Markup('<polyline class="{}" points="{}">{}</polyline>').format(css, path, _title(title)))

    def marker(self, x: float, y: float, shape: str, css: str, size: float = 3.4, title: str = "") -> None:
        """A point: circle, square, triangle, cross or diamond, so that colour is not the only sign."""
        if shape not in _SHAPES:
            raise ValueError(f"no marker {shape!r}")
        s = size
        if shape == "circle":
            body = Markup('<circle class="{}" cx="{}" cy="{}" r="{}">{}</circle>').format(
                css, _n(x), _n(y), _n(s), _title(title))
        else:
            path = {
                "square": f"M{_n(x - s)} {_n(y - s)}h{_n(2 * s)}v{_n(2 * s)}h{_n(-2 * s)}z",
                "triangle": f"M{_n(x)} {_n(y - 1.2 * s)}l{_n(1.2 * s)} {_n(2.1 * s)}h{_n(-2.4 * s)}z",
                "diamond": f"M{_n(x)} {_n(y - 1.3 * s)}L{_n(x + 1.3 * s)} {_n(y)}L{_n(x)} {_n(y + 1.3 * s)}"
                           f"L{_n(x - 1.3 * s)} {_n(y)}z",
                "cross": f"M{_n(x - s)} {_n(y - s)}l{_n(2 * s)} {_n(2 * s)}M{_n(x - s)} {_n(y + s)}"
                         f"l{_n(2 * s)} {_n(-2 * s)}",
            }[shape]
            extra = " stroked" if shape == "cross" else ""
            body = Markup('<path class="{}" d="{}">{}</path>').format(css + extra, path, _title(title))
        self._parts.append(body)

    def render(self, label: str) -> Markup:
        """The SVG element; `label` is what a screen reader says."""
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}" style="min-width:{}px">{}</svg>').format(
            _n(self.width), _n(self.height), clean(label), _n(min(0.72 * self.width, 620.0)),
            Markup("").join(self._parts))


class LogScale:
    """Maps positive values to pixels on a logarithmic axis that shows at least 0.5 to 4."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min([*values, 0.5]), max([*values, 4.0])
        self._low, self._high = math.log(low / 1.08), math.log(high * 1.08)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        """Pixel of `value`, clipped to the axis."""
        share = (math.log(value) - self._low) / (self._high - self._low)
        return self._start + min(max(share, 0.0), 1.0) * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Round values inside the axis, about a dozen at most."""
        found = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5)]
        inside = [one for one in found if self._low <= math.log(one) <= self._high]
        return inside if len(inside) <= 12 else [one for one in inside if math.log10(one) == round(math.log10(one))]


def nice_ticks(high: float, count: int = 4) -> list[float]:
    """Round values from 0 to at least `high`."""
    if high <= 0:
        return [0.0, 1.0]
    raw = high / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    return [step * i for i in range(math.ceil(high / step - 1e-9) + 1)]


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _title(text: str) -> Markup:
    return Markup("<title>{}</title>").format(clean(text)) if text else Markup("")


