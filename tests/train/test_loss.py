"""Chunked cross-entropy against the plain one."""

from __future__ import annotations

import pytest
import torch

from dice_core.train.loss import weighted_cross_entropy


@pytest.mark.parametrize("chunk_rows", [1, 7, 1000])
def test_value_and_gradients_equal_the_plain_form(chunk_rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(23, 8, dtype=torch.float64, generator=generator, requires_grad=True)
    head = torch.randn(31, 8, dtype=torch.float64, generator=generator, requires_grad=True)
    targets = torch.randint(0, 31, (23,), generator=generator)
    weights = torch.rand(23, dtype=torch.float64, generator=generator)
    plain = (torch.nn.functional.cross_entropy(hidden @ head.T, targets, reduction="none") * weights).sum() / 9.0
    expected = torch.autograd.grad(plain, (hidden, head))
    ours = weighted_cross_entropy(hidden, head, targets, weights, chunk_rows) / 9.0
    assert float(ours.detach()) == pytest.approx(float(plain.detach()), rel=1e-12)
    for got, want in zip(torch.autograd.grad(ours, (hidden, head)), expected, strict=True):
        assert torch.allclose(got, want, atol=1e-12)


def test_no_rows_cost_nothing() -> None:
    hidden = torch.zeros(0, 8, requires_grad=True)
    head = torch.randn(31, 8, requires_grad=True)
    loss = weighted_cross_entropy(hidden, head, torch.zeros(0, dtype=torch.long), torch.zeros(0))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0.0
    assert head.grad is not None
    assert not head.grad.any()


def test_half_precision_sums_in_float() -> None:
    hidden = torch.randn(3000, 16, generator=torch.Generator().manual_seed(1)).bfloat16()
    head = torch.randn(64, 16, generator=torch.Generator().manual_seed(2)).bfloat16()
    targets, weights = torch.arange(3000) % 64, torch.ones(3000)
    plain = torch.nn.functional.cross_entropy(hidden.float() @ head.float().T, targets, reduction="sum")
    assert float(weighted_cross_entropy(hidden, head, targets, weights).detach()) == pytest.approx(
        float(plain), rel=5e-3
    )
