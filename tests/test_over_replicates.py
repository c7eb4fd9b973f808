"""Effects, cliffs, falls and plotted values of repeated cases."""

from __future__ import annotations

import math
from typing import Any

import pytest
from answered import a_study, answered
from measured_run import Changes, Machine, frames, measured_attempts

from harness.analysis.cliffs import cliffs
from harness.analysis.effects import effects
from harness.analysis.over_replicates import (
    MeasuredCliff,
    cliffs_of_cases,
    effect_lines_of_cases,
    effects_of_cases,
    falls_of_cases,
    observations_of_cases,
)
from harness.analysis.replicates import Cases, by_case
from harness.spec.claims import Quantity
from harness.spec.expand import PlannedCase

STUDY = a_study()
QUIET = Machine(process_sd=0.0, sample_sd=0.0)


def repeated(times: dict[int, float], machine: Machine = QUIET, changes: Changes = lambda _, __: {}) -> Cases:
    attempts = measured_attempts(STUDY, lambda planned: times[planned.coordinates["G"]], machine, changes)
    return by_case(*frames(attempts)[:2])


def by_a_hundredth(planned: PlannedCase, replicate: int) -> dict[str, Any]:
    """G 8 moves by -1 %, 0, +1 % against the others, which move by 20 % together."""
    own = 0.01 * (replicate - 1) if planned.coordinates["G"] == 8 else 0.0
    return {"step_ms": (0.5 if planned.coordinates["G"] == 8 else 1.0) * math.exp(own + 0.2 * replicate)}


def test_a_ratio_is_taken_inside_each_replicate() -> None:
    table = effects_of_cases(STUDY, repeated(dict.fromkeys((1, 2, 4, 8), 1.0), changes=by_a_hundredth))
    row = table[(table["part"] == "total") & (table["value"] == 8)].iloc[0]
    # half width 9.925 x 0.01 / sqrt(3) = 0.0573, whatever the replicates share
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == pytest.approx((0.5, 0.472, 0.529), abs=6e-4)
    assert row["replicates"] == 3
    assert row["baseline_high_ms"] > 2 * row["baseline_ms"]


def test_lines_tell_the_intervals_and_no_best_that_is_not_sure() -> None:
    sure = repeated({1: 1.0, 2: 0.9, 4: 0.8, 8: 0.7})
    (line,) = effect_lines_of_cases(effects_of_cases(STUDY, sure))
    assert line.best == 8
    assert line.text.endswith(
        "99 % intervals over 3 replicates 0.900 to 0.900 at 2, 0.800 to 0.800 at 4, 0.700 to 0.700 at 8"
    )
    open_one = repeated({1: 1.0, 2: 1.0, 4: 1.0, 8: 0.98}, Machine(process_sd=0.02))
    (line,) = effect_lines_of_cases(effects_of_cases(STUDY, open_one))
    assert line.best is None
    assert "no difference is sure" in line.text
    (line,) = effect_lines_of_cases(
        effects_of_cases(STUDY, repeated({1: 1, 2: 1, 4: 1, 8: 0.5}, Machine(replicates=1)))
    )
    assert line.text.endswith("1 replicate")
    assert line.best is None


def test_values_to_plot_have_ends() -> None:
    table = observations_of_cases(STUDY, repeated({1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}, Machine()), Quantity())
    assert (table["low"] < table["value"]).all()
    assert (table["value"] < table["high"]).all()
    assert table["replicates"].tolist() == [3] * 4


def test_a_cliff_has_its_interval() -> None:
    cases = repeated({1: 1.0, 2: 1.0, 4: 1.0, 8: 20.0}, Machine(replicates=5))
    found = cliffs_of_cases(STUDY, cases)
    assert found
    for one in found:
        assert isinstance(one, MeasuredCliff)
        assert one.factor_low is not None
        assert one.factor_high is not None
        assert one.factor_low < one.factor < one.factor_high
        assert " to " in one.size_text


def test_a_cliff_that_replicates_are_not_sure_of_is_none() -> None:
    machine = Machine(replicates=3, process_sd=0.4, seed=2)
    cases = repeated({1: 1.0, 2: 1.0, 4: 1.0, 8: 8.0}, machine)
    assert cliffs(STUDY, cases.records, cases.ops)
    assert cliffs_of_cases(STUDY, cases) == []


def test_a_cliff_of_one_replicate_says_so() -> None:
    found = cliffs_of_cases(STUDY, repeated({1: 1.0, 2: 1.0, 4: 1.0, 8: 20.0}, Machine(replicates=1)))
    assert found
    assert all(one.size_text.endswith("(1 replicate)") for one in found)


def test_falls_have_their_intervals() -> None:
    study = a_study(workloads={"decode": {"batch": [1, 8, 64], "kvsl": 65536}}, axes={"G": [1]})
    times = {1: 1.0, 8: 0.2, 64: 2.0}
    attempts = measured_attempts(study, lambda planned: times[planned.coordinates["batch"]], Machine())
    cases = by_case(*frames(attempts)[:2])
    found = falls_of_cases(study, cases, cliffs_of_cases(study, cases))
    assert found
    assert all("% over 3 replicates)" in one.text for one in found)


def test_priced_cases_pass_through() -> None:
    records, ops = answered(STUDY, lambda kernel: 100.0 / kernel.group_size)
    cases = by_case(records, ops)
    assert effects_of_cases(STUDY, cases).equals(effects(STUDY, records, ops))
    assert "low" not in observations_of_cases(STUDY, cases, Quantity())
    assert cliffs_of_cases(STUDY, cases) == cliffs(STUDY, records, ops)
