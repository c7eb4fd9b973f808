"""Pairs: values along an axis compared inside one process and, where their samples were taken in turn, round by round.

What disturbs a machine for a while meets all arms of a process alike. In every round each arm's time is taken relative
to the mean of the arms, log t - mean log t; the median of that over the rounds is where the arm lies, and the
difference of two arms is free of what both met. What differs from process to process (placement, clocks, allocation)
is the same for both arms of one process and cancels too; what is left is how well replicates agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from harness.analysis.intervals import Estimate, estimate
from harness.spec.axes import Scalar

if TYPE_CHECKING:
    import pandas as pd

Place = tuple[tuple[str, Any], ...]
Key = TypeVar("Key", bound=Hashable)

#: Fewer common rounds than this are no basis for a median.
LEAST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples of one row: device times in ms and the round of each."""

    times_ms: tuple[float, ...]
    rounds: tuple[int, ...]

    def by_round(self) -> dict[int, float]:
        """Round → logarithm of the time, the median where a round has several."""
        found: dict[int, list[float]] = {}
        for number, time_ms in zip(self.rounds, self.times_ms, strict=True):
            found.setdefault(number, []).append(math.log(time_ms))
        return {number: statistics.median(logs) for number, logs in found.items()}


def samples_of(samples: pd.DataFrame | None) -> dict[str, Timed]:
    """Attempt → its samples."""
    if samples is None:
        return {}
    columns = samples[["attempt_id", "times_ms", "rounds"]].itertuples(index=False, name=None)
    return {
        attempt: Timed(tuple(map(float, times)), tuple(map(int, rounds)))
        for attempt, times, rounds in columns
        if len(times) == len(rounds) and len(times) and min(times) > 0
    }


def round_corrections(arms: Mapping[Key, Timed]) -> dict[Key, float]:
    """What to add to the logarithm of each arm's median time so that arms of one process compare round by round.

    The corrections of the arms add up to 0. Empty where the arms have fewer than `LEAST_ROUNDS` rounds in common.
    """
    logs = {arm: timed.by_round() for arm, timed in arms.items()}
    common = sorted(set.intersection(*(set(one) for one in logs.values()))) if logs else []
    if len(arms) < 2 or len(common) < LEAST_ROUNDS:
        return {}
    level = {number: statistics.fmean(one[number] for one in logs.values()) for number in common}
    at = {arm: statistics.median(one[number] - level[number] for number in common) for arm, one in logs.items()}
    medians = {arm: math.log(statistics.median(timed.times_ms)) for arm, timed in arms.items()}
    middle = statistics.fmean(medians.values()) - statistics.fmean(at.values())
    return {arm: at[arm] - medians[arm] + middle for arm in arms}


@dataclass(frozen=True, slots=True)
class Blocks:
    """Rows that differ only in the axis, or also in coordinates over which a median is taken, replicate by replicate.

    `logs` has one entry for each replicate that has every row: place → axis value → logarithm of the quantity.
    """

    logs: tuple[Mapping[Place, Mapping[Scalar, float]], ...]

    @property
    def count(self) -> int:
        return len(self.logs)

    def labels(self) -> list[Scalar]:
        """Axis values, in order of appearance."""
        return list(dict.fromkeys(label for places in self.logs[:1] for values in places.values() for label in values))

    def contrast(self, over: Scalar, under: Scalar) -> Estimate:
        """Logarithm of the quantity at `over` over that at `under`, the median over the places of a replicate."""
        return estimate([_contrast(places.values(), over, under) for places in self.logs])

    def centers(self) -> dict[Place, dict[Scalar, float]]:
        """Place → axis value → the quantity: the geometric mean over replicates."""
        places = self.logs[0] if self.logs else {}
        return {
            place: {label: math.exp(statistics.fmean(one[place][label] for one in self.logs)) for label in values}
            for place, values in places.items()
        }


def _contrast(places: Iterable[Mapping[Scalar, float]], over: Scalar, under: Scalar) -> float:
    return statistics.median(values[over] - values[under] for values in places if over in values and under in values)


def complete(found: Sequence[Mapping[Place, Mapping[Scalar, float]]]) -> Blocks:
    """The replicates that have every row that any of them has."""
    whole = {(place, label) for places in found for place, values in places.items() for label in values}

    def has_all(places: Mapping[Place, Mapping[Scalar, float]]) -> bool:
        return all(label in places.get(place, {}) for place, label in whole)

    return Blocks(tuple(places for places in found if has_all(places)))
