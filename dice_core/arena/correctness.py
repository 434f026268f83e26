"""The judge's rules on outputs: form first, then errors. Plain numbers in, a verdict out; no torch here.

A value passes when its error against the (double-precision) reference is at most `max(K * error of the reference's
own fp32 answer, floor)`, both as relative L2 norm and as peak over RMS. Both are relative to the size of the
answer, and no tolerance reaches 1, so zeros never pass for a reference that is not zero.
The reference's own error measures how hard the inputs are; the floor leaves room for another order of summation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dice_core.arena.trees import Node, check_tree, describe, form, tensors
from dice_core.errors import ProtocolError
from dice_core.records import Verdict

K = 4.0
#: Floor of the relative L2 error by dtype; about 1e-4 for fp32, which true fp32 arithmetic meets and TF32 does not.
FLOORS = {"float64": 1e-7, "complex128": 1e-7, "float16": 1e-2, "bfloat16": 1e-2, "float8_e4m3fn": 1e-1,
          "float8_e5m2": 2e-1}
_FLOOR_FP32 = 1e-4
#: A single element may be off by this many floors of the RMS.
PEAK_FACTOR = 5.0
_MAX_L2, _MAX_PEAK = 0.1, 0.5
#: With an all-zero reference, the norm of the error must stay below this.
_ZERO_TOLERANCE = 1e-6
#: Outputs of timed calls are compared with the eager output in the problem's own precision: both sides' errors count.
TIMED_FACTOR = 2.0
_ANYWHERE = 1 << 62


@dataclass(frozen=True)
class Trial:
    """One set of inputs: kinds are `kernelbench` and `fresh` (the problem's own generator), `normal`, `mixture`."""

    index: int
    kind: str

    @property
    def is_own_generator(self) -> bool:
        """Counts for KernelBench's verdict, and cannot be skipped."""
        return self.kind in ("kernelbench", "fresh")


TRIALS = (Trial(0, "kernelbench"), Trial(1, "fresh"), Trial(2, "fresh"), Trial(3, "normal"), Trial(4, "mixture"))


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


def check_values(leaves: list[dict[str, Any]], *, factor: float = 1.0, floor_from: list[dict[str, Any]] | None = None
                 ) -> Finding | None:
    """Errors of all outputs against the tolerance.

    Args:
        leaves: what `metrics.measure` gave for each output.
        factor: widens the tolerance.
        floor_from: measures whose `ref_l2` and `ref_peak` to use instead (of a trial with a double reference).
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
        floor = FLOORS.get(leaf["dtype"], _FLOOR_FP32)
        l2 = min(_MAX_L2, factor * max(K * own.get("ref_l2", 0.0), floor))
        peak = min(_MAX_PEAK, factor * max(K * own.get("ref_peak", 0.0), PEAK_FACTOR * floor))
        if leaf["l2"] > l2:
            return _wrong(number, f"relative L2 error {leaf['l2']:.3g} (allowed {l2:.3g})")
        if leaf["peak"] > peak:
            return _wrong(number, f"largest error is {leaf['peak']:.3g} of the RMS (allowed {peak:.3g})")
    return None


def _wrong(number: int, reason: str) -> Finding:
    return Finding(Verdict.INCORRECT_NUMERICAL, f"output {number}: {reason}")


def _walk(node: Node) -> list[Node]:
    return [node, *(below for item in node.get("items", ()) for below in _walk(item))]
