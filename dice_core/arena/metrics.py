"""Errors of one output tensor against the reference. Runs in the referee; `correctness.py` decides on the numbers.

Outputs are read in pieces, since at KernelBench's sizes one double-precision copy takes 13 GB.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from dice_core.arena.correctness import PEAK_FACTOR, K, allowed_error
from dice_core.arena.weights import STEP, WIDE_STEP

#: KernelBench's tolerance (atol = rtol) by the reference's dtype.
_KERNELBENCH = {torch.float32: 1e-4, torch.float64: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
_HUGE = 1e300
#: Elements that are compared at once.
_PIECE = 1 << 25
#: A row has at least this many elements; shorter last dimensions are taken together.
_ROW = 32
#: A row that is smaller than this part of the tensor's RMS is measured against that part: it may be rounding itself.
_SMALL_ROW = 1e-3
#: An element that a nudge moves by this part of the RMS has jumped.
_JUMP = 0.05
#: Relative error that another order of summation may bring to what is rounded or compared.
_ROUNDING = 2.0**-17
#: An answer jumps when a wide nudge moves an element this many times further than its width explains.
_BEYOND_SLOPE = 16.0


@dataclass
class Yardstick:
    """How exact one output of the reference is, by row. All in double precision on the output's device."""

    row_norm: torch.Tensor  #: norm of the (double-precision) reference
    row_own: torch.Tensor  #: norm of the error of the reference's own answer; zeros without a double reference
    row_nudged: torch.Tensor  #: norm of the change when inputs and parameters are nudged; zeros when not known
    own_peak: float  #: largest error of the reference's own answer
    count: int  #: finite elements
    own_mismatch: float = 0.0  #: of integers: share that differs in double precision or after nudging
    nudged_peak: float = 0.0  #: largest change when inputs and parameters are nudged

    def jumps(self, step: float) -> float:
        """Relative L2 error that right answers may have where the answer jumps (round, a cast, top-k), 0 where not.

        A nudge of a millionth moves no element of a continuous answer by a twentieth of the RMS. Allowed are two jumps,
        each as large as what the nudge did to the row that it moved most, and what errors of `_ROUNDING` would do.

        Args:
            step: relative size of the nudge that this was made with.
        """
        norm = float(self.row_norm.norm()) if self.row_norm.numel() else 0.0
        if norm == 0.0 or self.nudged_peak * math.sqrt(max(1, self.count)) < _JUMP * norm:
            return 0.0
        one, together = float(self.row_nudged.max()) / norm, float(self.row_nudged.norm()) / norm
        return 2.0 * math.sqrt(one**2 + together**2 * _ROUNDING / step)  # jumps grow in number, the norm with its root


def hidden_jumps(near: Yardstick, far: Yardstick) -> float:
    """`Yardstick.jumps` of an answer that a small nudge happened to move over no step.

    Args:
        near: the output under a nudge of `STEP`.
        far: under one of `WIDE_STEP` in the same direction. A continuous answer moves in proportion, or a little more
            where its slope grows.
    """
    if far.nudged_peak <= _BEYOND_SLOPE * WIDE_STEP / STEP * near.nudged_peak:
        return 0.0
    return far.jumps(WIDE_STEP)


def kernelbench_tolerance(dtype: torch.dtype) -> float:
    """What KernelBench allows at this precision, absolute and relative alike."""
    return _KERNELBENCH.get(dtype, 1e-4)


def measure(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None, yard: Yardstick | None = None
            ) -> dict[str, Any]:
    """Numbers about one output.

    Args:
        got: the candidate's output, same shape and dtype as `expected`.
        expected: the reference's output in its own precision.
        exact: the reference in double precision, or None.
        yard: of the reference; made from `expected` and `exact` when None.

    Returns:
        `dtype`, `kernelbench`, and for floating outputs `masks_equal` (NaN and infinities at the same places),
        `zero_reference`, `l2` (norm of the error over norm of the reference), `peak` (largest error over the
        reference's RMS), `ref_l2` and `ref_peak` (the same of `expected` against `exact`, 0 without it), `condition`
        (relative change of the answer over relative change of inputs and parameters, 0 when unknown), `l2_absolute`
        for an all-zero reference, and `row`: the row that is furthest off for what it may be, with its own `l2`,
        `ref_l2` and `condition`; `exact` says that the reference's own answer has no error. For other outputs
        `mismatch` and `ref_mismatch`, shares of unequal elements.
    """
    name = str(expected.dtype).removeprefix("torch.")
    if expected.is_complex():
        return measure(torch.view_as_real(got), torch.view_as_real(expected),
                       None if exact is None else torch.view_as_real(exact), yard) | {"dtype": name}
    if yard is None:
        yard = yardstick(expected, exact, None)
    if not expected.is_floating_point():
        reference = expected if exact is None else exact.to(expected.dtype)
        return {"dtype": name, "kernelbench": bool(torch.equal(got, expected)), "mismatch": _share(got != reference),
                "ref_mismatch": yard.own_mismatch}
    return {"dtype": name, **_floating(got, expected, exact, yard, name)}


