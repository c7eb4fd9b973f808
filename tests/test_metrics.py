"""One table says what every number is; formats are the same wherever a number is printed."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.results.metrics import METRICS, format_value, significant, time_column
from harness.results.record import OpRow, Record
from harness.spec.claims import Quantity

#: Floats of a record that are facts of the case, not results.
FACTS = {"group_size", "accepted"}


def test_every_number_of_a_record_or_an_op_is_described() -> None:
    for kind in (Record, OpRow):
        numbers = {field.name for field in fields(kind) if str(field.type).startswith("float")} - FACTS
        assert numbers <= set(METRICS)


def test_every_measure_of_a_claim_is_described() -> None:
    assert set(Quantity.model_fields["measure"].annotation.__args__) <= set(METRICS)


@pytest.mark.parametrize(("suffix", "unit"), [("_ms", "ms"), ("_us", "µs"), ("_bytes", "bytes")])
def test_the_unit_in_a_name_is_the_unit_printed(suffix: str, unit: str) -> None:
    named = [metric for metric in METRICS.values() if metric.name.endswith(suffix)]
    assert named
    assert all(metric.unit == unit for metric in named)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.051653, "0.05165"), (1.49935, "1.499"), (15230.4, "15230"), (6.09821, "6.098"), (1.5, "1.500"), (0, "0"),
        (9.9996, "10.00"), (99996, "99996"), (-0.25, "-0.2500"), (1e-5, "0.00001000"),
    ],
)  # fmt: skip
def test_four_significant_digits_in_plain_decimals(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_printing_loses_less_than_half_a_digit(value: float) -> None:
    assert float(significant(value)) == pytest.approx(value, rel=0.5e-3)
    assert "e" not in significant(value)


def test_ratios_shares_and_counts() -> None:
    assert [format_value(ratio, "ratio") for ratio in (0.625, 1, 9.9994, 40.21)] == ["0.625", "1.000", "9.999", "40.2"]
    assert format_value(0.1234, "percent") == "12.3"
    assert format_value(1234567, "count") == "1,234,567"


def test_each_phase_has_its_own_time() -> None:
    assert (time_column("prefill"), time_column("decode")) == ("prefill_compute_ms", "step_ms")
    assert METRICS["prefill_compute_ms"].meaning.count("no time to first token")
