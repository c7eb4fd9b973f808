"""Measured beside priced: which rows meet, and by how much they differ."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from answered import a_study, answered, priced
from measured_run import Machine, frames, measured_attempts

from harness.analysis.beside import Comparison, beside
from harness.analysis.replicates import by_case
from harness.spec.claims import Quantity

STUDY = a_study()
QUIET = Machine(process_sd=0.0, sample_sd=0.0)


def together(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The rows of both."""
    return pd.DataFrame([*one.to_dict("records"), *other.to_dict("records")], columns=one.columns)


def compared(records: pd.DataFrame, ops: pd.DataFrame, machine: Machine = QUIET, level: str = "layer") -> Comparison:
    """Cases that take 10 ms, beside the priced rows given."""
    ours, our_ops, _ = frames(measured_attempts(STUDY, lambda _: 10.0, machine))
    cases = by_case(ours.assign(level=level), our_ops)
    intervals = cases.intervals(STUDY, Quantity())
    return beside([(cases, intervals)], together(ours, records), together(our_ops, ops))


def test_the_same_case_meets_its_price() -> None:
    records, ops = answered(STUDY, lambda _: 4000.0)
    found = compared(records, ops)
    assert len(found.cases) == 4
    first, row = found.cases[0], records.iloc[0]
    assert (first.case_id, first.measured_ms, first.composed_ms) == (row["case_id"], 10.0, row["step_ms"])
    assert first.error_pct == pytest.approx(100 * (row["step_ms"] / 10.0 - 1))
    assert first.roofline_ms == row["roofline_ms"]
    assert (first.measured_low_ms, first.measured_high_ms, first.replicates) == (
        pytest.approx(10.0),
        pytest.approx(10.0),
        3,
    )


def test_errors_of_categories_are_over_all_cases() -> None:
    records, ops = answered(STUDY, lambda _: 4000.0)
    found = compared(records, ops)
    attention = next(one for one in found.categories if one.category == "attention")
    _, our_ops, _ = frames(measured_attempts(STUDY, lambda _: 10.0, QUIET))
    mine = our_ops[(our_ops["category"] == "attention") & our_ops["attempt_id"].str.endswith(".r0")]["total_us"]
    errors = sorted(100 * (4000.0 / time_us - 1) for time_us in mine)
    assert attention.cases == 4
    assert attention.median_pct == pytest.approx((errors[1] + errors[2]) / 2)
    assert attention.most_pct == pytest.approx(max(errors, key=abs))


def test_the_roofline_alone_has_no_error() -> None:
    found = compared(*priced(STUDY))
    assert len(found.cases) == 4
    assert all(one.composed_ms is None and one.error_pct is None for one in found.cases)
    assert all(one.roofline_ms for one in found.cases)
    assert found.categories == ()


def test_another_level_another_case_and_rows_without_a_number_do_not_meet() -> None:
    records, ops = answered(STUDY, lambda _: 4000.0)
    assert compared(records, ops, level="model").cases == ()
    assert compared(records.assign(case_id="other"), ops).cases == ()
    assert compared(*answered(STUDY, lambda _: "refused")).cases == ()


def test_every_version_of_the_tables_is_compared() -> None:
    records, ops = answered(STUDY, lambda _: 4000.0)
    both = together(records, records.assign(answered_with="later", attempt_id=records["attempt_id"] + "9"))
    assert [one.priced_with for one in compared(both, ops).cases[:2]] == ["by hand", "later"]


def test_one_replicate_has_no_interval() -> None:
    records, ops = answered(STUDY, lambda _: 4000.0)
    (first, *_) = compared(records, ops, replace(QUIET, replicates=1)).cases
    assert (first.measured_low_ms, first.interval.text) == (None, "1 replicate")
