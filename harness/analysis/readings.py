"""Readings: the numbers taken along an axis, and what a bound says about one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from harness.analysis.words import number
from harness.spec.axes import Scalar

Outcome = Literal["supports", "contradicts", "cannot tell"]

#: Where on the axis a reading was taken: a pair, one value, or () for the whole axis.
Item = tuple[Scalar, ...]
Values = Mapping[Scalar, float]
Readings = Mapping[Item, float]
#: Axis value → its quantity with unit; empty where readings are medians.
Amounts = Mapping[Scalar, str]


def all_of(outcomes: Iterable[Outcome]) -> Outcome:
    """One contradiction contradicts; support needs every part to support."""
    found = set(outcomes)
    if "contradicts" in found:
        return "contradicts"
    return "supports" if found == {"supports"} else "cannot tell"


def within_bound(value: float, at_least: float | None, at_most: float | None, scatter: float) -> Outcome:
    """Compare a factor with its bound, leaving out what lies within the scatter of it."""
    if at_most is not None:
        return within_bound(1 / value, 1 / at_most, None, scatter)
    assert at_least is not None
    if value >= at_least * (1 + scatter):
        return "supports"
    return "contradicts" if value < at_least / (1 + scatter) else "cannot tell"


def bound_text(at_least: float | None, at_most: float | None) -> str:
    """`at least 1.6`."""
    return f"at least {at_least:g}" if at_least is not None else f"at most {at_most:g}"


def step_text(item: Item) -> str:
    """`8 → 16`."""
    return f"{item[0]} → {item[1]}"


def chain_text(amounts: Amounts) -> str:
    """` (86.8 µs at 8, 52.0 µs at 16)`, the values behind readings; nothing where there are none."""
    return f" ({', '.join(f'{amount} at {label}' for label, amount in amounts.items())})" if amounts else ""


def range_text(groups: Sequence[Readings], say: Callable[[float], str]) -> str:
    """The least and the most of all readings, `1.9 % to 4.0 %`; one text where they print the same."""
    values = [value for readings in groups for value in readings.values()]
    least, most = say(min(values)), say(max(values))
    return least if least == most else f"{least} to {most}"


def times_text(factor: float) -> str:
    """`1.67×`."""
    return f"{number(factor)}×"
