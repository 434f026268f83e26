"""The judge's rules on outputs: form first, then errors. Plain numbers in, a verdict out; no torch here.

A value passes when its error against the (double-precision) reference is at most

    max(K * error of the reference's own answer, floor * max(1, condition / 2))

as relative L2 norm of the whole output, of every row of it, and as peak over RMS. The floor is what another order of
summation may cost a well-conditioned result in fp32: rounding of partial sums grows with the square root of their
number (Higham, Accuracy and Stability of Numerical Algorithms, ch. 4), 1e-4 is 1,700 roundings, and TF32 or half
precision stay above it. `condition` is measured: how much the reference's answer changes, relatively, when inputs and
parameters change by 2^-20, so inputs on which any order of summation loses digits are not held against a kernel, while
a less precise arithmetic loses the same factor and is still seen. All limits are relative to the size of the answer and
none reaches 1, so zeros never pass for a reference that is not zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dice_core.arena.trees import Node, check_tree, describe, form, tensors
from dice_core.errors import ProtocolError
from dice_core.records import Verdict

K = 4.0
#: Floor of the relative L2 error by dtype.
FLOORS = {"float64": 1e-7, "complex128": 1e-7, "float16": 1e-2, "bfloat16": 1e-2, "float8_e4m3fn": 1e-1,
          "float8_e5m2": 2e-1}
_FLOOR_FP32 = 1e-4
#: A single element may be off by this many floors of the RMS, a single row by this many floors of its own size.
PEAK_FACTOR = 5.0
#: On small whole numbers whose answer the reference gives exactly, every order of summation does.
_EXACT_SHARE = 0.01
_MAX_L2, _MAX_PEAK = 0.1, 0.5
#: With an all-zero reference, the norm of the error must stay below this.
_ZERO_TOLERANCE = 1e-6
#: Outputs of timed calls are compared with the eager output in the problem's own precision: both sides' errors count.
TIMED_FACTOR = 2.0
_ANYWHERE = 1 << 62


@dataclass(frozen=True)
class Trial:
    """One set of inputs.

    Kinds are `kernelbench` and `fresh` (the problem's own generator), those of `drawing.alter`, and `weights`: the
    problem's own generator with other parameters and buffers on both sides.
    """

    index: int
    kind: str

    @property
    def is_own_generator(self) -> bool:
        """Counts for KernelBench's verdict, and cannot be skipped."""
        return self.kind in ("kernelbench", "fresh")

    @property
    def draw_index(self) -> int:
        """The trial whose draw this one starts from: a permuted copy shows the first trial's values again."""
        return 0 if self.kind == "permuted" else self.index


_OWN = (Trial(0, "kernelbench"), Trial(1, "fresh"))
TRIALS = (*_OWN, Trial(2, "normal"), Trial(3, "scaled"), Trial(4, "sparse"), Trial(5, "integers"), Trial(6, "outlier"),
          Trial(7, "permuted"), Trial(8, "weights"))
#: For inputs and outputs of `LARGE_BYTES` and more: one trial holds all kinds, in different rows.
LARGE_TRIALS = (*_OWN, Trial(2, "composite"), Trial(8, "weights"))
LARGE_BYTES = 512 << 20


@dataclass(frozen=True)
class Finding:
    """Why an output does not pass."""

    verdict: Verdict
    reason: str


def check_form(got: Node, expected: Node) -> Finding | None:
    """Nesting, shapes and dtypes of an output against the reference's."""
    if got["k"] == "other" or any(item["k"] == "other" for item in _walk(got)):
        return Finding(Verdict.CONTRACT_VIOLATION, f"output {describe(got)} holds values that are no tensors")
    if form(got) != form(expected):
        return Finding(Verdict.INCORRECT_SHAPE, f"output is {describe(got)}, the reference gives {describe(expected)}")
    for number, (ours, theirs) in enumerate(zip(tensors(got), tensors(expected), strict=True)):
        if ours["shape"] != theirs["shape"]:
            return Finding(
                Verdict.INCORRECT_SHAPE, f"output {number} has shape {ours['shape']}, the reference {theirs['shape']}"
            )
        if ours["dtype"] != theirs["dtype"]:
            return Finding(
                Verdict.INCORRECT_DTYPE, f"output {number} has dtype {ours['dtype']}, the reference {theirs['dtype']}"
            )
    return None


def check_output(node: object, expected: Node, low: int, high: int) -> tuple[Node, Finding | None]:
    """Validate an output tree from a worker: form first, then that its bytes lie in `low`..`high` of the region.

    Raises:
        ProtocolError: no tree, or an output of the right form at a wrong place.
    """
    tree = check_tree(node, 0, _ANYWHERE)
    finding = check_form(tree, expected)
    if finding is None:
        check_tree(tree, low, high)
    return tree, finding


def check_contract(faults: list[Any], mutated: list[Any], reference: dict[str, Any]) -> Finding | None:
    """What the worker says about the output's memory, held against what the reference does itself."""
    for fault in faults[:100]:
        if not isinstance(fault, dict) or not isinstance(fault.get("rule"), str):
            raise ProtocolError("a fault that is no object with a rule")
        if fault["rule"] not in reference["faults"]:
            return Finding(Verdict.CONTRACT_VIOLATION, f"{fault['rule']}: {str(fault.get('detail'))[:300]}")
    changed = [index for index in mutated[:100] if index not in reference["mutates"]]
    if changed:
        return Finding(Verdict.CONTRACT_VIOLATION, f"mutates_input: inputs {changed} were changed in place")
    return None


def allowed_error(dtype: str, condition: float, own: float) -> float:
    """Relative L2 error that an output of this dtype may have."""
    return max(K * own, FLOORS.get(dtype, _FLOOR_FP32) * max(1.0, condition / 2))


def check_values(leaves: list[dict[str, Any]], *, factor: float = 1.0, floor_from: list[dict[str, Any]] | None = None,
                 kind: str = "", jumps: float = 0.0) -> Finding | None:
    """Errors of all outputs against the tolerance.

    Args:
        leaves: what `metrics.measure` gave for each output.
        factor: widens the tolerance.
        floor_from: measures whose `ref_l2`, `ref_peak` and `condition` to use instead (of a trial with a double
            reference); rows are then not looked at, since these belong to other values.
        kind: of the trial.
        jumps: for a reference whose answer jumps (round, floor, a cast, top-k), the relative L2 error that this may
            cost (`metrics.Yardstick.jumps`, the largest of its trials). Two right answers may then differ by a whole
            step in an element here and there, so single elements and rows say nothing.
    """
    for number, leaf in enumerate(leaves):
        own = floor_from[number] if floor_from is not None else leaf
        if "mismatch" in leaf:
            allowed = K * factor * own.get("ref_mismatch", 0.0)
            if leaf["mismatch"] > allowed:
                return _wrong(number, f"{leaf['mismatch']:.3g} of the elements differ (allowed {allowed:.3g})")
            continue
        if not leaf["masks_equal"]:
            return _wrong(number, "NaN or infinity at other places than in the reference")
        if leaf["zero_reference"]:
            if leaf["l2_absolute"] > _ZERO_TOLERANCE:
                return _wrong(number, f"the reference is all zero, the output has norm {leaf['l2_absolute']:.3g}")
            continue
        share = _EXACT_SHARE if kind == "integers" and leaf.get("exact") else 1.0
        reason = _too_far(leaf, own, factor * share, jumps, rows=floor_from is None)
        if reason is not None:
            return _wrong(number, reason)
    return None


def _too_far(leaf: dict[str, Any], own: dict[str, Any], factor: float, jumps: float, *, rows: bool) -> str | None:
    dtype, condition = leaf["dtype"], own.get("condition", 0.0)
    # Where the answer jumps, a nudge that made it jump says nothing about how steep it is elsewhere.
    allowed = allowed_error(dtype, 1.0 if jumps else condition, own.get("ref_l2", 0.0))
    l2 = min(_MAX_L2, factor * max(allowed, jumps))
    if leaf["l2"] > l2:
        return f"relative L2 error {leaf['l2']:.3g} (allowed {l2:.3g})"
    if jumps:
        return None
    peak = factor * max(K * own.get("ref_peak", 0.0), PEAK_FACTOR * allowed_error(dtype, condition, 0.0))
    if leaf["peak"] > min(_MAX_PEAK, peak):
        return f"largest error is {leaf['peak']:.3g} of the RMS (allowed {min(_MAX_PEAK, peak):.3g})"
    row = leaf["row"] if rows else None
    if row is not None:
        allowed = factor * max(K * row["ref_l2"], PEAK_FACTOR * allowed_error(dtype, row["condition"], 0.0))
        if row["l2"] > min(_MAX_PEAK, allowed):
            return f"row {row['index']}: relative L2 error {row['l2']:.3g} (allowed {min(_MAX_PEAK, allowed):.3g})"
    return None


def _wrong(number: int, reason: str) -> Finding:
    return Finding(Verdict.INCORRECT_NUMERICAL, f"output {number}: {reason}")


def _walk(node: Node) -> list[Node]:
    return [node, *(below for item in node.get("items", ()) for below in _walk(item))]
