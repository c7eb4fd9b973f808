"""Intervals over replicates: Student's t, worked out by hand and from its tables."""

from __future__ import annotations

import math

import pytest

from harness.analysis.intervals import Estimate, Interval, estimate, of_factors


@pytest.mark.parametrize(
    ("count", "quantile"),
    # t tables, two-sided 99 %: 1, 2, 4 and 9 degrees of freedom
    [(2, 63.657), (3, 9.925), (5, 4.604), (10, 3.250)],
)
def test_half_width_is_students(count: int, quantile: float) -> None:
    assert Estimate(0.0, 1.0, count).half_width() == pytest.approx(quantile / math.sqrt(count), rel=1e-4)


def test_several_intervals_that_hold_at_once_are_wider() -> None:
    # two at once: 99.5 %, two-sided, 2 degrees of freedom: 14.089
    assert Estimate(0.0, 1.0, 3).half_width(2) == pytest.approx(14.089 / math.sqrt(3), rel=1e-4)


def test_one_replicate_says_nothing_about_the_next() -> None:
    one = estimate([0.5])
    assert one.half_width() == math.inf
    assert not one.factors.is_known
    assert one.factors.text == "1 replicate"


def test_an_estimate_is_mean_and_sample_deviation() -> None:
    assert estimate([1.0, 2.0, 3.0]) == Estimate(2.0, 1.0, 3)
    assert estimate([1.0, 2.0, 3.0]).scaled(-2) == Estimate(-4.0, 2.0, 3)


def test_factors_are_taken_on_the_logarithm() -> None:
    # logs -1 %, 0, +1 %: sd 0.01, half width 9.925 x 0.01 / sqrt(3) = 0.0573
    interval = of_factors([math.exp(-0.01), 1.0, math.exp(0.01)])
    assert (interval.low, interval.high) == pytest.approx((math.exp(-0.0573), math.exp(0.0573)), rel=1e-4)
    assert interval.text == "0.944 to 1.06"


def test_two_replicates_far_apart_have_an_interval_that_prints() -> None:
    assert math.isfinite(of_factors([1.0, 1e9]).high)
    assert Interval(1.0, 2.0, 2).is_known
