"""What a verdict, an honesty class and the evidence say, on small real problems."""

from __future__ import annotations

import pytest
import torch
from arena_helpers import LINEAR, TANH, candidate, run

from dice_core.arena import honesty
from dice_core.arena.capture import BuildRequest
from dice_core.arena.children import ChildDied, ChildFailed, ChildTimeout
from dice_core.arena.judge import verdict_of
from dice_core.arena.worker import has_overlap
from dice_core.errors import ProtocolError
from dice_core.records import Attempt, Honesty, Verdict

ADD = BuildRequest("k", cpp_sources=("void f(float* x) { for (int i = 0; i < 4; ++i) x[i] += 1; }",))
FORWARDS = BuildRequest("k", cpp_sources=("// for (;;)\nat::Tensor f(at::Tensor x) { return at::relu(x); }",))
CUDA = BuildRequest("k", cuda_sources=("__global__ void f() {}\nvoid g() { f<<<1, 1>>>(); }",))
NEVER_LAUNCHED = BuildRequest("k", cuda_sources=("__global__ void f() {}\nat::Tensor g(at::Tensor x) { return x; }",))
MOVES = {"aten.empty.memory_format": 1, "aten.view.default": 3, "aten.copy_.default": 1}
COMPUTES = {**MOVES, "aten.addmm.default": 1}

NESTED = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, n, scales):
        return {"out": torch.relu(x) * n, "list": [x.sum(), (scales * 2).int()]}

def get_inputs():
    return [torch.rand(8, 8), 3, torch.ones(4)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("operators", "calls", "requests", "expected"),
    [
        (MOVES, 1, [ADD], Honesty.OWN),
        (COMPUTES, 1, [ADD], Honesty.MIXED),
        (COMPUTES, 0, [ADD], Honesty.LIBRARY),  # the kernel is there and never called
        (COMPUTES, 0, [], Honesty.LIBRARY),
        (COMPUTES, 1, [FORWARDS], Honesty.LIBRARY),
        (MOVES, 1, [NEVER_LAUNCHED], Honesty.LIBRARY),
        (MOVES, 1, [CUDA], Honesty.OWN),
        (MOVES, 0, [], Honesty.NONE),
        ({"dice.fused.default": 1}, 0, [ADD], Honesty.OWN),
    ],
)
def test_honesty_class(
    operators: dict[str, int], calls: int, requests: list[BuildRequest], expected: Honesty
) -> None:
    assert honesty.classify(operators, calls, requests) is expected


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (ChildFailed("load", "", {}), Verdict.LOAD_ERROR),
        (ChildFailed("exception", "", {}), Verdict.RUNTIME_ERROR),
        (ChildFailed("oom", "", {}), Verdict.OUT_OF_MEMORY),
        (ChildFailed("an invention of the worker", "", {}), Verdict.RUNTIME_ERROR),
        (ChildDied("exited (code 0)", "call"), Verdict.RUNTIME_ERROR),
        (ChildDied("exited (signal 24, SIGXCPU)", "call"), Verdict.TIMEOUT),
        (ChildTimeout("call", 1.0), Verdict.TIMEOUT),
        (ProtocolError("junk"), Verdict.CONTRACT_VIOLATION),
    ],
)
def test_every_end_of_a_worker_has_a_verdict(error: Exception, verdict: Verdict) -> None:
    assert verdict_of(error)[0] is verdict


@pytest.mark.parametrize(
    ("tensor", "overlaps"),
    [
        (torch.rand(4, 5), False),
        (torch.rand(4, 5).t(), False),
        (torch.rand(4, 5)[:, ::2], False),
        (torch.rand(()), False),
        (torch.rand(0, 3), False),
        (torch.rand(1, 5).expand(1, 5), False),
        (torch.rand(1, 5).expand(3, 5), True),
        (torch.rand(10).as_strided((4, 3), (2, 1)), True),
    ],
)
def test_overlap(tensor: torch.Tensor, overlaps: bool) -> None:
    assert has_overlap(tensor) is overlaps


SOFTMAX = TANH.replace("torch.tanh(x)", "torch.softmax(x, dim=-1)").replace("torch.randn(512, 1024)",
                                                                        "torch.rand(32, 64)")
