"""What each kind of claim computes from the values along its axis, and how it decides.

A `Reading` is one number taken along the axis: a spread, a slope, a gain, a ratio. `readings` takes them from the values of
one group of rows (all coordinates but the axis fixed), `decide` turns the readings of a group into an outcome. With T the
threshold and s the scatter allowed:

    flat_within        spread = max/min - 1. Scatter can only widen a spread, so one within T supports; beyond T + s it
                       contradicts; between them the rows cannot tell.
    exponent           slope between neighbours, each uncertain by e = ln(1 + s) / ln(x2/x1). Distance from the expected
                       slope within tolerance - e supports, beyond tolerance + e contradicts.
    gain_per_doubling  time(x) / time(2x). At least T: from T·(1 + s) on it supports, below T/(1 + s) it contradicts. At
                       most T: up to T/(1 + s) it supports, above T·(1 + s) it contradicts.
    ratio              the quantity at one value over that at another; bounds as above.
    saturation         a doubling surely gains from (1 + T)·(1 + s) on, gains nothing below 1 + T, else it is unclear. The
                       axis saturates at the first value from which on no doubling gains; unclear doublings leave an
                       interval, and the claim is judged on both of its ends.
    best_at            how many times worse each value is than the best one. The claimed values support when the best of
                       them leads all others by 1 + s, contradict when it trails one by 1 + s.

For a measure of which more is better (TFLOP/s) a gain is rate(2x) / rate(x). Every reading of a group has to support.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Literal, Protocol

from harness.analysis.words import number, percent
from harness.spec.axes import Scalar
from harness.spec.claims import (
    HIGHER_IS_BETTER,
    BestAt,
    Claim,
    Exponent,
    FlatWithin,
    GainPerDoubling,
    Ratio,
    Saturation,
)

Outcome = Literal["supports", "contradicts", "cannot tell"]

#: Where on the axis a reading was taken: a pair, one value, or () for the whole axis.
Item = tuple[Scalar, ...]
Values = Mapping[Scalar, float]
Readings = Mapping[Item, float]


class Kind(Protocol):
    """One kind of claim with its thresholds."""

    threshold: str
    """Readable, without the scatter."""
    unit: str
    """Unit of a reading; spreads are shares."""

    def readings(self, values: Values) -> dict[Item, float]:
        """The numbers along the axis; empty where there are too few values."""
        ...

    def decide(self, readings: Readings) -> Outcome:
        """What the readings of one group say; there is at least one."""
        ...

    def label(self, item: Item) -> str:
        """What one reading is."""
        ...

    def text(self, readings: Readings) -> str:
        """The readings in words."""
        ...


def kind_of(claim: Claim) -> Kind:
    """Return what computes and decides `claim`."""
    return _KINDS[claim.kind](claim)  # type: ignore[arg-type]


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


class _Flat:
    unit = "%"

    def __init__(self, claim: FlatWithin) -> None:
        self.axis, self.most, self.scatter = claim.axis, claim.at_most_pct / 100, claim.scatter_pct / 100
        self.threshold = f"spread over {claim.axis} at most {claim.at_most_pct:g} %"

    def readings(self, values: Values) -> dict[Item, float]:
        return {(): max(values.values()) / min(values.values()) - 1} if len(values) > 1 else {}

    def decide(self, readings: Readings) -> Outcome:
        spread = readings[()]
        if spread <= self.most:
            return "supports"
        return "contradicts" if spread > self.most + self.scatter else "cannot tell"

    def label(self, item: Item) -> str:  # noqa: ARG002
        return f"spread over {self.axis}"

    def text(self, readings: Readings) -> str:
        return f"spread {percent(readings[()])}"


class _Exponent:
    unit = ""

    def __init__(self, claim: Exponent) -> None:
        self.axis, self.expect, self.tolerance = claim.axis, claim.expect, claim.tolerance
        self.scatter = claim.scatter_pct / 100
        self.threshold = f"exponent in {claim.axis} {claim.expect:g} ± {claim.tolerance:g}"

    def readings(self, values: Values) -> dict[Item, float]:
        return {
            (low, high): math.log(values[high] / values[low]) / math.log(float(high) / float(low))
            for low, high in pairwise(values)
        }

    def decide(self, readings: Readings) -> Outcome:
        return all_of(self._decide(float(high) / float(low), slope) for (low, high), slope in readings.items())

    def _decide(self, step: float, slope: float) -> Outcome:
        uncertain, distance = math.log(1 + self.scatter) / math.log(step), abs(slope - self.expect)
        if distance <= self.tolerance - uncertain:
            return "supports"
        return "contradicts" if distance > self.tolerance + uncertain else "cannot tell"

    def label(self, item: Item) -> str:
        return f"exponent {_step(item)}"

    def text(self, readings: Readings) -> str:
        return "exponent " + ", ".join(f"{value:.2f} ({_step(item)})" for item, value in readings.items())


class _Gain:
    unit = "×"

    def __init__(self, claim: GainPerDoubling | Saturation) -> None:
        self.claim, self.scatter = claim, claim.scatter_pct / 100
        self.threshold = f"gain per doubling of {claim.axis} {_bound_text(claim)}"
        self.higher = claim.quantity.measure in HIGHER_IS_BETTER

    def readings(self, values: Values) -> dict[Item, float]:
        doubled = {x: 2 * x for x in values if not isinstance(x, str) and 2 * x in values}
        return {
            (x, twice): values[twice] / values[x] if self.higher else values[x] / values[twice]
            for x, twice in doubled.items()
        }

    def decide(self, readings: Readings) -> Outcome:
        bounds = self.claim.at_least, self.claim.at_most
        return all_of(within_bound(gain, *bounds, self.scatter) for gain in readings.values())

    def label(self, item: Item) -> str:
        return f"gain {_step(item)}"

    def text(self, readings: Readings) -> str:
        return "gain " + ", ".join(f"{_step(item)} {number(gain)}×" for item, gain in readings.items())


class _Saturation(_Gain):
    def __init__(self, claim: Saturation) -> None:
        super().__init__(claim)
        self.least_gain = 1 + claim.gain_below_pct / 100
        bound = f"at {claim.axis} {claim.at_most or claim.at_least:g} or {'below' if claim.at_most else 'above'}"
        self.threshold = f"no doubling gains {claim.gain_below_pct:g} % any more: {bound}"

    def interval(self, readings: Readings) -> tuple[float, float]:
        """The axis value at which gains end: earliest and latest that the rows allow."""
        sure = [high for (_, high), gain in readings.items() if gain >= self.least_gain * (1 + self.scatter)]
        maybe = [high for (_, high), gain in readings.items() if gain >= self.least_gain]
        first = min(low for low, _ in readings)
        return float(max(sure, default=first)), float(max(maybe, default=first))

    def decide(self, readings: Readings) -> Outcome:
        earliest, latest = self.interval(readings)
        if self.claim.at_most is not None:
            holds, fails = latest <= self.claim.at_most, earliest > self.claim.at_most
        else:
            assert self.claim.at_least is not None
            holds, fails = earliest >= self.claim.at_least, latest < self.claim.at_least
        return "supports" if holds else "contradicts" if fails else "cannot tell"

    def text(self, readings: Readings) -> str:
        earliest, latest = self.interval(readings)
        where = f"{earliest:g}" if earliest == latest else f"{earliest:g} to {latest:g}"
        last = max(high for _, high in readings)
        ends = f"still gains at {self.claim.axis} {last}" if earliest == last else f"gains end at {self.claim.axis} {where}"
        return f"{ends} ({super().text(readings)})"


class _Best:
    unit = "×"

    def __init__(self, claim: BestAt) -> None:
        self.axis, self.claimed, self.scatter = claim.axis, claim.values, claim.scatter_pct / 100
        self.threshold = f"best at {claim.axis} {' or '.join(map(str, claim.values))}"
        self.higher = claim.quantity.measure in HIGHER_IS_BETTER

    def readings(self, values: Values) -> dict[Item, float]:
        claimed = [label for label in values if label in self.claimed]
        if not claimed or len(claimed) == len(values):
            return {}
        best = max(values.values()) if self.higher else min(values.values())
        return {(x,): best / value if self.higher else value / best for x, value in values.items()}

    def decide(self, readings: Readings) -> Outcome:
        ours = min(worse for (x,), worse in readings.items() if x in self.claimed)
        others = min(worse for (x,), worse in readings.items() if x not in self.claimed)
        if others >= ours * (1 + self.scatter):
            return "supports"
        return "contradicts" if ours >= others * (1 + self.scatter) else "cannot tell"

    def label(self, item: Item) -> str:
        return f"{self.axis} {item[0]}, times worse than the best"

    def text(self, readings: Readings) -> str:
        ranked = sorted(readings.items(), key=lambda reading: reading[1])
        rest = ", ".join(f"{x} {number(worse)}× worse" for (x,), worse in ranked[1:])
        return f"best at {self.axis} {ranked[0][0][0]}; {rest}"


class _Ratio:
    unit = "×"

    def __init__(self, claim: Ratio) -> None:
        self.claim, self.scatter = claim, claim.scatter_pct / 100
        self.threshold = f"{claim.axis} {claim.value} over {claim.over} {_bound_text(claim)}"

    def readings(self, values: Values) -> dict[Item, float]:
        pair = (self.claim.value, self.claim.over)
        return {pair: values[pair[0]] / values[pair[1]]} if all(x in values for x in pair) else {}

    def decide(self, readings: Readings) -> Outcome:
        (ratio,) = readings.values()
        return within_bound(ratio, self.claim.at_least, self.claim.at_most, self.scatter)

    def label(self, item: Item) -> str:
        return f"{self.claim.axis} {item[0]} over {item[1]}"

    def text(self, readings: Readings) -> str:
        ((item, ratio),) = readings.items()
        return f"{self.label(item)} is {number(ratio)}"


def _step(item: Item) -> str:
    return f"{item[0]} → {item[1]}"


def _bound_text(claim: GainPerDoubling | Saturation | Ratio) -> str:
    return f"at least {claim.at_least:g}" if claim.at_least is not None else f"at most {claim.at_most:g}"


_KINDS = {
    "flat_within": _Flat,
    "exponent": _Exponent,
    "gain_per_doubling": _Gain,
    "saturation": _Saturation,
    "best_at": _Best,
    "ratio": _Ratio,
}
