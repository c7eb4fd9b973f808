"""What the rule for replicates promises, by simulation: processes 0.5 % apart, iterations 1 %, seeds fixed.

The rates expected are those of another simulation, by which the rule was chosen; limits are three standard errors of
the pairs drawn here around them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.analysis.compare.judging import by_interval, over_the_table
from harness.analysis.compare.pairs import Pair, Values
from harness.analysis.inputs import Figure, Workload

PROCESS_SD, SAMPLE_SD = 0.005, 0.01
PAIRS = 300

#: Replicates, samples of each, and the share of +3 % (+2 %) that is found.
FOUND = [(3, 60, 0.38, 0.07), (5, 50, 0.96, 0.35), (8, 30, 1.00, 0.70)]


def side(rng: np.random.Generator, change: float, replicates: int, samples: int) -> list[float]:
    """Medians of fresh processes."""
    shift = rng.normal(0, PROCESS_SD, (replicates, 1)) + rng.normal(0, SAMPLE_SD, (replicates, samples))
    return [float(one) for one in np.median(10 * (1 + change) * np.exp(shift), axis=1)]


def rates(change: float, replicates: int, samples: int, seed: int) -> dict[str, float]:
    """Share of pairs by verdict."""
    rng = np.random.default_rng(seed)
    drawn = ((side(rng, 0.0, replicates, samples), side(rng, change, replicates, samples)) for _ in range(PAIRS))
    told = [by_interval(base, candidate, "lower").verdict for base, candidate in drawn]
    return {verdict: told.count(verdict) / PAIRS for verdict in ("worse", "better", "same", "inconclusive")}


@pytest.mark.parametrize(("replicates", "samples"), [(found[0], found[1]) for found in FOUND])
def test_where_nothing_changed_hardly_anything_is_worse_or_better(replicates: int, samples: int) -> None:
    told = rates(0.0, replicates, samples, 1)
    assert told["worse"] + told["better"] <= 0.01


@pytest.mark.parametrize(("replicates", "samples", "of_three", "of_two"), FOUND)
def test_what_changed_is_found_as_often_as_was_promised(
    replicates: int, samples: int, of_three: float, of_two: float
) -> None:
    for change, expected in ((0.03, of_three), (0.02, of_two)):
        told = rates(change, replicates, samples, 2)
        assert told["better"] == 0
        assert abs(told["worse"] - expected) <= 3 * math.sqrt(max(expected * (1 - expected), 0.01) / PAIRS) + 0.02


def test_a_change_of_one_percent_is_called_worse_no_more_often_than_one_in_two_hundred() -> None:
    """At the edge of what counts, a two-sided interval of 99 % is wrong on each side once in 200."""
    assert rates(0.01, 5, 50, 3)["worse"] <= 0.02


def test_equal_runs_settle_with_eight_replicates_and_hardly_with_three() -> None:
    assert rates(0.0, 8, 30, 4)["same"] >= 0.95
    assert rates(0.0, 3, 60, 4)["same"] <= 0.6


def test_as_many_replicates_as_are_asked_for_do_settle() -> None:
    rng = np.random.default_rng(5)
    asked = []
    for _ in range(100):
        told = by_interval(side(rng, 0.0, 3, 60), side(rng, 0.03, 3, 60), "lower")
        if told.needed:
            asked.append(told.needed)
    assert 3 <= np.median(asked) <= 8
    again = [by_interval(side(rng, 0.0, needed, 60), side(rng, 0.03, needed, 60), "lower").verdict for needed in asked]
    assert again.count("worse") / len(again) >= 0.6


def test_over_a_table_of_many_nulls_false_verdicts_stay_rare_and_true_ones_are_found() -> None:
    """400 workloads, of which 40 are 4 % slower: at 1 % hardly any of those called worse may be none."""
    rng = np.random.default_rng(6)
    pairs = []
    for number in range(400):
        base, candidate = side(rng, 0.0, 5, 50), side(rng, 0.04 if number < 40 else 0.0, 5, 50)
        told = by_interval(base, candidate, "lower")
        pairs.append(
            Pair(
                workload=Workload((("n", str(number)),), ()),
                figure=Figure("step_ms", "Decode step", "ms", "lower", "step_ms"),
                base=Values(tuple(base), float(np.median(base))),
                candidate=Values(tuple(candidate), float(np.median(candidate))),
                verdict=told.verdict, policy="interval", change=told.change, low=told.low, high=told.high, p=told.p,
            )
        )  # fmt: skip
    called = [int(pair.workload.key[0][1]) for pair in over_the_table(pairs) if pair.verdict in {"worse", "better"}]
    assert sum(number >= 40 for number in called) <= 1
    assert sum(number < 40 for number in called) >= 34
