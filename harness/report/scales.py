"""Axes of a plot as plotly.js takes them: ranges and ticks with the values that were really asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.results.metrics import significant

_STEPS = (1, 2, 5)
_TIMES = ("µs", "ms", "s")
#: Labels stand at least this part of an axis apart.
_LEAST_GAP = 0.05


def readable_unit(unit: str, values: Sequence[float], *, log: bool) -> tuple[float, str]:
    """The unit in which times are easiest to read, and the factor that leads to it from `unit`.

    The top of a linear axis and the middle of a logarithmic one print as 1 to 1000; the top of a logarithmic one stays
    below 10000. Units of no time stay as they are.
    """
    if unit not in _TIMES or min(values) <= 0:
        return 1.0, unit
    top, at = max(values), _TIMES.index(unit)
    middle = math.sqrt(min(values) * top) if log else top
    steps = math.floor(math.log10(middle) / 3)
    if log and steps == 0 and top >= 10_000:
        steps = 1
    to = min(max(at + steps, 0), len(_TIMES) - 1)
    return 1000.0 ** (at - to), _TIMES[to]


def log2_axis(values: Sequence[float], title: str) -> dict[str, Any]:
    """A logarithmic axis with one tick for each value; every value is above 0.

    A tick too close to the one before it to have room for a label has none.
    """
    ticks = sorted(set(values))
    span = math.log10(ticks[-1] / ticks[0]) or 1.0
    pad = 0.06 * span
    labels, last = [], -math.inf
    for tick in ticks:
        has_room = math.log10(tick) - last >= _LEAST_GAP * span
        last = math.log10(tick) if has_room else last
        labels.append(plain(tick) if has_room else "")
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": ticks,
        "ticktext": labels,
        **({"tickangle": 0} if "" in labels else {}),
        "range": [math.log10(ticks[0]) - pad, math.log10(ticks[-1]) + pad],
    }


def linear_axis(values: Sequence[float], title: str) -> dict[str, Any]:
    """A linear axis from 0."""
    return {"type": "linear", "title": {"text": title}, "range": [0, 1.08 * max(values)], "tickformat": "~r"}


def category_axis(labels: Sequence[str], title: str) -> dict[str, Any]:
    """One place for each label, in the order given."""
    return {
        "type": "category",
        "title": {"text": title},
        "categoryorder": "array",
        "categoryarray": list(labels),
        "range": [-0.4, len(labels) - 0.6],
    }


def log_axis(values: Sequence[float], title: str) -> dict[str, Any]:
    """A logarithmic axis with ticks at 1, 2 and 5 times powers of ten, or at the powers alone where it is long.

    Spans a factor of 2 at least, so that a flat line looks flat.
    """
    low, high = min(values), max(values)
    if high < 2 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    pad = 0.05 * math.log10(high / low)
    bottom, top = math.log10(low) - pad, math.log10(high) + pad
    ticks = _log_ticks(10**bottom, 10**top)
    return {
        "type": "log",
        "title": {"text": title},
        "tickvals": ticks,
        "ticktext": [plain(tick) for tick in ticks],
        "range": [bottom, top],
    }


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = _STEPS if math.log10(high / low) < 2.7 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]


def plain(value: float) -> str:
    """A tick as people write it: 0.05, 1, 32768."""
    if float(value).is_integer():
        return f"{value:.0f}"
    text = significant(float(value), 6)
    return text.rstrip("0").rstrip(".")
