"""Beside: what was measured next to what the tables and the roofline give for the same case.

The same case is one `case_id` at one level (and the same ops at level `op`). This is the one place where numbers of
different provenance meet, each under its own name.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.intervals import Interval
from harness.analysis.replicates import Cases
from harness.results.metrics import time_column

if TYPE_CHECKING:
    import pandas as pd

_Key = tuple[str, str, str]
_Row = Mapping[str, Any]
_Op = tuple[str, str]
#: System, phase and category → of each case measured µs, composed µs and its share of the measured ones.
_Times = dict[tuple[str, str, str], list[tuple[float, float, float]]]


@dataclass(frozen=True, slots=True)
class Beside:
    """One case that was measured and priced."""

    case_id: str
    level: str
    system: str
    phase: str
    variant: str
    coordinates: str
    """JSON object, as in the record."""
    series: str
    answered_with: str
    """Versions of what ran it."""
    priced_with: str
    """Versions of the tables; of the roofline where no tables priced it."""
    measured_ms: float
    """Median over replicates."""
    measured_low_ms: float | None
    """99 % interval over replicates; null for one replicate."""
    measured_high_ms: float | None
    replicates: int
    flags: tuple[str, ...]
    composed_ms: float | None
    roofline_ms: float | None
    attempt_id: str
    priced_attempt_id: str

    @property
    def error_pct(self) -> float | None:
        """How far the composed time lies above the measured one, in % of that; below it where negative."""
        return None if self.composed_ms is None else 100 * (self.composed_ms / self.measured_ms - 1)

    @property
    def interval(self) -> Interval:
        """Of the measured time."""
        if self.measured_low_ms is None or self.measured_high_ms is None:
            return Interval(float("nan"), float("nan"), self.replicates)
        return Interval(self.measured_low_ms, self.measured_high_ms, self.replicates)


@dataclass(frozen=True, slots=True)
class CategoryError:
    """How far composed times of one category of ops lie from measured ones, over all cases."""

    system: str
    phase: str
    category: str
    cases: int
    median_pct: float
    """Median of composed / measured - 1, in %."""
    most_pct: float
    """The one farthest from 0."""
    measured_share_pct: float
    """Median share of the category in the measured time of the ops compared, in %."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything measured that was priced too."""

    cases: tuple[Beside, ...]
    categories: tuple[CategoryError, ...]


def beside(
    measured: Sequence[tuple[Cases, Mapping[str, Interval]]], records: pd.DataFrame, ops: pd.DataFrame
) -> Comparison:
    """Compare measured cases, with the intervals of their times by attempt, with the priced rows of the same cases.

    `records` and `ops` are those of all runs. A case that tables of several versions priced is compared with each.
    """
    priced = _priced(records)
    ops = ops[ops["attempt_id"].isin({one["attempt_id"] for rows in priced.values() for one in rows})]
    by_attempt = _ops_by_attempt([ops, *(cases.ops for cases, _ in measured)])
    found: list[Beside] = []
    times: _Times = {}
    for cases, intervals in measured:
        for row in cases.records[cases.records["status"] == "ok"].to_dict("records"):
            for one in _of_case(row, intervals.get(row["attempt_id"]), priced.get(_key(row), [])):
                found.append(one)
                if one.composed_ms is not None:
                    _add_categories(times, one, by_attempt)
    return Comparison(tuple(found), tuple(_errors(times)))


def _key(row: _Row) -> _Key:
    ops = row["level_ops"]
    return row["case_id"], row["level"], ops if isinstance(ops, str) else ""


def _priced(records: pd.DataFrame) -> dict[_Key, list[_Row]]:
    """Priced rows of every case, each version of what priced it once."""
    rows = records[records["provenance"].isin(["composed", "modelled"]) & (records["status"] == "ok")]
    found: dict[_Key, dict[tuple[str, str], _Row]] = {}
    for row in rows.to_dict("records"):
        found.setdefault(_key(row), {}).setdefault((row["provenance"], row["answered_with"]), row)
    return {key: list(versions.values()) for key, versions in found.items()}


def _of_case(row: _Row, interval: Interval | None, priced: Sequence[_Row]) -> Iterator[Beside]:
    time = time_column(row["phase"])
    modelled = [one for one in priced if one["provenance"] == "modelled"]
    for one in [one for one in priced if one["provenance"] == "composed"] or modelled[:1]:
        composed = one["provenance"] == "composed"
        limit = one["roofline_ms"] if composed else one[time]
        known = interval is not None and interval.is_known
        yield Beside(
            **{name: row[name] for name in ("case_id", "level", "system", "phase", "variant", "coordinates", "series")},
            answered_with=row["answered_with"],
            priced_with=one["answered_with"],
            measured_ms=float(row[time]),
            measured_low_ms=interval.low if known and interval else None,
            measured_high_ms=interval.high if known and interval else None,
            replicates=interval.replicates if interval else 1,
            flags=tuple(row["flags"]),
            composed_ms=float(one[time]) if composed else None,
            roofline_ms=float(limit) if limit == limit and limit is not None else None,  # noqa: PLR0124  # NaN
            attempt_id=row["attempt_id"],
            priced_attempt_id=one["attempt_id"],
        )


def _add_categories(times: _Times, one: Beside, ops: Mapping[str, Mapping[_Op, float]]) -> None:
    """Add measured and composed µs of each category, and its share; ops that have a time on both sides only."""
    here, there = ops.get(one.attempt_id, {}), ops.get(one.priced_attempt_id, {})
    both = [key for key in here if key in there]
    whole = sum(here[key] for key in both)
    sums: dict[str, tuple[float, float]] = {}
    for key in both:
        ours, theirs = sums.get(key[1], (0.0, 0.0))
        sums[key[1]] = (ours + here[key], theirs + there[key])
    for category, (ours, theirs) in sums.items():
        if ours > 0:
            times.setdefault((one.system, one.phase, category), []).append((ours, theirs, ours / whole))


def _ops_by_attempt(tables: Sequence[pd.DataFrame]) -> dict[str, dict[_Op, float]]:
    """Attempt → (op, category) → time of all its executions."""
    found: dict[str, dict[_Op, float]] = {}
    for table in tables:
        timed = table[table["total_us"].notna()][["attempt_id", "op", "category", "total_us"]]
        for attempt, op, category, time_us in timed.itertuples(index=False, name=None):
            mine = found.setdefault(attempt, {})
            mine[op, category] = mine.get((op, category), 0.0) + float(time_us)
    return found


def _errors(times: _Times) -> Iterator[CategoryError]:
    for (system, phase, category), found in sorted(times.items(), key=lambda item: item[0][:2]):
        errors = [100 * (theirs / ours - 1) for ours, theirs, _ in found]
        yield CategoryError(
            system=system,
            phase=phase,
            category=category,
            cases=len(found),
            median_pct=statistics.median(errors),
            most_pct=max(errors, key=abs),
            measured_share_pct=100 * statistics.median(share for *_, share in found),
        )
