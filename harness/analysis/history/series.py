"""One series: a value for each night and environment, and the nights on which it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from typing import TYPE_CHECKING

from harness.results.metrics import Direction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

#: What was found in place: column and value, sorted.
Environment = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Series:
    """A question, who answered, and a metric, over nights.

    `days`, `values`, `environments`, `commits` and `counts` have one entry for each night and environment with a value,
    in order of time.
    """

    key: str
    """JSON of everything that makes it this series."""
    shown: tuple[tuple[str, str], ...]
    """What a reader knows it by: name and words."""
    metric: str
    unit: str
    direction: Direction
    provenance: str
    days: Ints
    """Days since 1970-01-01, UTC."""
    values: Floats
    """Median of the samples, in `unit`."""
    counts: Ints
    """Samples of the night: rows with a value, of all runs of it."""
    environments: tuple[Environment, ...]
    commits: tuple[str | None, ...]
    failed_days: Ints
    """Nights on which rows of it failed."""
    failures: tuple[str, ...] = ()
    """Status and reason of each."""
    label: str = ""
    """What of `shown` tells it from the others of its history."""
    rows: Ints | None = field(default=None, compare=False)
    """First row of each night in the table of observations."""

    @property
    def is_exact(self) -> bool:
        """Whether its numbers have no noise: they are computed."""
        return self.provenance in {"composed", "modelled"}

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return -1 if self.direction == "lower" else 1

    @property
    def identity(self) -> Mapping[str, str]:
        """What was asked, by name."""
        return {name: value for name, value in json.loads(self.key) if name != "metric"}

    @property
    def last_day(self) -> int | None:
        """Last night with a value."""
        return int(self.days[-1]) if len(self.days) else None


def series_key(identity: tuple[tuple[str, str], ...], metric: str) -> str:
    """The key of a series: JSON, the same for the same question."""
    return json.dumps([*identity, ("metric", metric)], separators=(",", ":"), ensure_ascii=False)


def settle_environments(found: tuple[Environment, ...]) -> tuple[Environment, ...]:
    """The same environments where one that says less than the one before it is that one.

    A row that does not name its driver ran on the driver of the night before unless something else says otherwise.
    """
    runs = [(one, len(list(group))) for one, group in groupby(found)]
    settled: list[Environment] = []
    for environment, _ in runs:
        before = dict(settled[-1]) if settled else {}
        now = dict(environment)
        clashes = any(before[name] != now[name] for name in before.keys() & now.keys())
        settled.append(environment if clashes or not settled else tuple(sorted({**before, **now}.items())))
    # What a later night adds was true of the nights before it.
    for index in range(len(settled) - 2, -1, -1):
        after = dict(settled[index + 1])
        if all(after.get(name) == value for name, value in settled[index]):
            settled[index] = settled[index + 1]
    return tuple(chain.from_iterable(repeat(one, count) for one, (_, count) in zip(settled, runs, strict=True)))


def changes_between(before: Environment, after: Environment) -> tuple[tuple[str, str, str], ...]:
    """What differs: column, value before, value after."""
    old, new = dict(before), dict(after)
    return tuple((name, old.get(name, "unknown"), value) for name, value in new.items() if old.get(name) != value)
