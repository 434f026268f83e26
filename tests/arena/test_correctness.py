from __future__ import annotations

from typing import Any

import pytest
import torch

from dice_core.arena import correctness, metrics, weights
from dice_core.arena.correctness import check_contract, check_form, check_output, check_values
from dice_core.errors import ProtocolError
from dice_core.records import Verdict


def verdict_of(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None = None) -> Verdict | None:
    finding = check_values([metrics.measure(got, expected, exact)])
    return None if finding is None else finding.verdict


def tensor(shape: list[int], offset: int = 0, dtype: str = "float32") -> dict[str, Any]:
    size = {"float32": 4, "float64": 8, "int64": 8}[dtype]
    for n in shape:
        size *= n
    return {"k": "tensor", "dtype": dtype, "shape": shape, "offset": offset, "nbytes": size}


def test_rounding_passes_and_less_precise_arithmetic_does_not() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 512), torch.randn(512, 64)
    exact, fp32 = a.double() @ b.double(), a @ b
    other_order = (a.flip(1) @ b.flip(0))
    assert verdict_of(other_order, fp32, exact) is None
    cut_a, cut_b = ((one.view(torch.int32) & ~0x1FFF).view(torch.float32) for one in (a, b))  # to TF32's width
    assert verdict_of(cut_a @ cut_b, fp32, exact) is Verdict.INCORRECT_NUMERICAL
    assert verdict_of((a.half() @ b.half()).float(), fp32, exact) is Verdict.INCORRECT_NUMERICAL


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e20])
def test_zeros_never_pass_for_a_reference_that_is_not_zero(scale: float) -> None:
    expected = torch.randn(100, 7) * scale
    assert verdict_of(torch.zeros_like(expected), expected) is Verdict.INCORRECT_NUMERICAL
    assert verdict_of(expected.clone(), expected) is None


def test_zeros_do_not_pass_even_where_the_reference_itself_is_inexact() -> None:
    exact = torch.randn(1000).double()
    expected = (exact * 1.5).float()
    assert verdict_of(torch.zeros(1000), expected, exact) is Verdict.INCORRECT_NUMERICAL


def test_a_wrong_small_row_is_found_among_large_ones() -> None:
    """Neither the whole tensor's norm nor its peak sees a row that is a hundredth of the others."""
    torch.manual_seed(0)
    expected = torch.randn(64, 128)
    expected[7] *= 1e-2
    got = expected.clone()
    got[7] *= 1.003
    measured = metrics.measure(got, expected, None)
    assert measured["l2"] < 1e-4 and measured["peak"] < 5e-4
    finding = check_values([measured])
    assert finding is not None and "row 7" in finding.reason
    assert check_values([measured], floor_from=[measured]) is None  # rows of timed calls belong to other values


def test_lost_digits_are_not_held_against_a_kernel_where_the_inputs_lose_them() -> None:
    """Sums that cancel to a thousandth of their terms: every order of summation is off; half precision still fails."""
    torch.manual_seed(0)
    half = torch.randn(256, 512)
    x = torch.cat([half, -half + 1e-3 * torch.randn(256, 512)], dim=1)

    def answer(one: torch.Tensor) -> torch.Tensor:
        return one.sum(dim=1) / 1024 + 0.0 * one[:, 0]

    expected, exact = answer(x), answer(x.double())
    nudged = answer(weights.nudged(x.double(), torch.Generator().manual_seed(1)))
    yard = metrics.yardstick(expected, exact, nudged)
    one_by_one = torch.zeros(256)
    for column in range(1024):
        one_by_one += x[:, column]
    measured = metrics.measure(one_by_one / 1024, expected, exact, yard)
    assert measured["condition"] > 30
    assert measured["l2"] > 1e-4  # the plain floor would refuse it
    assert check_values([measured]) is None
    assert verdict_of(one_by_one / 1024, expected, exact) is Verdict.INCORRECT_NUMERICAL  # without the measure
    rough = metrics.measure(answer(x.half().float()), expected, exact, yard)
    assert check_values([rough]) is not None


def test_whole_numbers_must_come_out_exactly() -> None:
    x = torch.randint(-1, 2, (64, 4096)).float()
    expected = x.sum(dim=1)
    measured = metrics.measure(expected + 1e-4 * expected.std(), expected, expected.double())
    assert measured["exact"] is True
    assert check_values([measured]) is None
    assert check_values([measured], kind="integers") is not None
    assert check_values([metrics.measure(x.flip(1).sum(dim=1), expected, expected.double())], kind="integers") is None


def test_outputs_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    expected = torch.randn(50, 3, 40)
    expected[1, 1, 1] = float("inf")
    got = expected + 1e-6 * torch.randn(50, 3, 40)
    whole = metrics.measure(got, expected, expected.double())
    used = metrics.tolerance_used(got, expected)
    monkeypatch.setattr(metrics, "_PIECE", 100)
    pieces = metrics.measure(got, expected, expected.double())
    assert pieces["row"].pop("index") == whole["row"].pop("index")
    assert pieces.pop("row") == pytest.approx(whole.pop("row"))
    assert pieces == {key: pytest.approx(value) if isinstance(value, float) else value for key, value in whole.items()}
    assert metrics.tolerance_used(got, expected) == used <= 1
    assert metrics.tolerance_used(expected + 1.0, expected) > 1


