"""Whose code did the work: classes from the notes of one call and from the candidate's source.

own: the candidate's own kernels and no torch compute operator. mixed: both. library: torch operators only, or an
extension whose source only forwards to the library. none: no compute at all.
"""

from __future__ import annotations

import re
from typing import Any

from dice_core.arena.capture import BuildRequest
from dice_core.records import Honesty

#: ATen operators that move, make or describe memory without computing.
_NO_COMPUTE = frozenset({
    "alias", "arange", "as_strided", "as_strided_", "broadcast_to", "cat", "chunk", "clone", "contiguous",
    "copy_", "copy", "detach", "detach_", "diagonal", "empty", "empty_like", "empty_permuted", "empty_strided",
    "expand", "expand_as", "eye", "fill", "fill_", "flatten", "full", "full_like", "is_contiguous", "is_pinned",
    "item", "lift", "lift_fresh", "lift_fresh_copy", "movedim", "narrow", "new_empty", "new_empty_strided",
    "new_full", "new_ones", "new_zeros", "numel", "ones", "ones_like", "permute", "pin_memory", "repeat",
    "reshape", "resize_", "scalar_tensor", "select", "set_", "size", "slice", "slice_scatter", "select_scatter",
    "split", "split_with_sizes", "squeeze", "stack", "storage_offset", "stride", "sym_numel", "sym_size",
    "sym_stride", "t", "tensor_split", "to", "transpose", "unbind", "unfold", "unflatten", "unsafe_split",
    "unsqueeze", "view", "view_as", "view_as_complex", "view_as_real", "zero", "zero_", "zeros", "zeros_like",
    "_local_scalar_dense", "_reshape_alias", "_to_copy", "_unsafe_view", "_has_compatible_shallow_copy_type",
})
_LOOP = re.compile(r"\b(for|while)\s*\(|parallel_for\s*\(|\bdo\s*\{")
_LAUNCH = re.compile(r"<<<|cudaLaunchKernel|cuLaunchKernel|cudaLaunchCooperativeKernel")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def compute_operators(operators: dict[str, int]) -> dict[str, int]:
    """The operators that compute, without those that only move, make or describe memory. Names as `aten.mm.default`.

    Work that was hidden from the trace and ways out of torch (`hidden.mm`, `foreign.numpy`) count as compute.
    """
    return {
        name: count
        for name, count in operators.items()
        if name.startswith(("hidden.", "foreign."))
        or (name.startswith("aten.") and name.split(".")[1] not in _NO_COMPUTE)
    }


def own_operators(operators: dict[str, int]) -> int:
    """Calls of operators that are not torch's: a candidate may register its extension as a torch operator."""
    others = ("aten", "prim", "prims", "c10d", "hidden", "foreign")
    return sum(count for name, count in operators.items() if name.split(".")[0] not in others)


def has_own_kernel(request: BuildRequest) -> bool:
    """Whether an extension's source holds work of its own: a kernel launch, or on the CPU a loop."""
    cuda = _COMMENT.sub(" ", "\n".join(request.cuda_sources))
    cpp = _COMMENT.sub(" ", "\n".join(request.cpp_sources))
    if request.cuda_sources:
        return "__global__" in cuda and _LAUNCH.search(cuda + cpp) is not None
    return _LOOP.search(cpp) is not None


def classify(
    operators: dict[str, int], extension_calls: int, requests: list[BuildRequest], *, jit_kernel: bool = False
) -> Honesty:
    """Class of one traced call.

    Args:
        operators: operator name -> count, views and copies included.
        extension_calls: calls into the candidate's extensions.
        requests: the extensions that it had built.
        jit_kernel: the source defines kernels in a language that needs no extension (Triton).
    """
    computes = bool(compute_operators(operators))
    own = extension_calls + own_operators(operators) > 0 and any(has_own_kernel(one) for one in requests)
    if own or (jit_kernel and not computes):
        return Honesty.MIXED if computes else Honesty.OWN
    if computes or extension_calls:
        return Honesty.LIBRARY
    return Honesty.NONE


def with_text(traced: Honesty, suggested: str) -> Honesty:
    """The class of the trace, lowered by what the candidate's text shows.

    A candidate can hide operators from a trace in its own process, so `own` is said only when the text agrees; the text
    alone makes nothing worse than `mixed`.
    """
    return Honesty.MIXED if traced is Honesty.OWN and suggested not in (Honesty.OWN, "unknown") else traced


def evidence(operators: dict[str, int], extension_calls: int) -> dict[str, Any]:
    """What the class rests on, for the attempt's record."""
    return {
        "compute_operators": compute_operators(operators),
        "other_operators": sum(operators.values()) - sum(compute_operators(operators).values()),
        "extension_calls": extension_calls,
    }
