"""`harness.runner.stopping`: traces, drawn and recorded, whose right answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from replays import TRACES, recorded, sampled

from harness.runner.median import median_interval
from harness.runner.policy import SamplingPolicy
from harness.runner.stopping import StopRule, next_look

SEEDS = range(20)


def noise(seed, spread=0.005, count=300):
    return 1 + spread * np.random.default_rng(seed).normal(size=count)


def test_looks_are_ever_further_apart():
    looks = [30]
    while looks[-1] < 300:
        looks.append(next_look(looks[-1]))
    assert looks == [30, 40, 50, 60, 72, 86, 103, 123, 147, 176, 211, 253, 303]


def test_quiet_times_stop_at_the_fewest_samples():
    for seed in SEEDS:
        ended = sampled(noise(seed, 0.003))
        assert ended.stop_reason == "precise"
        assert len(ended.times_ms) <= 60
    assert np.median([len(sampled(noise(seed, 0.003)).times_ms) for seed in SEEDS]) == 30


def test_precise_means_that_the_interval_of_what_was_kept_has_the_width_asked_for():
    for seed in SEEDS:
        ended = sampled(noise(seed, 0.015))
        assert ended.stop_reason == "precise"
        assert median_interval(ended.times_ms).half_width_pct <= 0.5


def test_a_wider_target_needs_fewer_samples():
    counts = [len(sampled(noise(0, 0.03), target_pct=target).times_ms) for target in (2.0, 1.0, 0.7)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]


def test_noise_that_is_known_to_be_too_large_settles():
    for seed in SEEDS:
        ended = sampled(noise(seed, 0.1))
        assert ended.stop_reason in {"settled", "samples"}
        assert len(ended.times_ms) >= 72
    assert np.mean([sampled(noise(seed, 0.1)).stop_reason == "settled" for seed in SEEDS]) > 0.5


def test_noise_does_not_settle_where_the_samples_left_will_do():
    # 2.5 % of noise takes about (2.46 x 2.5 / 0.5)^2 = 150 samples.
    reasons = {sampled(noise(seed, 0.025, 600), max_samples=600).stop_reason for seed in SEEDS}
    assert reasons == {"precise"}


def test_heavy_tail_is_kept_and_does_not_move_the_median():
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        times = 1 + 0.01 * np.abs(rng.standard_t(1, size=300))
        times[7] = 400.0
        ended = sampled(times)
        assert ended.stop_reason == "precise"
        assert ended.times_ms == tuple(times[: len(ended.times_ms)])
        assert median_interval(ended.times_ms).median == pytest.approx(1.01, abs=0.008)  # the median of |t| is 1


def test_a_step_early_on_keeps_sampling_until_the_level_that_stays_is_known():
    for seed in SEEDS:
        times = noise(seed)
        times[15:] *= 1.1
        ended = sampled(times)
        interval = median_interval(ended.times_ms)
        assert len(ended.times_ms) > 50
        assert 1.09 < interval.low <= 1.1 * 1.001
        assert 1.1 * 0.999 <= interval.high < 1.11


def test_a_step_half_way_is_never_called_precise():
    for seed in SEEDS:
        times = noise(seed, 0.03)
        times[60:] *= 1.2
        assert sampled(times, max_samples=120).stop_reason == "samples"


def test_drift_is_never_called_precise():
    for seed in SEEDS:
        assert sampled(noise(seed) * (1 + 0.2 * np.arange(300) / 100)).stop_reason == "samples"


def test_a_periodic_throttle_does_not_move_the_median():
    held = []
    for seed in range(100):
        position = (np.arange(300) + np.random.default_rng([seed, 1]).integers(50)) % 50
        ended = sampled(noise(seed) * np.where(position < 8, 1.3, 1.0))
        interval = median_interval(ended.times_ms)
        assert ended.stop_reason == "precise"
        # 8 of 50 are slow: the median is the quantile 0.5 / 0.84 = 0.595 of the others, 0.24 sd above theirs.
        held.append(interval.low <= 1 + 0.24 * 0.005 <= interval.high)
    assert np.mean(held) >= 0.93


def test_dependent_samples_take_more():
    def smooth(seed):
        return 1 + 0.01 * np.convolve(np.random.default_rng(seed).normal(size=400), np.ones(5) / 5**0.5, "valid")[:300]

    dependent, independent = ([len(sampled(draw(seed)).times_ms) for seed in SEEDS] for draw in (smooth, _one_percent))
    assert np.median(dependent) > 2 * np.median(independent)


def _one_percent(seed):
    return noise(seed, 0.01)


def test_a_look_costs_no_sample_and_needs_the_fewest():
    rule = StopRule(SamplingPolicy())
    assert rule.reason(noise(1, 0.001, 29)) is None
    assert rule.reason(noise(1, 0.001, 30)) == "precise"


@pytest.mark.parametrize("name", ["gemm", "busy", "periodic", "step", "drift"])
def test_recorded_times_as_unsteady_as_these_are_never_called_precise(name):
    times = recorded(name)
    for start in range(0, 900, 100):
        assert sampled(times[start:]).stop_reason in {"settled", "samples"}


def test_recorded_drift_is_seen_in_where_the_median_lies():
    times = recorded("drift")
    first, last = (median_interval(sampled(part).times_ms) for part in (times[:300], times[-300:]))
    assert first is None or last is None or first.median < last.median


def test_every_recorded_trace_says_where_it_is_from():
    import json

    for path in TRACES.glob("*.json"):
        trace = json.loads(path.read_text())
        assert {"what", "recorded", "with", "foreign_cpus", "kept", "times_us"} == set(trace)
        assert len(trace["times_us"]) == 1200
