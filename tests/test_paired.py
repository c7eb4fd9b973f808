"""Pairs inside a process: what all arms of a round meet cancels, and replicates stay whole."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.paired import Blocks, Timed, complete, round_corrections, samples_of

HERE = (("batch", 8),)


def timed(times: list[float]) -> Timed:
    return Timed(tuple(times), tuple(range(len(times))))


def test_a_drift_that_both_arms_meet_cancels() -> None:
    drift = [1.0, 1.2, 1.5, 1.9, 2.4, 3.0]
    # the second arm was stopped early: its median is that of a machine that was still cold
    arms = {"a": timed(drift), "b": timed([2 * one for one in drift[:5]])}
    medians = {name: math.log(statistics.median(one.times_ms)) for name, one in arms.items()}
    corrections = round_corrections(arms)
    assert medians["b"] - medians["a"] == pytest.approx(math.log(2 * 1.5 / 1.7))
    ratio = medians["b"] + corrections["b"] - medians["a"] - corrections["a"]
    assert math.exp(ratio) == pytest.approx(2.0)
    assert sum(corrections.values()) == pytest.approx(0.0)


def test_a_round_with_several_samples_counts_once() -> None:
    one = Timed((1.0, 4.0, 2.0), (0, 0, 1))
    assert one.by_round() == {0: pytest.approx(math.log(2.0)), 1: pytest.approx(math.log(2.0))}


def test_few_common_rounds_and_single_arms_correct_nothing() -> None:
    assert round_corrections({}) == {}
    assert round_corrections({"a": timed([1.0] * 9)}) == {}
    assert round_corrections({"a": timed([1.0] * 9), "b": timed([2.0] * 4)}) == {}


@given(st.lists(st.floats(0.5, 2.0), min_size=5, max_size=20), st.floats(0.1, 10.0))
def test_whatever_the_rounds_the_ratio_of_proportional_arms_is_exact(rounds: list[float], factor: float) -> None:
    arms = {"a": timed(rounds), "b": timed([factor * one for one in rounds])}
    corrections = round_corrections(arms)
    assert corrections["a"] == pytest.approx(0.0, abs=1e-9)
    assert corrections["b"] == pytest.approx(0.0, abs=1e-9)


def test_rounds_know_a_ratio_better_than_medians_do() -> None:
    rng = np.random.default_rng(7)
    by_median, by_round = [], []
    for _ in range(50):
        common = rng.normal(0, 0.05, 41)
        arms = {name: timed(np.exp(common + rng.normal(0, 0.01, 41)).tolist()) for name in "ab"}
        medians = {name: math.log(statistics.median(one.times_ms)) for name, one in arms.items()}
        corrections = round_corrections(arms)
        by_median.append(medians["b"] - medians["a"])
        by_round.append(by_median[-1] + corrections["b"] - corrections["a"])
    assert statistics.stdev(by_round) < statistics.stdev(by_median)


def test_replicates_that_lack_a_row_are_left_out() -> None:
    whole, half = {HERE: {1: 0.0, 2: 1.0}}, {HERE: {1: 0.0}}
    blocks = complete([whole, half, whole])
    assert blocks.count == 2
    assert blocks.contrast(2, 1).mean == 1.0
    assert complete([]).labels() == []


def test_a_contrast_is_the_median_over_places() -> None:
    places = {(("batch", b),): {1: 0.0, 2: gain} for b, gain in ((1, 0.1), (8, 0.2), (32, 0.9))}
    blocks = Blocks((places, places))
    assert blocks.contrast(2, 1).mean == pytest.approx(0.2)
    assert blocks.contrast(1, 2).mean == pytest.approx(-0.2)


def test_centers_are_geometric_means() -> None:
    blocks = Blocks(({HERE: {1: math.log(2.0)}}, {HERE: {1: math.log(8.0)}}))
    assert blocks.centers() == {HERE: {1: pytest.approx(4.0)}}


def test_samples_without_times_are_left_out() -> None:
    table = pd.DataFrame({"attempt_id": ["a", "b"], "times_ms": [[1.0, 2.0], []], "rounds": [[0, 1], []]})
    assert samples_of(table) == {"a": Timed((1.0, 2.0), (0, 1))}
    assert samples_of(None) == {}
