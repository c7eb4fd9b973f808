"""What each kind of claim computes from the values along its axis, and how it decides.

A reading is one number taken along the axis: a spread, a slope, a gain, a ratio. `readings` takes them from the values
of one group of rows (all coordinates but the axis fixed), `decide` turns the readings of a group into an outcome; every
reading has to support. With T the threshold and s the scatter allowed, both as shares:

flat_within        spread = max/min - 1. Scatter can only widen a spread, so one within T supports; beyond T + s it
                   contradicts; between them the rows cannot tell.
exponent           slope between neighbours, each uncertain by e = ln(1 + s) / ln(x2/x1). A distance from the expected
                   slope within tolerance - e supports, beyond tolerance + e contradicts.
gain_per_doubling  time(x) / time(2x), or rate(2x) / rate(x) where more is better. At least T: from T·(1 + s) on it
                   supports, below T/(1 + s) it contradicts. At most T: up to T/(1 + s) it supports, above T·(1 + s) it
                   contradicts.
ratio              the quantity at one value over that at another; bounds as above.
saturation         a doubling surely gains from (1 + T)·(1 + s) on and gains nothing below 1 + T; between them it is
                   open. The axis saturates at the first value from which on no doubling gains. Open doublings leave an
                   interval, and the claim has to hold, or fail, at both of its ends.
best_at            how many times worse each value is than the best one. The claimed values support when the best of
                   them leads all others by 1 + s, contradict when it trails one of them by 1 + s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from harness.analysis.gains import GainKind, SaturationKind
from harness.analysis.readings import (
    Amounts,
    Item,
    Outcome,
    Readings,
    Values,
    all_of,
    bound_text,
    chain_text,
    range_text,
    step_text,
    times_text,
    within_bound,
)
from harness.analysis.words import number, percent, symbol
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


class Kind(Protocol):
    """One kind of claim with its thresholds."""

    threshold: str
    """Readable, without the scatter."""
    unit: str
    """Unit of a reading; spreads are shares and print as %."""

    @property
    def only(self) -> tuple[Scalar, ...]:
        """The axis values it needs, all of the study's where empty."""
        ...

    def readings(self, values: Values) -> dict[Item, float]:
        """The numbers along the axis; empty where there are too few values."""
        ...

    def decide(self, readings: Readings) -> Outcome:
        """What the readings of one group say; there is at least one."""
        ...

    def label(self, item: Item) -> str:
        """What one reading is."""
        ...

    def what(self, readings: Readings) -> str:
        """What the readings are: `gain, G 8 → 16, 16 → 32`."""
        ...

    def key(self, groups: Sequence[Readings]) -> str:
        """The number to remember, of one group or of several: `1.67×, 1.39×`, `1.9 % to 4.0 %`."""
        ...

    def text(self, readings: Readings, amounts: Amounts) -> str:
        """The readings in words."""
        ...


def kind_of(claim: Claim) -> Kind:
    """Return what computes and decides `claim`."""
    if isinstance(claim, FlatWithin):
        return _Flat(claim)
    if isinstance(claim, Exponent):
        return _Exponent(claim)
    if isinstance(claim, GainPerDoubling):
        return GainKind(claim)
    if isinstance(claim, Saturation):
        return SaturationKind(claim)
    return _Best(claim) if isinstance(claim, BestAt) else _Ratio(claim)


class _Flat:
    unit = "%"
    only: tuple[Scalar, ...] = ()

    def __init__(self, claim: FlatWithin) -> None:
        self.axis, self.most, self.scatter = symbol(claim.axis), claim.at_most_pct / 100, claim.scatter_pct / 100
        self.threshold = f"spread over {self.axis} at most {claim.at_most_pct:g} %"

    def readings(self, values: Values) -> dict[Item, float]:
        return {(): max(values.values()) / min(values.values()) - 1} if len(values) > 1 else {}

    def decide(self, readings: Readings) -> Outcome:
        spread = readings[()]
        if spread <= self.most:
            return "supports"
        return "contradicts" if spread > self.most + self.scatter else "cannot tell"

    def label(self, _: Item) -> str:
        return f"spread over {self.axis}"

    def what(self, _: Readings) -> str:
        return self.label(())

    def key(self, groups: Sequence[Readings]) -> str:
        return range_text(groups, percent)

    def text(self, readings: Readings, amounts: Amounts) -> str:
        return f"spread over {self.axis} {percent(readings[()])}{chain_text(amounts)}"


