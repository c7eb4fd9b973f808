"""`harness.runner.warmup`: what counts as drift, and when warm-up is over."""

from __future__ import annotations

import numpy as np
import pytest

from harness.runner.policy import SamplingPolicy
from harness.runner.warmup import WarmUp, drift_of


def noise(count, seed=0, spread=0.002):
    return 1 + spread * np.random.default_rng(seed).normal(size=count)


def taken(times, policy=None, phase="decode"):
    """Iterations that warm-up takes of these times."""
    warm_up = WarmUp(policy or SamplingPolicy(), phase)
    return next(count for count in range(len(times) + 1) if warm_up.is_over(times[:count]))


def test_drift_is_the_rise_over_the_window():
    drift = drift_of([100.0 + step for step in range(20)])
    assert drift.pct == pytest.approx(100 * 19 / 109.5)
    assert (drift.low_pct, drift.high_pct) == (drift.pct, drift.pct)
    assert not drift.is_none(0.5)


def test_one_outlier_is_no_drift():
    times = noise(20).tolist()
    times[-1] = 50.0
    assert drift_of(times).is_none(0.5)


def test_a_drift_too_small_to_matter_is_none_however_sure():
    drift = drift_of([100.0 + 0.02 * step for step in range(20)])
    assert drift.low_pct > 0
    assert drift.is_none(0.5)
    assert not drift.is_none(0.3)


def test_two_times_say_nothing():
    assert drift_of([1.0, 2.0]) is None


def test_steady_times_need_the_floor_and_no_more():
    assert taken(noise(100)) == 20
    assert taken([5.0, 4.9, 5.0, 5.1], phase="prefill") == 3


def test_prefill_that_still_falls_goes_on():
    assert taken([9.0, 6.0, 5.0, 5.01, 5.0], phase="prefill") > 3


def test_warm_up_goes_on_until_the_fall_is_out_of_the_window():
    times = noise(100) + np.exp(-np.arange(100) / 10)
    # e^(-n/10) falls by 0.5 % over 20 iterations from n = 52 on, and is lost in the noise somewhat before.
    assert 30 <= taken(times) <= 70


def test_a_step_in_the_window_is_drift():
    times = noise(100)
    times[:12] += 1
    assert taken(times) == 30


def test_what_never_gets_warm_is_sampled_all_the_same():
    times = np.linspace(1, 3, 200)
    warm_up = WarmUp(SamplingPolicy(max_warmup=60), "decode")
    assert taken(times, SamplingPolicy(max_warmup=60)) == 60
    assert warm_up.drift(times[:60]).pct == pytest.approx(100 * 19 * (2 / 199) / np.median(times[40:60]))


def test_once_over_warm_up_stays_over():
    warm_up, times = WarmUp(SamplingPolicy(), "decode"), noise(20)
    assert [warm_up.is_over(times) for _ in range(3)] == [True] * 3


def test_no_warm_up_where_none_is_wanted():
    assert taken([1.0], SamplingPolicy(warmup_decode=0, warmup_prefill=0, max_warmup=0)) == 0
