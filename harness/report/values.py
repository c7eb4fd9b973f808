"""Values of records as reports print them; pandas has None, NaN and NaT for a null, all of them are blank here."""

from __future__ import annotations

from numbers import Real
from typing import Any

from harness.report.scales import plain
from harness.results.metrics import significant


def is_null(value: Any) -> bool:
    """Whether there is no value."""
    return value is None or bool(value != value)  # noqa: PLR0124  # NaN is not itself


def is_number(value: Any) -> bool:
    """Whether a coordinate is a number; a truth value is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def text(value: Any) -> str:
    """A coordinate or a text as people write it; blank for a null."""
    if is_null(value):
        return ""
    return plain(float(value)) if is_number(value) else str(value)


def number(value: Any) -> str:
    """A number with four significant digits; blank for a null."""
    return "" if is_null(value) else significant(float(value))