class _Exponent:
    unit = ""
    only: tuple[Scalar, ...] = ()

    def __init__(self, claim: Exponent) -> None:
        self.axis, self.expect, self.tolerance = symbol(claim.axis), claim.expect, claim.tolerance
        self.scatter = claim.scatter_pct / 100
        self.threshold = f"exponent in {self.axis} {claim.expect:g} ± {claim.tolerance:g}"

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
        return f"exponent, {self.axis} {step_text(item)}"

    def what(self, readings: Readings) -> str:
        return f"exponent in {self.axis}, {', '.join(step_text(item) for item in readings)}"

    def key(self, groups: Sequence[Readings]) -> str:
        return range_text(groups, "{:.2f}".format)

    def text(self, readings: Readings, amounts: Amounts) -> str:
        slopes = ", ".join(f"{value:.2f} from {item[0]} to {item[1]}" for item, value in readings.items())
        return f"exponent in {self.axis} {slopes}{chain_text(amounts)}"


class _Best:
    unit = "×"
    only: tuple[Scalar, ...] = ()

    def __init__(self, claim: BestAt) -> None:
        self.axis, self.claimed, self.scatter = symbol(claim.axis), claim.values, claim.scatter_pct / 100
        self.threshold = f"best at {self.axis} {' or '.join(map(str, claim.values))}"
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
        return f"times worse than the best, {self.axis} {item[0]}"

    def what(self, readings: Readings) -> str:
        return f"times worse than the best {self.axis} of {', '.join(str(x) for (x,) in readings)}"

    def key(self, groups: Sequence[Readings]) -> str:
        ranked = [sorted(readings.items(), key=lambda reading: reading[1]) for readings in groups]
        best = " or ".join(dict.fromkeys(str(x) for ((x,), _), *_ in ranked))
        return f"{best} best, next {range_text([dict([second]) for _, second, *_ in ranked], times_text)}"

    def text(self, readings: Readings, amounts: Amounts) -> str:
        ((best,), _), *rest = sorted(readings.items(), key=lambda reading: reading[1])
        amount = f" ({amounts[best]})" if amounts else ""
        behind = ", ".join(f"{x} is {number(worse)}× worse" for (x,), worse in rest)
        return f"best at {self.axis} {best}{amount}; {behind}"


class _Ratio:
    unit = "×"

    def __init__(self, claim: Ratio) -> None:
        self.axis, self.scatter = symbol(claim.axis), claim.scatter_pct / 100
        self.only: tuple[Scalar, ...] = (claim.value, claim.over)
        self.at_least, self.at_most = claim.at_least, claim.at_most
        self.threshold = f"{self.label(self.only)} {bound_text(claim.at_least, claim.at_most)}"

    def readings(self, values: Values) -> dict[Item, float]:
        value, over = self.only
        return {self.only: values[value] / values[over]} if value in values and over in values else {}

    def decide(self, readings: Readings) -> Outcome:
        return within_bound(readings[self.only], self.at_least, self.at_most, self.scatter)

    def label(self, item: Item) -> str:
        return f"{self.axis} {item[0]} over {item[1]}"

    def what(self, _: Readings) -> str:
        return self.label(self.only)

    def key(self, groups: Sequence[Readings]) -> str:
        return range_text(groups, times_text)

    def text(self, readings: Readings, amounts: Amounts) -> str:
        against = f" ({amounts[self.only[0]]} against {amounts[self.only[1]]})" if amounts else ""
        return f"{self.label(self.only)} is {number(readings[self.only])}×{against}"
