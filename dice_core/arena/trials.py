"""Making trials: inputs, expected outputs, and how exact these are. Runs in the referee."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from dice_core.arena import inputs as values
from dice_core.arena import metrics, weights
from dice_core.arena.drawing import Drawn, alter
from dice_core.arena.metrics import Yardstick
from dice_core.arena.serving import Failure, describe
from dice_core.arena.trees import total_bytes
from dice_core.arena.worker import has_overlap, output_faults

#: A double-precision reference is made when the ordinary one takes no longer than this and memory allows.
_DOUBLE_LIMIT_S = {"cpu": 1.0, "cuda": 3.0}
_DOUBLE_LIMIT_BYTES = {"cpu": 256 << 20, "cuda": 6 << 30}
#: Double precision that is this far off means that the module behaves differently in double, not that it is better.
_DOUBLE_MAX_DIFFERENCE = 0.05
_OWN_GENERATOR = ("kernelbench", "fresh", "weights")
_BELOW_ONE = 1.0 - 2.0**-24
_FP32_BYTES = 4
_TIED = ("sparse", "integers", "composite")


@dataclass
class Trial:
    """One trial as the referee holds it."""

    inputs: Drawn
    expected: Any  #: outputs in the problem's own precision
    exact: Any  #: outputs in double precision, or None
    yards: list[Yardstick]  #: one for each output tensor
    facts: dict[str, Any]

    @property
    def size_bytes(self) -> int:
        """What it takes on the device, about."""
        return int(self.facts["input_bytes"]) + 3 * int(self.facts["output_bytes"])


class TrialMaker:
    """Makes the trials of one problem.

    Args:
        model: the reference, on `device`.
        draws: gives the inputs of a seed.
        device: where it runs.
        other_weights: values by name for the trial of kind `weights`.
    """

    def __init__(
        self, model: Any, draws: Callable[[int], Drawn], device: torch.device, other_weights: dict[str, torch.Tensor]
    ) -> None:
        self._model = model
        self._draws = draws
        self._device = device
        self._other_weights = other_weights
        self._double: Any = None
        self._double_broken = ""
        self._stochastic = False

    def make(self, kind: str, seed: int, alter_seed: int, call_seed: int, index: int) -> Trial | str:
        """One trial, or why it does not count.

        Raises:
            Failure: the reference does not run on its own inputs.
        """
        optional = kind not in ("kernelbench", "fresh")
        if kind == "weights" and not self._other_weights:
            return "the reference has no parameters or buffers to alter"
        drawn: Drawn | None = self._draws(seed)
        if drawn is not None and kind not in _OWN_GENERATOR:
            drawn = alter(drawn, kind, alter_seed)
        if drawn is None:
            return "no input comes straight from torch.rand or torch.randn"
        with weights.replaced(self._model, self._other_weights) if kind == "weights" else nullcontext():
            try:
                arguments = self.place(drawn)
                begin = time.perf_counter()
                expected = self.run(self._model, arguments, call_seed)
                took_s = time.perf_counter() - begin
            except Exception as error:
                if optional:
                    return f"the reference fails on these inputs: {type(error).__name__}: {str(error)[:300]}"
                told = describe(error)
                raise Failure("oom" if told["category"] == "oom" else "exception", told["text"]) from error
            found = values.leaves(expected)
            if not found:
                raise Failure("exception", f"the reference returns no tensor but {type(expected).__name__}")
            if optional and not all(metrics.all_finite(leaf) for leaf in found):
                return "the reference gives values that are not finite on these inputs"
            facts = self._facts(drawn, arguments, expected, took_s)
            del arguments
            # The module may hand out a buffer that its next call overwrites.
            expected = values.map_leaves(expected, lambda _, leaf: leaf.detach().clone())
            if index == 0:
                self._stochastic = self._varies(drawn, expected, call_seed)
            facts["stochastic"] = self._stochastic and index == 0
            exact, yards = self._exactness(drawn, expected, call_seed, facts, kind, alter_seed)
        jumps = max((yard.jumps(weights.STEP) for yard in yards), default=0.0)
        if index == 0 and not jumps and not self._stochastic:
            jumps = self._hidden_jumps(drawn, values.leaves(expected), exact, yards, call_seed, alter_seed)
        facts |= {"double": exact is not None, "double_note": self._double_broken, "jumps": jumps}
        return Trial(drawn, expected, exact, yards, facts)

    def place(self, drawn: Drawn) -> list[Any]:
        """Arguments of one call: copies, since the module may write into them."""
        return list(values.map_leaves(drawn.values, lambda _, leaf: leaf.clone()))

    def run(self, model: Any, arguments: list[Any], seed: int) -> Any:
        """One call without gradients, finished when it returns."""
        torch.manual_seed(seed)
        with torch.no_grad():
            output = model(*arguments)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return output

    def answer(self, drawn: Drawn, changes: dict[str, torch.Tensor], call_seed: int) -> list[torch.Tensor]:
        """Outputs for these inputs with other weights; the model is as it was afterwards."""
        with weights.replaced(self._model, changes):
            found = values.leaves(self.run(self._model, self.place(drawn), call_seed))
            return [leaf.detach().clone() for leaf in found]

    @property
    def model(self) -> Any:
        """The reference."""
        return self._model

    def _facts(self, drawn: Drawn, arguments: list[Any], expected: Any, took_s: float) -> dict[str, Any]:
        node, _ = values.encode(expected, None, 0, strict=False)
        sent, _ = values.encode(drawn.values, None, 0)
        before, after = values.leaves(drawn.values), values.leaves(arguments)
        return {
            "output": node, "output_bytes": total_bytes(node), "input_bytes": total_bytes(sent), "took_s": took_s,
            "mutates": [index for index, (one, other) in enumerate(zip(before, after, strict=True))
                        if not values.same_bytes(one, other)],
            "faults": sorted({fault["rule"] for fault in output_faults(expected, arguments, self._device)}),
            "overlaps": any(has_overlap(leaf) for leaf in values.leaves(expected)),
        }

    def _varies(self, drawn: Drawn, expected: Any, call_seed: int) -> bool:
        """Whether the same inputs under another seed of the generators give another answer."""
        again = self.run(self._model, self.place(drawn), call_seed + 1)
        return any(
            metrics.relative_difference(one, other) > 1e-3
            for one, other in zip(values.leaves(again), values.leaves(expected), strict=True)
        )

    def _exactness(self, drawn: Drawn, expected: Any, call_seed: int, facts: dict[str, Any], kind: str, seed: int
                   ) -> tuple[Any, list[Yardstick]]:
        """The double-precision answer where there is one, and how exact the ordinary answer is."""
        outputs = values.leaves(expected)
        if self._stochastic:
            return None, [metrics.yardstick(one, None, None) for one in outputs]
        size, limit_s = facts["input_bytes"] + facts["output_bytes"], _DOUBLE_LIMIT_S[self._device.type]
        exact = None
        if not self._double_broken and facts["took_s"] <= limit_s and size <= _DOUBLE_LIMIT_BYTES[self._device.type]:
            exact = self._exact(drawn, expected, kind)
        nudged = self._nudged(drawn, outputs, self._double if exact is not None else self._model, call_seed, seed,
                              kind)
        exact_leaves = values.leaves(exact) if exact is not None else [None] * len(outputs)
        floats = [index for index, leaf in enumerate(values.leaves(drawn.values)) if leaf.is_floating_point()]
        if kind in _TIED or any(index not in drawn.plain for index in floats):
            # A nudge breaks ties and moves values that stand on a step; whole numbers would flip where they must not.
            # Beside values of the same shape they are places (of a top-k, a sort), and equal values may change places.
            shapes = [one.shape for one in outputs if one.is_floating_point()]
            nudged = [three if one.is_floating_point() or one.is_complex() or one.shape in shapes else None
                      for one, three in zip(outputs, nudged, strict=True)]
        yards = [metrics.yardstick(one, two, three)
                 for one, two, three in zip(outputs, exact_leaves, nudged, strict=True)]
        if kind == "weights":
            self._double = None
        return exact, yards

    def _hidden_jumps(self, drawn: Drawn, outputs: list[torch.Tensor], exact: Any, yards: list[Yardstick],
                      call_seed: int, seed: int) -> float:
        """Of the trial with the problem's own inputs: what `metrics.hidden_jumps` says of its outputs."""
        if any(leaf.element_size() < _FP32_BYTES for leaf in outputs if leaf.is_floating_point()):
            return 0.0  # in half precision the smaller nudge vanishes, and everything seems to jump
        model = self._double if exact is not None else self._model
        far = self._nudged(drawn, outputs, model, call_seed, seed, "kernelbench", weights.WIDE_STEP)
        leaves = values.leaves(exact) if exact is not None else [None] * len(outputs)
        return max((
            metrics.hidden_jumps(yard, metrics.yardstick(one, two, three))
            for yard, one, two, three in zip(yards, outputs, leaves, far, strict=True)
            if three is not None and yard.row_nudged.numel() and one.is_floating_point()), default=0.0)

    def _exact(self, drawn: Drawn, expected: Any, kind: str) -> Any:
        try:
            if self._double is None or kind == "weights":
                self._double = copy.deepcopy(self._model).double()
            exact = self.run(self._double, self._doubled(drawn), 0)
            pairs = list(zip(values.leaves(exact), values.leaves(expected), strict=True))
            if any(one.shape != other.shape for one, other in pairs):
                raise ValueError("shapes differ in double precision")
            if any(metrics.relative_difference(one, other) > _DOUBLE_MAX_DIFFERENCE for one, other in pairs):
                raise ValueError("double precision gives another answer")
        except Exception as error:  # the module does not run in double: the ordinary reference has to do
            self._double = None
            self._double_broken = f"{type(error).__name__}: {str(error)[:200]}"
            return None
        return values.map_leaves(exact, lambda _, leaf: leaf.detach().clone())

    def _doubled(self, drawn: Drawn) -> list[Any]:
        return list(values.map_leaves(
            drawn.values, lambda _, leaf: leaf.double() if leaf.is_floating_point() else leaf.clone()))

    def _nudged(
        self, drawn: Drawn, outputs: list[torch.Tensor], model: Any, call_seed: int, seed: int, kind: str,
        step: float = weights.STEP,
    ) -> list[Any]:
        """The answer to inputs and parameters that are a little off; None for each output when it cannot be had."""
        generator, is_own = torch.Generator(self._device).manual_seed(seed), kind in _OWN_GENERATOR
        arguments = self.place(drawn) if model is self._model else self._doubled(drawn)

        def nudge(index: int, leaf: torch.Tensor) -> torch.Tensor:
            # What a problem computes its inputs with has a meaning (an index, say), and torch.rand stays below 1.
            if index not in drawn.plain:
                return leaf
            moved = weights.nudged(leaf, generator, step)
            return moved.clamp_(max=_BELOW_ONE) if is_own and drawn.plain[index] == "rand" else moved

        arguments = list(values.map_leaves(arguments, nudge))
        try:
            with weights.nudged_parameters(model, generator, step):
                found = values.leaves(self.run(model, arguments, call_seed))
                return [leaf.detach().clone() for leaf in found]
        except Exception:  # no measure of the condition then
            return [None] * len(outputs)
