"""Difficulty of a task by its PyTorch module alone, on DICE's scale, so that data can be scheduled easy to hard.

The rule, over what `operators` reads:

    0  trivial            no operator: views, types and new tensors only
    1  single operator    one operator
    2  fusion             two or more, with at most one layer that multiplies by a weight
    3  whole model        at least two such layers and three operators, or a recurrent, transformer or pretrained model

DICE (arXiv:2602.11715) let a language model judge (module, kernel) pairs on the same scale. Unlike that, this rule
needs no kernel, gives equal modules equal levels, and says what it saw.
"""

from __future__ import annotations

from dataclasses import dataclass

from dice_core.curation.operators import ModuleTraits, module_traits
from dice_core.curation.parameters import parameter_count

LEVELS = {0: "trivial", 1: "single operator", 2: "fusion", 3: "whole model"}
#: Raised when the rule changes.
RULE_VERSION = 1


@dataclass(frozen=True)
class Difficulty:
    """A level with what it rests on."""

    level: int
    traits: ModuleTraits
    parameters: int | None  #: elements of all parameters; None where the text does not tell

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Sort key, easy to hard: level, operators, depth of the longest chain, control flow."""
        traits = self.traits
        return self.level, len(traits.operators), traits.depth, traits.loops + traits.branches


def difficulty(pytorch_code: str) -> Difficulty:
    """Level of a module in KernelBench's form.

    Raises:
        SourceError: not Python, or without a class `Model` that has a `forward`.
    """
    traits = module_traits(pytorch_code)
    return Difficulty(level_of(traits), traits, parameter_count(pytorch_code))


def level_of(traits: ModuleTraits) -> int:
    """The rule itself."""
    count = len(traits.operators)
    if traits.whole_layers or (traits.weighted_layers >= 2 and count >= 3):
        return 3
    return min(count, 2)