def test_an_all_zero_reference_wants_zeros() -> None:
    zero = torch.zeros(10)
    assert verdict_of(zero.clone(), zero) is None
    assert verdict_of(zero + 1e-3, zero) is Verdict.INCORRECT_NUMERICAL


def test_one_wrong_element_in_a_million_is_found() -> None:
    expected = torch.randn(1_000_000)
    got = expected.clone()
    got[123_456] += 0.01
    assert verdict_of(got, expected) is Verdict.INCORRECT_NUMERICAL


@pytest.mark.parametrize("special", [float("nan"), float("inf"), float("-inf")])
def test_special_values_must_be_at_the_same_places(special: float) -> None:
    expected = torch.randn(50)
    expected[3] = special
    assert verdict_of(expected.clone(), expected) is None
    got = expected.clone()
    got[3] = 1.0
    assert verdict_of(got, expected) is Verdict.INCORRECT_NUMERICAL
    other = torch.randn(50)
    other[4] = special
    assert verdict_of(other, expected) is Verdict.INCORRECT_NUMERICAL
    opposite = expected.clone()
    opposite[3] = float("-inf") if special == float("inf") else float("inf")
    assert verdict_of(opposite, expected) is Verdict.INCORRECT_NUMERICAL


def test_integers_must_be_equal() -> None:
    expected = torch.arange(10)
    assert verdict_of(expected.clone(), expected) is None
    assert verdict_of(expected + (expected == 3), expected) is Verdict.INCORRECT_NUMERICAL


def test_half_precision_has_its_own_floor() -> None:
    expected = torch.randn(1000).bfloat16()
    assert verdict_of((expected.float() * 1.004).bfloat16(), expected) is None
    assert verdict_of((expected.float() * 1.1).bfloat16(), expected) is Verdict.INCORRECT_NUMERICAL


def test_empty_outputs_pass() -> None:
    assert verdict_of(torch.empty(0, 3), torch.empty(0, 3)) is None


def test_kernelbench_verdict_is_plain_allclose() -> None:
    expected = torch.full((10,), 1e-5)
    measured = metrics.measure(torch.zeros(10), expected, None)
    assert measured["kernelbench"] is True  # below its absolute tolerance: the fault that ours does not share
    assert check_values([measured]) is not None


@pytest.mark.parametrize(
    ("got", "verdict"),
    [
        (tensor([2, 3]), None),
        (tensor([3, 2]), Verdict.INCORRECT_SHAPE),
        (tensor([2, 3], dtype="float64"), Verdict.INCORRECT_DTYPE),
        ({"k": "tuple", "items": [tensor([2, 3])]}, Verdict.INCORRECT_SHAPE),
        ({"k": "none"}, Verdict.INCORRECT_SHAPE),
        ({"k": "other", "type": "candidate.Answer"}, Verdict.CONTRACT_VIOLATION),
    ],
)
def test_form(got: dict[str, Any], verdict: Verdict | None) -> None:
    finding = check_form(got, tensor([2, 3]))
    assert (finding.verdict if finding else None) is verdict


@pytest.mark.parametrize(
    "node",
    [
        None, [], {"k": "file"}, {"k": "list"}, {"k": "dict", "keys": ["a"], "items": []}, tensor([2], offset=-256),
        tensor([2], offset=4096), tensor([2], offset=3), {**tensor([2]), "nbytes": 4}, {**tensor([2]), "shape": [-2]},
        {**tensor([2]), "shape": [True, 2]}, {**tensor([2]), "dtype": "object"}, {**tensor([2]), "offset": 0.0},
    ],
)
def test_forged_trees_are_refused(node: object) -> None:
    with pytest.raises(ProtocolError):
        check_output(node, tensor([2]), 0, 4096)


def test_deep_trees_are_refused() -> None:
    node: dict[str, Any] = {"k": "none"}
    for _ in range(60):
        node = {"k": "list", "items": [node]}
    with pytest.raises(ProtocolError):
        check_output(node, node, 0, 1)


def test_the_reference_may_do_what_a_candidate_then_may_too() -> None:
    fault = [{"rule": "alias_input", "detail": ""}]
    assert check_contract(fault, [], {"faults": ["alias_input"], "mutates": []}) is None
    assert check_contract(fault, [], {"faults": [], "mutates": []}) is not None
    assert check_contract([], [0], {"faults": [], "mutates": [0]}) is None
    assert check_contract([], [0, 1], {"faults": [], "mutates": [0]}) is not None


def test_trials_begin_as_kernelbench_does() -> None:
    assert correctness.TRIALS[0].kind == "kernelbench"
    assert len(correctness.TRIALS) >= 5