def yardstick(expected: torch.Tensor, exact: torch.Tensor | None, nudged: torch.Tensor | None) -> Yardstick:
    """How exact the reference's own answer is.

    Args:
        expected: its answer in its own precision.
        exact: in double precision, or None.
        nudged: its answer (in the better precision of the two) to nudged inputs and parameters, or None.
    """
    if expected.is_complex():
        return yardstick(*(None if one is None else torch.view_as_real(one)  # type: ignore[arg-type]
                           for one in (expected, exact, nudged)))
    empty = torch.zeros(0, dtype=torch.float64)
    if not expected.is_floating_point():
        others = [one.to(expected.dtype) for one in (exact, nudged) if one is not None]
        return Yardstick(empty, empty, empty, 0.0, expected.numel(),
                         max((_share(one != expected) for one in others), default=0.0))
    reference = expected if exact is None else exact
    norms, own, moved, peak, count, jump = [], [], [], 0.0, 0, 0.0
    for place in _pieces(expected):
        here, base = _cut(expected, place), _cut(reference, place).double()
        norms.append(base.norm(dim=1))
        error = None if exact is None else here.double() - base
        own.append(torch.zeros_like(norms[-1]) if error is None else error.norm(dim=1))
        change = None if nudged is None else _cut(nudged, place).double() - base
        moved.append(torch.zeros_like(norms[-1]) if change is None else change.norm(dim=1))
        count += base.numel()
        if not _finite(norms[-1], own[-1], moved[-1]):  # norms carry NaN and infinity: else there is nothing to mask
            special = ~(torch.isfinite(here) & torch.isfinite(base))
            count -= int(special.sum())
            norms[-1] = base.masked_fill(special, 0.0).norm(dim=1)
            if error is not None:
                own[-1] = error.masked_fill_(special, 0.0).norm(dim=1)
            if change is not None:
                change = torch.nan_to_num(change, 0.0, 0.0, 0.0).masked_fill_(special, 0.0)
                moved[-1] = change.norm(dim=1)
        peak = max(peak, 0.0 if error is None else _largest(error))
        jump = max(jump, 0.0 if change is None else _largest(change))
    joined = [torch.cat(parts) if parts else empty for parts in (norms, own, moved)]
    return Yardstick(joined[0], joined[1], joined[2], peak, count, nudged_peak=jump)


def all_finite(leaf: torch.Tensor) -> bool:
    """Whether a tensor holds neither NaN nor infinity."""
    if not leaf.is_floating_point():
        return True
    return all(_finite(_cut(leaf, place).double().norm(dim=1)) for place in _pieces(leaf))


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Norm of the difference over the norm of `other`; infinite where NaN and infinities are at different places."""
    if not other.is_floating_point() and not other.is_complex():
        return _share(one.to(other.dtype) != other)
    if other.is_complex():
        return relative_difference(torch.view_as_real(one.to(other.dtype)), torch.view_as_real(other))
    return badness(_floating(one, other, None, yardstick(other, None, None), "float64", compare=False))


def trimmed(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """`got` without the thousandth of its elements that are furthest off: these are taken from `expected`.

    Where an answer jumps, two right ones differ by a whole step in an element here and there. Timed calls are compared
    for answers that are kept or left out, which a thousandth cannot be.
    """
    count = expected.numel() // 1000
    if not count or not expected.is_floating_point():
        return got
    difference = torch.nan_to_num((got - expected).abs().flatten(), torch.inf).masked_fill_(
        (got == expected).flatten(), 0.0)
    made = got.clone()
    worst = difference.topk(count).indices
    made.view(-1)[worst] = expected.reshape(-1)[worst]
    return made


def badness(measured: dict[str, Any]) -> float:
    """What `measure` gave as one number, for telling which of several outputs is the worst."""
    if "mismatch" in measured:
        return float(measured["mismatch"])
    if not measured["masks_equal"]:
        return math.inf
    return float(measured["l2_absolute"] if measured["zero_reference"] else measured["l2"])


def tolerance_used(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest |got - expected| / (atol + rtol |expected|) at KernelBench's tolerance: allclose passes up to 1.

    Infinite where NaN and infinities differ, or where unequal integers are.
    """
    if not expected.is_floating_point():
        return 0.0 if torch.equal(got.to(expected.dtype), expected) else math.inf
    tolerance, worst = kernelbench_tolerance(expected.dtype), 0.0
    for place in _pieces(expected):
        ours, theirs = _cut(got, place).double(), _cut(expected, place).double()
        same = ours == theirs  # also equal infinities
        used = ((ours - theirs).abs_() / (tolerance + tolerance * theirs.abs())).masked_fill_(same, 0.0)
        worst = max(worst, float(torch.nan_to_num(used, math.inf, math.inf).max()))
    return worst


