from __future__ import annotations

import itertools
import math
import random

import pytest

from dice_core.arena import timing
from dice_core.arena.timing import Bracket, Size
from dice_core.errors import UsageError
from dice_core.records import TimingSample


def blocks(
    rng: random.Random, n: int, calls: int, mean: float, noise: float, drift: float = 0.0
) -> dict[int, list[float]]:
    return {
        block: [
            mean * math.exp(drift * block + common + rng.gauss(0, noise) + (rng.random() < 0.05) * 0.5)
            for _ in range(calls)
        ]
        for block in range(n)
        for common in [rng.gauss(0, 0.01)]
    }


@pytest.mark.parametrize(("n", "calls"), [(6, 3), (12, 5), (20, 10)])
def test_intervals_cover_as_often_as_they_say(n: int, calls: int) -> None:
    rng = random.Random(7)
    covered = 0
    runs = 1500
    for _ in range(runs):
        told = timing.speedup(blocks(rng, n, calls, 105.0, 0.02), blocks(rng, n, calls, 100.0, 0.02))
        covered += told.low <= 1.05 <= told.high
    assert 0.93 <= covered / runs <= 0.97


def test_the_point_is_the_ratio_where_there_is_no_noise() -> None:
    told = timing.speedup({0: [10.0, 10.0], 1: [20.0]}, {0: [5.0], 1: [10.0]})
    assert told.point == pytest.approx(2.0)
    assert told.low == pytest.approx(told.high)
    assert told.n_blocks == 2


def test_a_drift_common_to_both_sides_cancels() -> None:
    rng = random.Random(1)
    base, candidate = blocks(rng, 12, 5, 200.0, 0.0, 0.05), blocks(rng, 12, 5, 100.0, 0.0, 0.05)
    assert timing.speedup(base, candidate).point == pytest.approx(2.0, rel=0.05)


def test_a_single_outlier_in_a_block_does_not_move_its_median() -> None:
    base = {block: [10.0, 10.0, 1000.0] for block in range(6)}
    candidate = {block: [10.0, 10.0, 10.0] for block in range(6)}
    assert timing.speedup(base, candidate).point == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("base", "candidate"), [({0: [1.0]}, {0: [1.0]}), ({0: [1.0], 1: [1.0]}, {0: [1.0], 2: [1.0]}),
                            ({0: [1.0], 1: [1.0]}, {0: [1.0], 1: [0.0]})])
def test_what_gives_no_interval_is_refused(base: dict[int, list[float]], candidate: dict[int, list[float]]) -> None:
    with pytest.raises(ValueError):
        timing.speedup(base, candidate)


def test_t_quantiles_fall_towards_the_normal() -> None:
    values = [timing.t_quantile(degrees) for degrees in range(1, 400)]
    assert values[0] == 12.706
    assert all(left >= right for left, right in itertools.pairwise(values))
    assert values[-1] >= 1.96
    assert timing.t_quantile(10_000) == 1.96


def test_plans_choose_by_the_baseline() -> None:
    standard = timing.plan_named("standard")
    assert standard.size(500.0) == Size(20, 10)
    assert standard.size(1_000.0) == Size(12, 5)
    assert standard.size(50_000.0) == Size(8, 3)
    assert timing.plan_named("quick").size(5e6) == Size(6, 3)
    with pytest.raises(UsageError):
        timing.plan_named("fast")


def test_short_calls_are_batched_to_200_us() -> None:
    assert timing.batch_size(20.0) == 1
    assert timing.batch_size(10.0) == 20
    assert timing.batch_size(0.001) == timing.MAX_BATCH


def test_per_call_time_is_the_device_span_divided_by_the_batch() -> None:
    sample = TimingSample("candidate", 0, 0, 0, False, 4, 100.0, 900.0, True, 1)
    assert timing.per_call_us(sample) == 25.0


def brackets(
    candidate_outer: float, candidate_host: float, device: float | None = None, lies: int = 18
) -> list[Bracket]:
    """18 samples of each side; the baseline's calls take 1000 us. The last `18 - lies` of the candidate are honest."""
    rng = random.Random(3)
    found = []
    for number in range(18):
        jitter = rng.uniform(0, 30)
        found.append(Bracket("eager", number // 3, 1150 + jitter, 1000, None if device is None else 990))
        outer, host = (candidate_outer, candidate_host) if number < lies else (1150.0, 1000.0)
        found.append(Bracket("candidate", number // 3, outer + jitter, host, device))
    return found


def told(found: list[Bracket]) -> str | None:
    return timing.impossible(found) or timing.disagreement(found, timing.believable(found), 3)


def test_an_honest_faster_candidate_is_believed() -> None:
    assert told(brackets(450, 300)) is None
    assert all(timing.believable(brackets(450, 300)))


def test_hidden_work_is_not_believed() -> None:
    assert "bears out 0% of the candidate's" in str(told(brackets(1150, 300)))


def test_samples_that_hide_work_are_set_aside_one_by_one() -> None:
    found = brackets(1150, 300, lies=8)
    good = timing.believable(found)
    kept = [one.host_us for one, fine in zip(found, good, strict=True) if one.side == "candidate" and fine]
    assert kept == [1000] * 10
    assert timing.usable_blocks(found, good) == {2, 3, 4, 5}
    assert told(found) is None


def test_a_time_longer_than_the_request_is_impossible() -> None:
    assert "inside a request" in str(timing.impossible(brackets(450, 900)))


def test_a_frozen_clock_is_impossible() -> None:
    assert "not above zero" in str(timing.impossible(brackets(450, 0.0)))


def test_device_work_outside_the_span_is_not_believed() -> None:
    assert told(brackets(1150, 1000, device=200.0)) is not None
    assert told(brackets(1150, 1000, device=985.0)) is None


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("hidden_us", [0.0, 500.0, 3000.0])
def test_a_busy_machine_hides_no_lie_and_makes_no_liar(share: float, hidden_us: float) -> None:
    """A share of the requests waits 4 ms for a processor, half of the time inside the call."""
    rng = random.Random(6)
    wrong = 0
    for _ in range(200):
        found = []
        for number in range(54):
            for side in ("eager", "candidate"):
                wait, inside = (rng.random() < share) * 4000, rng.random() < 0.5
                host = rng.uniform(400, 900) + wait * inside
                hidden = hidden_us if side == "candidate" else 0.0
                outer = host + 100 + rng.expovariate(1 / 50) + wait + hidden
                found.append(Bracket(side, number // 3, outer, host, None))
        wrong += (told(found) is not None) != (hidden_us > 0)
    assert wrong <= 4
