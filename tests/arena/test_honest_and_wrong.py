"""No false alarm, no false acceptance: other honest fp32 implementations and wrong ones, on all trials of small tasks.

In one process, without the arena: what is tested is the inputs, the measures and the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dice_core.arena import inputs, metrics
from dice_core.arena.correctness import TRIALS, check_values
from dice_core.arena.drawing import draw
from dice_core.arena.trees import derive_seed
from dice_core.arena.trials import Trial, TrialMaker
from dice_core.arena.weights import randomised, replaced, to_tf32

Forward = Callable[..., Any]


class Task(nn.Module):
    """A reference given by its forward and its modules."""

    def __init__(self, forward: Forward, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self._compute = forward

    def forward(self, *arguments: torch.Tensor) -> Any:
        return self._compute(self, *arguments)


def in_order(x: torch.Tensor) -> torch.Tensor:
    """Sum over the last dimension, one element after the other, in the tensor's own precision."""
    total = torch.zeros_like(x[..., 0])
    for place in range(x.shape[-1]):
        total = total + x[..., place]
    return total


def in_lanes(x: torch.Tensor, lanes: int = 32) -> torch.Tensor:
    """Sum over the last dimension as a warp does it: strided lanes, then the lanes."""
    return in_order(in_order(x.unflatten(-1, (-1, lanes)).transpose(-1, -2)))


