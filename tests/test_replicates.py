"""One row for each case: the median over its replicates, without the disturbed ones."""

from __future__ import annotations

import pandas as pd
import pytest
from answered import a_study, answered
from measured_run import Changes, Machine, frames, measured_attempts, nothing

from harness.analysis.replicates import Cases, by_case, disturbance
from harness.spec.claims import Quantity

STUDY = a_study()
STEPS = (1.0, 4.0, 2.0)


def cases(changes: Changes = nothing, replicates: int = 3) -> Cases:
    records, ops, _ = frames(measured_attempts(STUDY, lambda _: 1.0, Machine(replicates=replicates), changes))
    return by_case(records, ops)


def test_the_median_stands_for_the_case() -> None:
    found = cases(lambda _, k: {"step_ms": STEPS[k]})
    assert found.records["step_ms"].tolist() == [2.0] * 4
    assert found.records["attempt_id"].tolist() == [f"RUN.{n:06d}.r0" for n in range(4)]
    assert found.behind["RUN.000000.r0"] == ("RUN.000000.r0", "RUN.000000.r1", "RUN.000000.r2")
    assert len(found.all_records) == 12


def test_ops_are_medians_too() -> None:
    found = cases()
    of_first = found.all_ops[found.all_ops["attempt_id"].str.startswith("RUN.000000.")]
    expected = of_first.groupby("position")["total_us"].median()
    standing = found.ops[found.ops["attempt_id"] == "RUN.000000.r0"].set_index("position")["total_us"]
    assert standing.to_dict() == pytest.approx(expected.to_dict())


def test_disturbed_rows_stand_aside_where_there_are_others() -> None:
    some = cases(lambda _, k: {"step_ms": STEPS[k], "flags": ["noisy"] if k == 1 else []})
    assert some.records["step_ms"].tolist() == [1.5] * 4
    assert some.records["flags"].tolist() == [[]] * 4
    every = cases(lambda _, k: {"step_ms": STEPS[k], "flags": ["noisy"]})
    assert every.records["step_ms"].tolist() == [2.0] * 4
    assert every.records["flags"].tolist() == [["noisy"]] * 4


def test_rows_without_a_number_enter_nothing_and_a_case_without_one_is_told_once() -> None:
    some = cases(lambda _, k: {"status": "invalid", "reason": "no work"} if k == 0 else {"step_ms": STEPS[k]})
    assert some.records["step_ms"].tolist() == [3.0] * 4
    none = cases(lambda _, __: {"status": "crash", "reason": "SIGSEGV"})
    assert none.records["status"].tolist() == ["crash"] * 4
    assert none.behind == {}
    assert none.ops.empty


def test_intervals_are_over_replicates() -> None:
    found = cases(lambda _, k: {"step_ms": STEPS[k]})
    interval = found.intervals(STUDY, Quantity())["RUN.000000.r0"]
    # logs 0, 2 ln 2, ln 2: mean ln 2, sd ln 2; half width 9.925 x 0.6931 / sqrt(3) = 3.972
    assert (interval.low, interval.high) == pytest.approx((2 / 53.08, 2 * 53.08), rel=1e-3)
    assert not cases(replicates=1).intervals(STUDY, Quantity())["RUN.000000.r0"].is_known


def test_priced_rows_pass_through() -> None:
    records, ops = answered(STUDY, lambda _: 10.0)
    found = by_case(records, ops)
    pd.testing.assert_frame_equal(found.records, records)
    pd.testing.assert_frame_equal(found.ops, ops)


def test_disturbances_are_told_together() -> None:
    rows = [{"flags": ["noisy", "throttled"], "foreign_cpus": 0.5, "throttle_reasons": None}, {"flags": []}]
    assert disturbance(rows) == (
        "others kept up to 0.50 processors busy (noisy), the GPU lowered its clock (throttled)"
    )
