"""Errors of one output tensor against the reference. Runs in the referee; `correctness.py` decides on the numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

#: KernelBench's tolerance (atol = rtol) by the reference's dtype.
_KERNELBENCH = {torch.float32: 1e-4, torch.float64: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
_HUGE = 1e300


def measure(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None) -> dict[str, Any]:
    """Numbers about one output.

    Args:
        got: the candidate's output, same shape and dtype as `expected`.
        expected: the reference's output in its own precision.
        exact: the reference in double precision, or None.

    Returns:
        `dtype`, `kernelbench`, and for floating outputs `masks_equal` (NaN and infinities at the same places),
        `zero_reference`, `l2` (norm of the error over norm of the reference), `peak` (largest error over the
        reference's RMS), `ref_l2` and `ref_peak` (the same of `expected` against `exact`, 0 without it), `l2_absolute`
        for an all-zero reference. For other outputs `mismatch` and `ref_mismatch`, shares of unequal elements.
    """
    name = str(expected.dtype).removeprefix("torch.")
    if expected.is_complex():
        return measure(torch.view_as_real(got), torch.view_as_real(expected),
                       None if exact is None else torch.view_as_real(exact)) | {"dtype": name}
    if not expected.is_floating_point():
        reference = expected if exact is None else exact.to(expected.dtype)
        mismatch = _share(got != reference)
        return {
            "dtype": name, "kernelbench": bool(torch.equal(got, expected)), "mismatch": mismatch,
            "ref_mismatch": _share(expected != reference),
        }
    return {"dtype": name, "kernelbench": _kernelbench(got, expected), **_floating(got, expected, exact)}


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Norm of the difference over the norm of `other`; infinite where NaN and infinities are at different places."""
    if not other.is_floating_point():
        return _share(one.to(other.dtype) != other)
    found = _floating(one.to(torch.float64), other, None)
    if not found["masks_equal"]:
        return math.inf
    return float(found["l2_absolute"] if found["zero_reference"] else found["l2"])


def _floating(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None) -> dict[str, Any]:
    if expected.numel() == 0:
        return {"masks_equal": True, "zero_reference": False, "l2": 0.0, "peak": 0.0, "ref_l2": 0.0, "ref_peak": 0.0,
                "l2_absolute": 0.0}
    special = ~torch.isfinite(expected)
    masks_equal = bool(torch.equal(special, ~torch.isfinite(got)))
    if masks_equal and bool(special.any()):
        masks_equal = bool(torch.equal(torch.nan_to_num(got[special], 1.0, 2.0, 3.0),
                                       torch.nan_to_num(expected[special], 1.0, 2.0, 3.0)))
    reference = (expected if exact is None else exact).to(torch.float64)
    ordinary = torch.isfinite(got) & ~special & torch.isfinite(reference)
    zero = torch.zeros((), dtype=torch.float64, device=expected.device)
    reference = torch.where(ordinary, reference, zero)
    error = torch.where(ordinary, got.to(torch.float64) - reference, zero)
    count = max(1, int(ordinary.sum()))
    norm = float(reference.norm())
    rms = norm / math.sqrt(count)
    numbers: dict[str, Any] = {
        "masks_equal": masks_equal, "zero_reference": norm == 0.0, "l2_absolute": _cap(float(error.norm())),
        "l2": 0.0, "peak": 0.0, "ref_l2": 0.0, "ref_peak": 0.0,
    }
    if norm > 0.0:
        numbers["l2"] = _cap(float(error.norm()) / norm)
        numbers["peak"] = _cap(float(error.abs().max()) / rms)
        if exact is not None:
            own = torch.where(ordinary, expected.to(torch.float64) - reference, zero)
            numbers["ref_l2"] = _cap(float(own.norm()) / norm)
            numbers["ref_peak"] = _cap(float(own.abs().max()) / rms)
    return numbers


def _kernelbench(got: torch.Tensor, expected: torch.Tensor) -> bool:
    tolerance = _KERNELBENCH.get(expected.dtype, 1e-4)
    return bool(torch.allclose(expected, got, atol=tolerance, rtol=tolerance))


def _share(unequal: torch.Tensor) -> float:
    return float(unequal.double().mean()) if unequal.numel() else 0.0


def _cap(value: float) -> float:
    return min(value, _HUGE) if math.isfinite(value) else _HUGE
