from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from dice_core.bench.score import THRESHOLDS, VIEWS, Outcome, fast_p, wilson


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_equals_scipy(counts: tuple[int, int]) -> None:
    passed, total = counts
    expected = binomtest(passed, total).proportion_ci(0.95, method="wilson")
    assert wilson(passed, total) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_fast_p_is_strict_and_counts_every_problem() -> None:
    outcomes = [
        Outcome(1, 1, True, True, 2.0, 1.9),
        Outcome(1, 2, True, True, 2.1, 1.8),
        Outcome(1, 3, False, True, None),
        Outcome(1, 4, True, False, 9.0, 8.0),  # deceptive: never counts
        Outcome(2, 1, True, True, None),  # correct, not timed: passes no p, as in KernelBench
    ]
    assert fast_p(outcomes, 2.0)[1].passed == 1
    assert fast_p(outcomes, 2.0)[1].problems == 4
    assert fast_p(outcomes, 2.0, at_lower_bound=True)[1].passed == 0
    assert fast_p(outcomes, 0.0)[1].passed == 2
    assert fast_p(outcomes, 0.0)[2].passed == 0
    assert fast_p(outcomes, 1.0)[2].passed == 0


def test_three_views() -> None:
    outcomes = [
        Outcome(1, 1, True, True, 3.0, 2.5, True),
        Outcome(1, 2, False, True, None, None, True),  # KernelBench passes it, we do not: so it was never timed
        Outcome(1, 3, True, True, 3.0, 2.5, True, discriminating=False),
        Outcome(1, 4, True, False, 3.0, 2.5, True),  # a library's work
        Outcome(2, 1, True, True, 3.0, 2.5, True, discriminating=False),
    ]
    counts = {view: [(s.passed, s.problems) for s in fast_p(outcomes, 1.0, view=view).values()] for view in VIEWS}
    assert counts == {"all": [(3, 4), (1, 1)], "discriminating": [(1, 3)], "repaired": [(2, 4), (1, 1)]}
    with pytest.raises(ValueError, match="no view 'best'"):
        fast_p(outcomes, 1.0, view="best")


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.none() | st.floats(0.01, 100), st.booleans()), min_size=1),
       st.sampled_from(THRESHOLDS))
def test_a_view_never_passes_more_at_the_lower_bound(
    rows: list[tuple[bool, bool, float | None, bool]], p: float
) -> None:
    outcomes = [Outcome(1, n, c, h, s, None if s is None else s * 0.9, c, d) for n, (c, h, s, d) in enumerate(rows)]
    for view in VIEWS:
        for level, score in fast_p(outcomes, p, view=view).items():
            assert fast_p(outcomes, p, view=view, at_lower_bound=True)[level].passed <= score.passed <= score.problems
            assert score.low <= score.rate <= score.high


def test_two_samples_of_one_problem_are_refused() -> None:
    with pytest.raises(ValueError, match="level 1 problem 1 appears twice"):
        fast_p([Outcome(1, 1, True, True, 2.0)] * 2, 1.0)