LOG = TANH.replace("torch.tanh(x)", "torch.log(x)").replace("torch.randn(512, 1024)", "torch.rand(32, 64) + 0.1")
DROPOUT = TANH.replace("torch.tanh(x)", "torch.nn.functional.dropout(x, 0.5)").replace("512, 1024", "64, 64")
IN_PLACE = TANH.replace("torch.tanh(x)", "x.tanh_()").replace("512, 1024", "64, 64")

CASES = {
    "same names": (LINEAR, candidate("return torch.relu(self.linear(x))", "self.linear = nn.Linear(64, 64)")),
    "other names": (LINEAR, candidate("return torch.relu(self.fc(x))", "self.fc = nn.Linear(64, 64)")),
    "other order": (LINEAR, candidate(
        "return torch.relu(x @ self.linear.weight.t() + self.linear.bias)",
        "torch.rand(7)\nself.linear = nn.Linear(64, 64)")),
    "keywords": (
        LINEAR.replace("return [64]", "return [[64], {'bias': False}]"),
        candidate("return torch.relu(self.linear(x))", "self.linear = nn.Linear(64, *a, **k)")),
    "nested": (NESTED, candidate(
        'return {"list": [x.sum(), (s * 2).int()], "out": torch.relu(x) * n}', arguments="x, n, s")),
    "nested, wrong integer": (NESTED, candidate(
        'return {"list": [x.sum(), (s * 3).int()], "out": torch.relu(x) * n}', arguments="x, n, s")),
    "nested, one missing": (NESTED, candidate('return {"out": torch.relu(x) * n}', arguments="x, n, s")),
    "unstable softmax": (SOFTMAX, candidate("e = torch.exp(x)\nreturn e / e.sum(-1, keepdim=True)")),
    "log": (LOG, candidate("return torch.log(x)")),
    "dropout": (DROPOUT, candidate("return torch.nn.functional.dropout(x, 0.5)")),
    "no dropout": (DROPOUT, candidate("return x * 1.0")),
    "in place": (IN_PLACE, candidate("return x.tanh_()")),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attempt]:
    files = run(tmp_path_factory.mktemp("judge"), *CASES.values())
    return {name: one.attempt for name, one in zip(CASES, files, strict=True)}


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("same names", Verdict.CORRECT),
        ("other names", Verdict.CORRECT),
        ("other order", Verdict.CORRECT),  # only because the state is copied
        ("keywords", Verdict.CORRECT),
        ("nested", Verdict.CORRECT),
        ("nested, wrong integer", Verdict.INCORRECT_NUMERICAL),
        ("nested, one missing", Verdict.INCORRECT_SHAPE),
        ("unstable softmax", Verdict.INCORRECT_NUMERICAL),
        ("log", Verdict.CORRECT),
        ("dropout", Verdict.CORRECT),  # both sides draw under equal seeds
        ("no dropout", Verdict.INCORRECT_NUMERICAL),
        ("in place", Verdict.CORRECT),  # the reference does it too
    ],
)
def test_verdict(name: str, verdict: Verdict, judged: dict[str, Attempt]) -> None:
    found = judged[name].verdict
    # On a busy machine the clocks may disagree; by then the checks have passed, which is what counts here.
    assert found is verdict or (verdict, found) == (Verdict.CORRECT, Verdict.TIMING_DISAGREE), judged[name].evidence


def test_state_travels_by_name_and_else_by_seed(judged: dict[str, Attempt]) -> None:
    assert judged["same names"].evidence["state"] == "loaded"
    assert judged["other names"].evidence["state"] == "loaded by order"
    assert judged["in place"].evidence["state"] == "none"


def test_torch_calls_are_noted(judged: dict[str, Attempt]) -> None:
    assert judged["same names"].honesty is Honesty.LIBRARY
    assert judged["same names"].evidence["compute_operators"] == {"aten.addmm.default": 1, "aten.relu.default": 1}


def test_kernelbench_verdict_is_recorded_beside_ours(judged: dict[str, Attempt]) -> None:
    assert judged["unstable softmax"].kernelbench_correct is True
    assert judged["unstable softmax"].evidence["trials"][-1]["kind"] in ("scaled", "outlier")
    assert judged["no dropout"].kernelbench_correct is False


def test_inputs_that_break_the_reference_are_no_trials(judged: dict[str, Attempt]) -> None:
    assert set(judged["log"].evidence["skipped_trials"]) == {"2", "3", "4", "5", "6", "7", "8"}
    assert judged["same names"].evidence["skipped_trials"] == {}
    assert judged["other order"].evidence["trials"][-2]["kind"] == "weights"
