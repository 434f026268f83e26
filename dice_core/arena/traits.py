"""What a problem lets pass: measured once by the referee, on the problem's own inputs and at KernelBench's tolerance.

A trait of the first four means that KernelBench's comparison cannot tell a kernel from something that is none: zeros, a
constant, the answer to other inputs, an answer from other weights (kernel-evaluation scans by METR and robust-kbench
name such tasks). `evidence` is the largest share of the tolerance that is used: at most 1 is what passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dice_core.arena import inputs as values
from dice_core.arena import metrics, weights
from dice_core.arena.drawing import Drawn
from dice_core.arena.trials import Trial, TrialMaker

_CAP = 1e300


def problem_traits(maker: TrialMaker, first: Trial, second: Trial, call_seed: int, seed: int) -> list[dict[str, Any]]:
    """Traits of a problem from two trials with its own generator.

    Args:
        maker: of the trials.
        first: trial with the problem's own inputs.
        second: another one, with other inputs.
        call_seed: under which the first was made.
        seed: of other weights.

    Returns:
        For each trait: `trait`, `holds`, `evidence` (None where there is nothing to measure) and `tolerance`.
    """
    one, two = values.leaves(first.expected), values.leaves(second.expected)
    tolerance = max(
        (metrics.kernelbench_tolerance(leaf.dtype) for leaf in one if leaf.is_floating_point()), default=0.0)

    def trait(name: str, evidence: float | None, limit: float = 1.0) -> dict[str, Any]:
        shown = None if evidence is None else min(_CAP, evidence)
        return {"trait": name, "holds": evidence is not None and evidence <= limit, "evidence": shown,
                "tolerance": tolerance}

    constants = [_middle(leaf) for leaf in one]
    varies = bool(first.facts["stochastic"])
    found = [
        trait("zero_passable", max(_used([torch.zeros_like(leaf) for leaf in side], side) for side in (one, two))),
        trait("constant_passable", max(_used(
            [torch.full_like(leaf, value) for leaf, value in zip(side, constants, strict=True)], side)
            for side in (one, two))),
        trait("replay_passable", _used(one, two)),
        trait("weight_independent", _attempt(lambda: _other_weights(maker, first, one, call_seed, seed))),
        trait("tf32_indistinguishable", _attempt(lambda: _in_tf32(maker, first, one, call_seed))),
    ]
    for name, holds in (("stochastic", varies), ("mutates_inputs", bool(first.facts["mutates"])),
                        ("tuple_output", first.facts["output"]["k"] != "tensor")):
        found.append({"trait": name, "holds": holds, "evidence": float(holds), "tolerance": tolerance})
    return found


def _used(got: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    return max((metrics.tolerance_used(ours, theirs) if ours.shape == theirs.shape else math.inf
                for ours, theirs in zip(got, expected, strict=True)), default=math.inf)


def _attempt(work: Callable[[], float | None]) -> float | None:
    try:
        return work()
    except Exception:  # a reference that cannot do this has no such trait
        return None


def _middle(leaf: torch.Tensor) -> float:
    """A value in the middle: the median of some thousand elements (all, where there are no more)."""
    flat = leaf.detach().reshape(-1)
    if flat.numel() == 0 or flat.is_complex():
        return 0.0
    value = flat[:: max(1, flat.numel() // 4096)].double().median()
    return float(value) if math.isfinite(float(value)) else 0.0


def _other_weights(maker: TrialMaker, trial: Trial, expected: list[torch.Tensor], call_seed: int, seed: int
                   ) -> float | None:
    """Random weights in another order; values that start constant stay, as they do under another seed."""
    changes = weights.randomised(maker.model, seed, constants=False)
    has_weights = isinstance(maker.model, torch.nn.Module) and any(True for _ in maker.model.parameters())
    if not has_weights:
        return None
    return _used(maker.answer(trial.inputs, changes, call_seed), expected)


def _in_tf32(maker: TrialMaker, trial: Trial, expected: list[torch.Tensor], call_seed: int) -> float | None:
    """Inputs and parameters rounded to TF32's width; a lower bound of what TF32 arithmetic loses."""
    if not any(leaf.dtype is torch.float32 for leaf in expected):
        return None
    changes = {}
    if isinstance(maker.model, torch.nn.Module):
        changes = {name: weights.to_tf32(value.detach()) for name, value in maker.model.named_parameters()}
    rounded = Drawn(values.map_leaves(trial.inputs.values, lambda _, leaf: weights.to_tf32(leaf)), trial.inputs.plain)
    return _used(maker.answer(rounded, changes, call_seed), expected)
