"""A series while it is judged: its environments, the levels in each, and the limit of what counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.analysis.history.anchor import Walk, follow
from harness.analysis.history.levels import Levels, Segment, find_levels, pooled_noise, widening
from harness.analysis.history.policy import Policy
from harness.analysis.history.series import Environment, Series, settle_environments

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A difference of computed numbers above this, in %, is a changed prediction.
EXACT_PCT = 0.1


@dataclass(frozen=True, slots=True)
class Pin:
    """A level that a named baseline holds a series against."""

    value: float
    day: int
    name: str
    environment: Environment = ()
    """Where it was measured; a series in another environment is not held against it."""

    def clashes(self, environment: Environment) -> tuple[tuple[str, str, str], ...]:
        """What is different there: column, here, there."""
        mine = dict(self.environment)
        return tuple((name, mine[name], value) for name, value in environment if mine.get(name, value) != value)


@dataclass(frozen=True, slots=True)
class Part:
    """The nights of one environment: which entries of the series they are, their levels, the anchored level."""

    entries: NDArray[np.int64]
    levels: Levels
    own: Walk
    """The anchored level through them."""
    walk: Walk
    """The same, or that of a pinned level."""

    def last_level_before(self, entry: int) -> float:
        """Level of its last segment that starts before an entry of the series."""
        starts = [one for one in self.levels.segments if self.entries[one.start] < entry]
        return starts[-1].level


@dataclass(frozen=True, slots=True)
class Judging:
    """One series while it is judged."""

    series: Series
    parts: tuple[Part, ...]
    policy: Policy
    as_of: int
    noise_pct: float | None
    limit_pct: float

    @property
    def current(self) -> Part:
        """The environment of the last night."""
        return max(self.parts, key=lambda part: part.entries[-1])

    def value(self, log: float) -> float:
        """The value of which that is the logarithm."""
        return math.exp(self.series.sign * log)


def judging_of(series: Series, policy: Policy, as_of: int) -> Judging:
    """Take a series apart. Raises MissingExtra where ruptures is not installed."""
    import numpy as np

    logs = series.sign * np.log(series.values)
    groups: dict[object, list[int]] = {}
    for entry, environment in enumerate(settle_environments(series.environments)):
        groups.setdefault(environment, []).append(entry)
    chosen = [np.array(entries) for entries in groups.values()]
    if series.is_exact:
        found = [_exact_levels(logs[entries]) for entries in chosen]
        noise_pct, limit_pct = 0.0, EXACT_PCT
    else:
        found = [find_levels(logs[entries]) for entries in chosen]
        noise, freedom = pooled_noise(found)
        noise_pct = 100 * math.expm1(noise)
        limit_pct = max(policy.threshold_pct, policy.noise * widening(policy.noise, freedom) * noise_pct)
    walks = [follow(levels, limit_pct, series.sign, policy) for levels in found]
    parts = tuple(Part(*one) for one in zip(chosen, found, walks, walks, strict=True))
    return Judging(series, parts, policy, as_of, noise_pct, limit_pct)


def _exact_levels(logs: NDArray[np.float64]) -> Levels:
    """Levels of computed numbers: runs of the same number."""
    import numpy as np

    apart = np.abs(np.diff(logs)) > math.log1p(EXACT_PCT / 100)
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(logs)]
    segments = tuple(Segment(start, end, float(logs[start])) for start, end in pairwise(bounds))
    return Levels(segments, logs, np.zeros(len(logs), bool), logs, np.zeros(len(logs)))


def pinned_to(judging: Judging, pin: Pin) -> Judging:
    """The same with the current environment held against a pinned level, from the night after it was pinned."""
    current, series = judging.current, judging.series
    days = series.days[current.entries]
    start = sum(int(days[segment.end - 1]) <= pin.day for segment in current.levels.segments)
    level = series.sign * math.log(pin.value)
    walk = follow(current.levels, judging.limit_pct, series.sign, judging.policy, level, start)
    parts = tuple(replace(one, walk=walk) if one is current else one for one in judging.parts)
    return replace(judging, parts=parts)
