"""Verdicts of rows that ran: how often each is wrong, simulated with seeds that are written here.

Processes scatter by 0.5 %, each arm of each by itself; single iterations by 1 %, 41 of each. A false verdict may come
once in 100 runs at most; in 1,000 simulated runs that is 10, and 17 with the luck of the seed (99 % of the binomial).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from pydantic import TypeAdapter

from harness.analysis.kinds import kind_of
from harness.analysis.measured_kinds import rule_of
from harness.analysis.paired import Blocks
from harness.spec.claims import Claim

RUNS = 1000
MOST_FALSE = 17
PROCESS_SD, SAMPLE_SD, SAMPLES = 0.005, 0.01, 41
HERE = (("batch", 8),)
G_VALUES = (1, 2, 4, 8)


def a_claim(**data: object) -> Claim:
    made: Claim = TypeAdapter(Claim).validate_python(
        {"id": "c", "guideline": "A1d", "statement": "so it is", "axis": "G", "scatter_pct": 5, **data}
    )
    return made


def runs(times: Mapping[int, float], replicates: int, seed: int, count: int = RUNS) -> list[Blocks]:
    """Runs of one process for each replicate, each the median of its samples."""
    rng = np.random.default_rng(seed)
    shape = (count, replicates, len(times))
    shifts = rng.normal(0, PROCESS_SD, shape)
    medians = np.median(rng.normal(0, SAMPLE_SD, (*shape, SAMPLES)), axis=-1)
    logs = np.log(list(times.values())) + shifts + medians
    return [Blocks(tuple({HERE: dict(zip(times, one.tolist(), strict=True))} for one in run)) for run in logs]


def verdicts(claim: Claim, found: list[Blocks]) -> Counter[str]:
    kind, rule = kind_of(claim.model_copy(update={"scatter_pct": 0.0})), rule_of(claim)
    said: Counter[str] = Counter()
    for blocks in found:
        readings = kind.readings(blocks.centers()[HERE])
        said[rule.decide(readings, blocks, len(readings))] += 1
    return said


RATIO = {"kind": "ratio", "value": 8, "over": 1}
FLAT = dict.fromkeys(G_VALUES, 1.0)
#: Every doubling gains exactly 1.2.
GAINS = {g: 1.2 ** -math.log2(g) for g in G_VALUES}


@pytest.mark.parametrize("replicates", [2, 3, 5, 8])
def test_the_interval_of_a_ratio_covers_the_truth_in_99_of_100_runs(replicates: int) -> None:
    claim = a_claim(**RATIO, at_most=1.0)
    item = (8, 1)
    covered = 0
    for blocks in runs(FLAT, replicates, seed=replicates):
        (interval,) = rule_of(claim).intervals({item: 1.0}, blocks).values()
        covered += interval.low <= 1.0 <= interval.high
    assert 983 <= covered <= 998


@pytest.mark.parametrize("replicates", [2, 3, 5, 8])
@pytest.mark.parametrize(
    ("data", "times"),
    [
        ({**RATIO, "at_most": 1.0}, FLAT),
        ({**RATIO, "at_least": 1.0}, FLAT),
        ({"kind": "flat_within", "at_most_pct": 10.0}, {1: 1.0, 2: 1.1, 4: 1.1, 8: 1.0}),
        ({"kind": "flat_within", "at_most_pct": 0.0}, FLAT),
        ({"kind": "exponent", "expect": 0.1, "tolerance": 0.1}, FLAT),
        ({"kind": "gain_per_doubling", "at_least": 1.2}, GAINS),
        ({"kind": "gain_per_doubling", "at_most": 1.2}, GAINS),
        ({"kind": "saturation", "gain_below_pct": 20, "at_most": 2}, GAINS),
        ({"kind": "saturation", "gain_below_pct": 20, "at_least": 4}, GAINS),
        ({"kind": "best_at", "values": [1, 2]}, FLAT),
    ],
    ids=lambda one: " ".join(map(str, one.values())) if isinstance(one, dict) else None,
)
def test_a_truth_on_the_threshold_is_hardly_ever_decided(
    data: dict[str, object], times: dict[int, float], replicates: int
) -> None:
    said = verdicts(a_claim(**data), runs(times, replicates, seed=100 + replicates))
    assert said["contradicts"] <= MOST_FALSE
    assert said["supports"] <= MOST_FALSE


@pytest.mark.parametrize(
    ("data", "times", "wrong"),
    [
        ({**RATIO, "at_most": 1.02}, FLAT, "contradicts"),
        ({**RATIO, "at_most": 0.98}, FLAT, "supports"),
        ({"kind": "flat_within", "at_most_pct": 2.0}, FLAT, "contradicts"),
        ({"kind": "gain_per_doubling", "at_least": 1.17}, GAINS, "contradicts"),
        ({"kind": "gain_per_doubling", "at_least": 1.23}, GAINS, "supports"),
        ({"kind": "best_at", "values": 8}, {**FLAT, 8: 1.02}, "supports"),
    ],
    ids=lambda one: " ".join(map(str, one.values())) if isinstance(one, dict) else None,
)
def test_two_per_cent_from_the_threshold_no_verdict_is_false(
    data: dict[str, object], times: dict[int, float], wrong: str
) -> None:
    assert verdicts(a_claim(**data), runs(times, 5, seed=11))[wrong] == 0


def found_by(replicates: int) -> Callable[[dict[str, object], Mapping[int, float]], Counter[str]]:
    return lambda data, times: verdicts(a_claim(**data), runs(times, replicates, seed=12, count=300))


def test_what_is_there_is_found() -> None:
    three, five, eight = found_by(3), found_by(5), found_by(8)
    halved = {**FLAT, 8: 0.5}
    assert three({**RATIO, "at_most": 0.75}, halved)["supports"] == 300
    assert three({**RATIO, "at_least": 0.75}, halved)["contradicts"] == 300
    assert three({"kind": "flat_within", "at_most_pct": 10.0}, halved)["contradicts"] == 300
    assert three({"kind": "flat_within", "at_most_pct": 10.0}, FLAT)["supports"] >= 280
    assert five({**RATIO, "at_most": 1.0}, {**FLAT, 8: 0.96})["supports"] >= 280
    assert eight({**RATIO, "at_most": 1.0}, {**FLAT, 8: 0.98})["supports"] >= 280
    assert three({"kind": "gain_per_doubling", "at_least": 1.05}, GAINS)["supports"] >= 280
    assert five({"kind": "exponent", "expect": -0.263, "tolerance": 0.1}, GAINS)["supports"] >= 280
    assert five({"kind": "saturation", "gain_below_pct": 10, "at_most": 4}, {**GAINS, 8: GAINS[4]})["supports"] >= 280
    assert three({"kind": "saturation", "gain_below_pct": 10, "at_least": 8}, GAINS)["supports"] >= 100
    assert three({"kind": "best_at", "values": [8]}, GAINS)["supports"] >= 280
    assert three({"kind": "best_at", "values": [1, 2]}, GAINS)["contradicts"] >= 200