def _floating(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None, yard: Yardstick, dtype: str, *,
              compare: bool = True) -> dict[str, Any]:
    reference = expected if exact is None else exact
    tolerance = kernelbench_tolerance(expected.dtype)
    masks_equal = kernelbench = True
    rows, peak = [], 0.0
    for place in _pieces(expected):
        ours, theirs, base = _cut(got, place), _cut(expected, place), _cut(reference, place).double()
        kernelbench = kernelbench and (not compare or bool(
            torch.allclose(theirs, ours.to(theirs.dtype), atol=tolerance, rtol=tolerance)))
        error = ours.double() - base
        row = error.norm(dim=1)
        if not _finite(row):
            special = ~torch.isfinite(theirs)
            masks_equal = masks_equal and bool(torch.equal(special, ~torch.isfinite(ours))) and bool(torch.equal(
                torch.nan_to_num(ours[special], 1.0, 2.0, 3.0), torch.nan_to_num(theirs[special], 1.0, 2.0, 3.0)))
            error.masked_fill_(~torch.isfinite(error) | special, 0.0)
            row = error.norm(dim=1)
        rows.append(row)
        peak = max(peak, _largest(error))
    norm = float(yard.row_norm.norm())
    numbers: dict[str, Any] = {
        "kernelbench": kernelbench, "masks_equal": masks_equal, "zero_reference": norm == 0.0 and bool(rows),
        "l2_absolute": 0.0, "l2": 0.0, "peak": 0.0, "ref_l2": 0.0, "ref_peak": 0.0, "condition": 0.0, "exact": False,
        "row": None,
    }
    if not rows:
        return numbers
    errors = torch.cat(rows)
    numbers["l2_absolute"] = _cap(float(errors.norm()))
    if norm > 0.0:
        rms = norm / math.sqrt(max(1, yard.count))
        numbers |= {
            "l2": _cap(numbers["l2_absolute"] / norm), "peak": _cap(peak / rms),
            "ref_l2": _cap(float(yard.row_own.norm()) / norm), "ref_peak": _cap(yard.own_peak / rms),
            "condition": _cap(float(yard.row_nudged.norm()) / norm / STEP),
            "exact": exact is not None and yard.own_peak == 0.0,
            "row": _worst_row(errors, yard, rms, expected.numel() // errors.numel(), dtype),
        }
    return numbers


def _worst_row(errors: torch.Tensor, yard: Yardstick, rms: float, length: int, dtype: str) -> dict[str, Any]:
    size = yard.row_norm.clamp(min=_SMALL_ROW * rms * math.sqrt(length))
    l2, own, condition = errors / size, yard.row_own / size, yard.row_nudged / size / STEP
    allowed = torch.maximum(allowed_error(dtype, 1.0, 0.0) * PEAK_FACTOR * torch.clamp(condition / 2, min=1.0), K * own)
    worst = int((l2 / allowed).argmax())
    return {"index": worst, "length": length, "l2": _cap(float(l2[worst])), "ref_l2": _cap(float(own[worst])),
            "condition": _cap(float(condition[worst]))}


def _finite(*norms: torch.Tensor) -> bool:
    return all(math.isfinite(float(one.sum())) for one in norms)


def _largest(error: torch.Tensor) -> float:
    low, high = error.aminmax()
    return max(float(high), -float(low))


def _row_length(leaf: torch.Tensor) -> int:
    length = 1
    for size in reversed(leaf.shape):
        length *= size
        if length >= _ROW:
            return length
    return max(1, leaf.numel())


def _pieces(leaf: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """(row length, first row, row after the last) of pieces that cover the tensor."""
    if leaf.numel() == 0:
        return
    length = _row_length(leaf)
    count, step = leaf.numel() // length, max(1, _PIECE // length)
    for first in range(0, count, step):
        yield length, first, min(count, first + step)


def _cut(leaf: torch.Tensor, place: tuple[int, int, int]) -> torch.Tensor:
    length, first, last = place
    return leaf.detach().reshape(-1, length)[first:last]


def _share(unequal: torch.Tensor) -> float:
    return float(unequal.double().mean()) if unequal.numel() else 0.0


def _cap(value: float) -> float:
    return min(value, _HUGE) if math.isfinite(value) else _HUGE
