"""Gains: what each doubling of an axis buys, and where doublings stop buying anything (`harness.analysis.kinds`)."""

from __future__ import annotations

from collections.abc import Sequence

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
from harness.analysis.words import number, symbol
from harness.spec.axes import Scalar
from harness.spec.claims import HIGHER_IS_BETTER, GainPerDoubling, Saturation


class GainKind:
    """time(x) / time(2x), or rate(2x) / rate(x) where more is better."""

    unit = "×"
    only: tuple[Scalar, ...] = ()

    def __init__(self, claim: GainPerDoubling | Saturation) -> None:
        self.axis, self.scatter = symbol(claim.axis), claim.scatter_pct / 100
        self.at_least, self.at_most = claim.at_least, claim.at_most
        self.threshold = f"gain per doubling of {self.axis} {bound_text(claim.at_least, claim.at_most)}"
        self.higher = claim.quantity.measure in HIGHER_IS_BETTER

    def readings(self, values: Values) -> dict[Item, float]:
        doubled = {x: 2 * x for x in values if not isinstance(x, str) and 2 * x in values}
        return {
            (x, twice): values[twice] / values[x] if self.higher else values[x] / values[twice]
            for x, twice in doubled.items()
        }

    def decide(self, readings: Readings) -> Outcome:
        return all_of(within_bound(gain, self.at_least, self.at_most, self.scatter) for gain in readings.values())

    def label(self, item: Item) -> str:
        return f"gain, {self.axis} {step_text(item)}"

    def what(self, readings: Readings) -> str:
        return f"gain, {self.axis} {', '.join(step_text(item) for item in readings)}"

    def key(self, groups: Sequence[Readings]) -> str:
        if len(groups) > 1:
            return range_text(groups, times_text)
        return ", ".join(times_text(gain) for gain in groups[0].values())

    def text(self, readings: Readings, amounts: Amounts) -> str:
        gains = ", ".join(f"{step_text(item)} {number(gain)}×" for item, gain in readings.items())
        return f"gain per doubling of {self.axis} {gains}{chain_text(amounts)}"


class SaturationKind(GainKind):
    """Where gains end."""

    def __init__(self, claim: Saturation) -> None:
        super().__init__(claim)
        self.least_gain = 1 + claim.gain_below_pct / 100
        bound = f"{claim.at_most:g} or before" if claim.at_most else f"{claim.at_least:g} or after"
        self.threshold = f"doublings stop gaining {claim.gain_below_pct:g} % at {self.axis} {bound}"

    def interval(self, readings: Readings) -> tuple[float, float]:
        """The axis value at which gains end: earliest and latest that the rows allow."""
        sure = [float(high) for (_, high), gain in readings.items() if gain >= self.least_gain * (1 + self.scatter)]
        open_too = [float(high) for (_, high), gain in readings.items() if gain >= self.least_gain]
        first = min(float(low) for low, _ in readings)
        return max(sure, default=first), max(open_too, default=first)

    def decide(self, readings: Readings) -> Outcome:
        earliest, latest = self.interval(readings)
        if self.at_most is not None:
            holds, fails = latest <= self.at_most, earliest > self.at_most
        else:
            assert self.at_least is not None
            holds, fails = earliest >= self.at_least, latest < self.at_least
        return "supports" if holds else "contradicts" if fails else "cannot tell"

    def ends(self, readings: Readings) -> str:
        """Where gains end."""
        earliest, latest = self.interval(readings)
        if earliest == max(float(high) for _, high in readings):
            return f"gains up to {self.axis} {earliest:g}, the last one looked at"
        where = f"{earliest:g}" if earliest == latest else f"between {earliest:g} and {latest:g}"
        return f"gains end at {self.axis} {where}"

    def what(self, readings: Readings) -> str:
        return f"gain per doubling, {self.axis} {', '.join(step_text(item) for item in readings)}"

    def key(self, groups: Sequence[Readings]) -> str:
        return "; ".join(dict.fromkeys(self.ends(readings).partition(",")[0] for readings in groups))

    def text(self, readings: Readings, amounts: Amounts) -> str:
        return f"{self.ends(readings)}: {super().text(readings, amounts)}"
