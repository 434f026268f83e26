from __future__ import annotations

import itertools
import math
import random

import pytest

from dice_core.arena import timing
from dice_core.arena.timing import Row, Size
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


def sample(
    side: str, host_us: float, *, device_us: float | None = None, batch: int = 1, block: int = 0, judge_us: float = 0.0,
    end_to_end: bool = False, warmup: bool = False,
) -> TimingSample:
    return TimingSample(side, block, 0, 0, warmup, batch, device_us, host_us, True, 1, judge_us or host_us + 200.0,
                        end_to_end)


def test_the_clock_of_a_sample() -> None:
    assert sample("candidate", 900.0, device_us=100.0, batch=4).call_us == 25.0
    assert sample("candidate", 900.0, device_us=100.0, batch=4, end_to_end=True).call_us == 225.0
    assert sample("candidate", 900.0, batch=4).call_us == 225.0


def test_blocks_and_rows_are_told_apart_and_warm_ups_left_out() -> None:
    samples = [sample("eager", 10.0), sample("eager", 90.0, end_to_end=True), sample("eager", 500.0, warmup=True),
               sample("candidate", 45.0, end_to_end=True)]
    assert timing.by_block(samples, "eager", timing.HOST) == {0: [10.0]}
    assert timing.by_block(samples, "eager", timing.END_TO_END) == {0: [90.0]}
    assert timing.by_block(samples, "candidate", timing.END_TO_END) == {0: [45.0]}
    assert timing.by_block(samples, "candidate", timing.JUDGE) == {0: [45.0]}
    assert timing.median_us(samples, "eager", timing.HOST) == 10.0


def test_the_spin_covers_launching_and_has_bounds() -> None:
    assert timing.spin_us(1.0, 1) == 100.0
    assert timing.spin_us(40.0, 10) == 600.0
    assert timing.spin_us(1e6, 64) == timing.spin_us(2e6, 64)
    assert timing.longer_spin_us(800.0) == 1200.0


def test_rows_last_long_enough_to_drown_the_exchange() -> None:
    assert timing.row_calls(10_000.0, 10_000.0) == 1
    assert timing.row_calls(300.0, 100.0) == timing.row_calls(100.0, 300.0) == 40
    assert timing.row_calls(1.0, 0.1) == timing.MAX_ROW
    assert timing.row_calls(20_000.0, 10.0) == 5


def test_what_no_clock_can_say() -> None:
    timing.check_possible([sample("candidate", 300.0), sample("candidate", 90.0)], 400.0)
    for wrong, judge_us, text in (
        ([sample("candidate", 0.0)], 100.0, "less than a clock.s step"),
        ([sample("candidate", 10.0, device_us=-1.0)], 100.0, "less than a clock.s step"),
        ([sample("candidate", 300.0), sample("candidate", 300.0)], 450.0, "600 us inside a request of 450 us"),
    ):
        with pytest.raises(timing.ImpossibleTime, match=text):
            timing.check_possible(wrong, judge_us)


def rows(
    rng: random.Random, true_us: float, *, claimed_us: float | None = None, eager_us: float = 300.0, busy: float = 0.0,
    count: int = 5,
) -> list[Row]:
    """Rows as they come from a machine whose exchanges take 250-400 us; a share of them waits 4 ms for a processor."""
    calls = timing.row_calls(eager_us, true_us)

    def exchange() -> float:
        return rng.uniform(250, 400) + rng.expovariate(1 / 50)

    def wait() -> tuple[float, float]:
        waited = 4000.0 * (rng.random() < busy)
        return (waited, 0.0) if rng.random() < 0.5 else (0.0, waited)  # inside the calls or beside them

    found = []
    for _ in range(count):
        eager_in, eager_beside = wait()
        ours_in, ours_beside = wait()
        eager = calls * eager_us * rng.uniform(0.97, 1.05) + eager_in
        ours = calls * true_us * rng.uniform(0.97, 1.05) + ours_in
        claimed = ours if claimed_us is None else calls * claimed_us
        found.append(Row(calls, eager, eager + exchange() + eager_beside, claimed, ours + exchange() + ours_beside))
    return found


@pytest.mark.parametrize("true_us", [2.0, 40.0, 300.0, 6_000.0])
@pytest.mark.parametrize("busy", [0.0, 0.3])
def test_honest_candidates_are_no_liars_even_on_a_busy_machine(true_us: float, busy: float) -> None:
    rng = random.Random(5)
    proofs = [timing.proof(rows(rng, true_us, busy=busy), true_us, "cpu") for _ in range(400)]
    assert sum(one.lie is not None for one in proofs) <= 8  # and the arena believes only a second one
    assert sum(not one.borne_out for one in proofs) <= (60 if busy else 2)  # these score from end to end
    assert busy or sum(not one.row_borne_out for one in proofs) <= 40


@pytest.mark.parametrize("true_us", [40.0, 300.0, 6_000.0])
def test_a_clock_that_hides_half_of_the_work_is_a_lie(true_us: float) -> None:
    rng = random.Random(5)
    proofs = [timing.proof(rows(rng, true_us, claimed_us=true_us / 2), true_us / 2, "cpu") for _ in range(200)]
    assert all("the judge's clock says at least" in str(one.lie) for one in proofs)


def test_a_lie_about_single_calls_alone_gains_nothing() -> None:
    rng = random.Random(5)
    for device, claimed_us in (("cpu", 100.0), ("cuda", 100.0)):
        told = timing.proof(rows(rng, 300.0), claimed_us, device)
        assert told.lie is None
        assert not told.borne_out
        assert told.row_borne_out


def test_a_row_that_is_not_borne_out_counts_as_trusted_clocks_saw_it() -> None:
    row = Row(10, 5_000.0, 5_300.0, 400.0, 4_300.0)
    assert row.claimed_us == 40.0
    assert row.judged_us == 400.0
    assert Row(10, 5_000.0, 5_300.0, 400.0, 600.0).judged_us == 40.0


def test_launching_may_lie_between_a_device_span_and_the_time_from_end_to_end() -> None:
    rng = random.Random(5)
    assert timing.proof(rows(rng, 15.0), 2.0, "cuda").borne_out
    assert not timing.proof(rows(rng, 15.0), 2.0, "cpu").borne_out


def test_the_judges_interval_covers_the_truth() -> None:
    rng = random.Random(11)
    covered = 0
    for _ in range(1000):
        told = timing.proof(rows(rng, 80.0, count=8), 80.0, "cpu")
        covered += told.low_us <= 80.0 * 1.01 <= told.high_us
    assert covered / 1000 >= 0.90
