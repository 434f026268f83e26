"""Weighted cross-entropy over a large vocabulary without ever holding all logits."""

from __future__ import annotations

from typing import Any, cast

import torch

#: Rows whose logits exist at the same time.
CHUNK_ROWS = 1024


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and both gradients are computed chunk by chunk in the forward pass; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        targets: torch.Tensor,
        weights: torch.Tensor,
        chunk_rows: int,
    ) -> torch.Tensor:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        total = torch.zeros((), dtype=torch.float64, device=hidden.device)
        grad_hidden = torch.empty_like(hidden)
        grad_head = torch.zeros(head.shape, dtype=wide, device=head.device)
        for begin in range(0, hidden.shape[0], chunk_rows):
            rows = slice(begin, begin + chunk_rows)
            log_p = torch.log_softmax((hidden[rows] @ head.T).to(wide), dim=-1)
            target, weight = targets[rows, None], weights[rows].to(wide)
            total += -(log_p.gather(1, target)[:, 0] * weight).sum(dtype=torch.float64)
            grad_logits = log_p.exp_()
            grad_logits.scatter_add_(1, target, grad_logits.new_full(target.shape, -1.0))
            grad_logits *= weight[:, None]
            grad_logits = grad_logits.to(hidden.dtype)
            grad_hidden[rows] = grad_logits @ head
            grad_head += (grad_logits.T @ hidden[rows]).to(wide)
        ctx.save_for_backward(grad_hidden, grad_head.to(head.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (scale,) = grad_outputs
        grad_hidden, grad_head = ctx.saved_tensors
        return (
            grad_hidden * scale.to(grad_hidden.dtype),
            grad_head * scale.to(grad_head.dtype),
            None,
            None,
            None,
        )


def weighted_cross_entropy(
    hidden: torch.Tensor,
    head: torch.Tensor,
    targets: torch.Tensor,
    weights: torch.Tensor,
    chunk_rows: int = CHUNK_ROWS,
) -> torch.Tensor:
    """Sum over rows of weight * cross-entropy, without label shift: row i predicts targets[i].

    Args:
        hidden: [rows, hidden] states of the masked rows only.
        head: [vocabulary, hidden] weight of the output head.
        targets: [rows] true ids.
        weights: [rows] weights.
        chunk_rows: rows whose logits are held at once.

    Returns:
        Float64 scalar, differentiable in `hidden` and `head`.
    """
    out = _ChunkedCrossEntropy.apply(hidden, head, targets, weights, chunk_rows)  # type: ignore[no-untyped-call]
    return cast(torch.Tensor, out)
