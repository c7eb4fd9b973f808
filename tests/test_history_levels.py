"""Levels, the anchored level among them, and the policy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.history.anchor import follow
from harness.analysis.history.levels import Levels, Segment, find_levels, pooled_noise, step_noise, widening
from harness.analysis.history.nights import days_of, instants, night_text, parse_night
from harness.analysis.history.policy import Policy, parse_policy
from harness.analysis.history.series import settle_environments
from harness.errors import UsageError


def noise(count: int, sd: float = 0.005, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sd, count)


def levels_of(*parts: tuple[int, float]) -> Levels:
    """Levels without noise: nights and the change against 1, in %."""
    logs = np.concatenate([np.full(nights, math.log1p(change / 100)) for nights, change in parts])
    ends = np.cumsum([nights for nights, _ in parts]).tolist()
    segments = tuple(
        Segment(end - nights, end, math.log1p(change / 100)) for end, (nights, change) in zip(ends, parts, strict=True)
    )
    return Levels(segments, logs, np.zeros(len(logs), bool), logs, np.zeros(len(logs)))


def test_a_step_is_found_on_its_second_night() -> None:
    logs = noise(40)
    logs[38:] += 0.03
    assert [one.start for one in find_levels(logs).segments] == [0, 38]


def test_single_nights_stand_out_and_are_no_level() -> None:
    logs = noise(40)
    logs[[10, 25, 26]] -= 0.08
    found = find_levels(logs)
    assert len(found.segments) == 1
    assert set(np.flatnonzero(found.outliers)) >= {10, 25, 26}


def test_noise_is_told_from_steps_and_spikes() -> None:
    logs = noise(200)
    logs[100:] += 0.2
    logs[[20, 60, 140]] += 0.3
    assert step_noise(logs) == pytest.approx(0.005, rel=0.2)
    sd, freedom = pooled_noise([find_levels(logs)])
    assert sd == pytest.approx(0.005, rel=0.15)
    assert 190 <= freedom <= 196


def test_noise_that_few_nights_tell_is_widened() -> None:
    # Student's t at the probability of 3 standard deviations, 0.99865: 6.620 with 4 degrees of freedom (R: qt).
    assert widening(3.0, 4) == pytest.approx(6.6201 / 3, rel=1e-4)
    assert widening(3.0, 10**6) == pytest.approx(1, abs=1e-5)
    assert widening(0.0, 4) == 1


@given(st.integers(1, 12), st.integers(0, 2**16))
def test_every_night_is_in_one_segment(count: int, seed: int) -> None:
    found = find_levels(noise(count, 0.02, seed))
    assert [place for one in found.segments for place in range(one.start, one.end)] == list(range(count))


def test_small_falls_add_up_against_the_anchored_level() -> None:
    walk = follow(levels_of((12, 0), (6, -2), (6, -4), (6, -6)), 5, 1, Policy(threshold_pct=5, nights=3))
    assert walk.states == ["u", "s", "s", "r"]
    assert math.exp(walk.level) == pytest.approx(1)
    (fall,) = [step for step in walk.steps if step.kind == "regression"]
    assert (fall.first, fall.settled) == (1, 3)


def test_the_level_moves_at_an_improvement_so_that_falling_back_counts() -> None:
    walk = follow(levels_of((12, 0), (6, 9), (6, 0)), 5, 1, Policy(threshold_pct=5, nights=3))
    assert [step.kind for step in walk.steps] == ["improvement", "regression"]
    assert math.exp(walk.level) == pytest.approx(1.09)


def test_a_recovery_is_no_improvement() -> None:
    walk = follow(levels_of((12, 0), (6, -8), (6, 0)), 5, 1, Policy(threshold_pct=5, nights=3))
    assert [step.kind for step in walk.steps] == ["regression", "recovery"]
    assert not walk.has_regressed


def test_a_change_too_short_to_count_is_transient() -> None:
    walk = follow(levels_of((12, 0), (2, -8), (12, 0)), 5, 1, Policy(threshold_pct=5, nights=3))
    assert walk.states == ["u", "t", "u"]
    assert walk.steps == []


def test_two_single_nights_are_no_level() -> None:
    levels = levels_of((12, 0), (3, -6))
    levels.logs[13] = 0  # -6 %, 0, -6 %
    walk = follow(levels, 2, 1, Policy())
    assert walk.states == ["u", "t"]


def test_a_pinned_level_does_not_move() -> None:
    walk = follow(levels_of((12, 0), (6, 9), (6, 1)), 5, 1, Policy(threshold_pct=5, nights=3), pinned=0.0)
    assert [step.kind for step in walk.steps] == ["improvement"]
    assert (walk.states, walk.level) == (["u", "i", "u"], 0.0)
    assert not walk.has_regressed


@given(st.integers(3, 20), st.floats(0.1, 1.9))
def test_what_is_below_the_limit_never_counts(nights: int, change: float) -> None:
    walk = follow(levels_of((10, 0), (nights, -change), (nights, change)), 2, -1, Policy())
    assert not {step.kind for step in walk.steps} & {"regression", "improvement"}


def test_where_less_is_better_the_percentage_is_of_the_number_itself() -> None:
    # A step of 1 ms that takes 1.05 ms: the goodness, its reciprocal, falls by 4.76 %; the number rises by 5 %.
    logs = levels_of((10, 0), (5, 100 * (1 / 1.05 - 1)))
    assert follow(logs, 4.99, -1, Policy(nights=3)).has_regressed
    assert not follow(logs, 5.01, -1, Policy(nights=3)).has_regressed


def test_policies_on_a_command_line() -> None:
    assert parse_policy(["threshold=5%", "nights=3, noise=4"]) == Policy(threshold_pct=5, nights=3, noise=4)
    with pytest.raises(UsageError) as caught:
        parse_policy(["nihgts=3", "noise=-1"])
    assert len(caught.value.findings) == 2


def test_times_with_offsets_are_instants() -> None:
    import pandas as pd

    texts = pd.Series(["2026-03-09T23:40:00-08:00", "2025-12-31T23:59:59Z", "2026-03-20T07:40:00", "soon", None])
    postgres = pd.Series(["2026-03-09 23:40:00-08", "2026-03-10T00:00:60Z"])  # hours alone; a second that is none
    assert days_of(instants(postgres)[0]).tolist() == [parse_night("2026-03-10", ""), -1]
    assert instants(postgres)[1].tolist()[1] == "'2026-03-10T00:00:60Z' cannot be read as a time"
    times, why = instants(texts)
    assert days_of(times).tolist() == [parse_night("2026-03-10", ""), parse_night("2025-12-31", ""), -1, -1, -1]
    assert [bool(text) for text in why] == [False, False, True, True, True]
    assert "has no offset" in why[2]
    assert night_text(parse_night("2024-02-29", "")) == "2024-02-29"


def test_an_environment_that_says_less_is_the_one_before() -> None:
    whole, part, other = (("driver", "1"), ("host", "a")), (("host", "a"),), (("driver", "2"), ("host", "a"))
    assert settle_environments((part, whole, part, other)) == (whole, whole, whole, other)
    assert settle_environments((whole, other, whole)) == (whole, other, whole)