def product_in_order(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(*x.shape[:-1], w.shape[0])
    for k in range(x.shape[-1]):
        total = torch.addcmul(total, x[..., k, None], w[:, k])
    return total


def one_pass_norm(x: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    n = x.shape[-1]
    mean = in_lanes(x)[..., None] / n
    return (x - mean) * torch.rsqrt(in_lanes(x * x)[..., None] / n - mean * mean + eps)


def gates(logits: torch.Tensor, experts: int = 2) -> torch.Tensor:
    """Softmax over the best experts of each token, zero for the others."""
    best = logits.topk(experts, dim=-1)
    return torch.zeros_like(logits).scatter(-1, best.indices, torch.softmax(best.values, -1))


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    top = torch.full_like(x[..., 0], -torch.inf)
    total = torch.zeros_like(top)
    for block in x.split(16, dim=-1):
        new = torch.maximum(top, block.amax(dim=-1))
        total = total * torch.exp(top - new) + in_order(torch.exp(block - new[..., None]))
        top = new
    return torch.exp(x - top[..., None]) / total[..., None]


def batch_norm(m: Any, x: torch.Tensor) -> torch.Tensor:
    flat = x.transpose(0, 1).reshape(x.shape[1], -1)
    shaped = one_pass_norm(flat).view(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)
    return shaped * m.norm.weight[:, None, None] + m.norm.bias[:, None, None]


def conv_by_columns(m: Any, x: torch.Tensor) -> torch.Tensor:
    columns = F.unfold(x, 3, padding=1).transpose(1, 2)
    made = product_in_order(columns, m.conv.weight.flatten(1)) + m.conv.bias
    return torch.relu(made).transpose(1, 2).view(x.shape[0], -1, *x.shape[2:])


def erf_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.erf(x * 0.70710678))


def tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


X, IMAGE = (lambda: [torch.rand(48, 256)]), (lambda: [torch.rand(4, 8, 16, 16)])
TWO = lambda: [torch.rand(64, 512), torch.rand(48, 512)]  # noqa: E731

#: name -> (reference, inputs, honest forwards, wrong forwards)
TASKS: dict[str, tuple[Callable[[], Task], Callable[[], list[Any]], list[Forward], list[Forward]]] = {
    "linear": (
        lambda: Task(lambda m, x: m.l(x), l=nn.Linear(256, 64)), X,
        [lambda m, x: product_in_order(x, m.l.weight) + m.l.bias,
         lambda m, x: product_in_order(x.flip(-1), m.l.weight.flip(-1)) + m.l.bias],
        [lambda m, x: F.linear(to_tf32(x), to_tf32(m.l.weight), m.l.bias), lambda m, x: x @ m.l.weight.t(),
         lambda m, x: F.linear(x.half(), m.l.weight.half(), m.l.bias.half()).float(),
         lambda m, x: F.linear(x[:, :-1], m.l.weight[:, :-1], m.l.bias)]),
    "product": (
        lambda: Task(lambda m, a, b: a @ b.t()), TWO, [lambda m, a, b: product_in_order(a, b)],
        [lambda m, a, b: to_tf32(a) @ to_tf32(b).t(), lambda m, a, b: (a.bfloat16() @ b.bfloat16().t()).float()]),
    "network": (
        lambda: Task(lambda m, x: m.c(torch.relu(m.b(F.gelu(m.a(x))))), a=nn.Linear(256, 64), b=nn.Linear(64, 64),
                     c=nn.Linear(64, 1)), X,
        [lambda m, x: product_in_order(torch.relu(product_in_order(erf_gelu(
            product_in_order(x, m.a.weight) + m.a.bias), m.b.weight) + m.b.bias), m.c.weight) + m.c.bias],
        [lambda m, x: m.c(torch.relu(m.b(F.gelu(F.linear(to_tf32(x), to_tf32(m.a.weight), m.a.bias)))))]),
    "sum": (lambda: Task(lambda m, x: x.sum(dim=1)), X, [lambda m, x: in_order(x), lambda m, x: in_lanes(x)],
            [lambda m, x: x[:, :-1].sum(dim=1), lambda m, x: x.half().float().sum(dim=1)]),
    "mean of all": (lambda: Task(lambda m, x: x.mean()), X, [lambda m, x: in_order(x.flatten()) / x.numel()],
                    [lambda m, x: x.abs().mean(), lambda m, x: x[:-1].mean()]),
    "cumulative sum": (lambda: Task(lambda m, x: x.cumsum(dim=1)), X,
                       [lambda m, x: torch.stack([in_order(x[:, : n + 1]) for n in range(x.shape[1])], dim=1)],
                       [lambda m, x: x.cumsum(dim=1) - x]),
    "layer norm": (
        lambda: Task(lambda m, x: m.norm(x), norm=nn.LayerNorm(256)), X,
        [lambda m, x: one_pass_norm(x) * m.norm.weight + m.norm.bias],
        [lambda m, x: one_pass_norm(x, 1e-3) * m.norm.weight + m.norm.bias, lambda m, x: one_pass_norm(x),
         lambda m, x: F.layer_norm(x.half(), (256,)).float() * m.norm.weight + m.norm.bias]),
    "batch norm": (
        lambda: Task(lambda m, x: m.norm(x), norm=nn.BatchNorm2d(8)), IMAGE, [batch_norm],
        [lambda m, x: F.batch_norm(x, m.norm.running_mean, m.norm.running_var, m.norm.weight, m.norm.bias)]),
    "softmax": (lambda: Task(lambda m, x: torch.softmax(x, dim=-1)), X, [lambda m, x: online_softmax(x)],
                [lambda m, x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True), lambda m, x: torch.zeros_like(x)]),
    "log of sums": (lambda: Task(lambda m, x: torch.logsumexp(x, dim=1)), X,
                    [lambda m, x: x.amax(1) + torch.log(in_order(torch.exp(x - x.amax(1, keepdim=True))))],
                    [lambda m, x: torch.log(torch.exp(x).sum(1)), lambda m, x: x.amax(1)]),
    "attention": (
        lambda: Task(lambda m, x: F.scaled_dot_product_attention(x, x, x)), lambda: [torch.rand(2, 4, 32, 32)],
        [lambda m, x: torch.einsum("bhqk,bhkd->bhqd", online_softmax(
            torch.einsum("bhqd,bhkd->bhqk", x, x) * 32**-0.5), x)],
        [lambda m, x: F.scaled_dot_product_attention(x, x, x, is_causal=True)]),
    "convolution": (
        lambda: Task(lambda m, x: torch.relu(m.conv(x)), conv=nn.Conv2d(8, 12, 3, padding=1)), IMAGE,
        [conv_by_columns],
        [lambda m, x: m.conv(x), lambda m, x: torch.relu(F.conv2d(to_tf32(x), to_tf32(m.conv.weight), m.conv.bias,
                                                                  padding=1))]),
    "gelu": (lambda: Task(lambda m, x: F.gelu(x)), X, [lambda m, x: erf_gelu(x)], [lambda m, x: tanh_gelu(x)]),
    "variance": (lambda: Task(lambda m, x: x.var(dim=1)), X,
                 [lambda m, x: in_order((x - in_order(x)[:, None] / 256).square()) / 255],
                 [lambda m, x: x.var(dim=1, unbiased=False)]),
    "mean squared error": (lambda: Task(lambda m, a, b: F.mse_loss(a[:48], b)), TWO,
                           [lambda m, a, b: in_order((a[:48] - b).square().flatten()) / b.numel()],
                           [lambda m, a, b: F.l1_loss(a[:48], b)]),
    "largest": (lambda: Task(lambda m, x: torch.cummax(x, dim=1).values), X,
                [lambda m, x: torch.stack([x[:, : n + 1].amax(1) for n in range(x.shape[1])], 1)],
                [lambda m, x: x]),
    "rounded": (lambda: Task(lambda m, x: torch.round(torch.tanh(4 * x))), X,
                [lambda m, x: torch.round(1 - 2 / (torch.exp(8 * x) + 1))],
                [lambda m, x: torch.floor(torch.tanh(4 * x)), lambda m, x: torch.round(torch.tanh(3.9 * x))]),
    "cast to integers": (
        lambda: Task(lambda m, x: m.l(x).mul(9).int().float(), l=nn.Linear(256, 64)), X,
        [lambda m, x: (product_in_order(x, m.l.weight) + m.l.bias).mul(9).int().float()],
        [lambda m, x: m.l(x).mul(9).round(), lambda m, x: m.l(x).mul(9)]),
    "two best experts": (
        lambda: Task(lambda m, x: gates(m.l(x)), l=nn.Linear(64, 16, bias=False)), lambda: [torch.randn(512, 64)],
        [lambda m, x: gates(product_in_order(x, m.l.weight))],
        [lambda m, x: gates(m.l(x), 3), lambda m, x: torch.softmax(m.l(x), 1), lambda m, x: gates(m.l(x)).roll(1, 0)]),
    "index of largest": (lambda: Task(lambda m, x: x.argmax(dim=1)), X,
                         [lambda m, x: (x == x.amax(1, keepdim=True)).float().argmax(1)],
                         [lambda m, x: x.argmin(dim=1)]),
}


