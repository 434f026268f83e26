"""What one optimiser step reports. Standard library only, so that readers of a run need no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepMetrics:
    """One optimiser step.

    Attributes:
        step: 1 for the first.
        loss: weighted cross-entropy in nats per supervised token.
        lr: learning rate of the step.
        grad_norm: gradient norm before clipping.
        tokens_per_s: prompt and response tokens, counted once, per second.
        step_s: wall time.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_s: float
    step_s: float