#: Tasks whose answer jumps: a right kernel may be a whole step off in an element here and there.
JUMPING = {"rounded", "cast to integers", "two best experts"}


def verdict(maker: TrialMaker, model: Task, other: dict[str, torch.Tensor], forward: Forward, trials: list[Any]) -> str:
    for trial, made in trials:
        changes = other if trial.kind == "weights" else {}
        with torch.no_grad(), replaced(model, changes):
            got = forward(model, *maker.place(made.inputs))
        expected, exact = inputs.leaves(made.expected), inputs.leaves(made.exact)
        measured = [metrics.measure(ours, theirs, exact[n] if exact else None, made.yards[n])
                    for n, (ours, theirs) in enumerate(zip(inputs.leaves(got), expected, strict=True))]
        jumps = max(one.facts["jumps"] for _, one in trials)
        finding = check_values(measured, kind=trial.kind, jumps=jumps)
        if finding is not None:
            return f"{trial.kind}: {finding.reason}"
    return ""


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_honest_implementations_pass_and_wrong_ones_do_not(name: str, seed: int) -> None:
    build, get_inputs, honest, wrong = TASKS[name]
    torch.manual_seed(seed)
    model = build()
    other = randomised(model, seed)
    maker = TrialMaker(model, partial(draw, get_inputs, device=torch.device("cpu")), torch.device("cpu"), other)
    trials = []
    for trial in TRIALS:
        made = maker.make(trial.kind, derive_seed("s", seed, trial.draw_index), derive_seed("a", seed, trial.index), 3,
                          trial.index)
        if isinstance(made, Trial):
            trials.append((trial, made))
    assert len(trials) >= len(TRIALS) - 2
    if name in JUMPING:
        assert trials[0][1].facts["jumps"] > 0.0, "no tie has to be near for it to be known that the answer jumps"
    else:
        assert {made.facts["jumps"] for _, made in trials} == {0.0}
    for number, forward in enumerate(honest):
        assert verdict(maker, model, other, forward, trials) == "", f"{name}: honest {number}"
    for number, forward in enumerate(wrong):
        assert verdict(maker, model, other, forward, trials), f"{name}: wrong {number} passes"
