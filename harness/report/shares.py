"""Where time goes: the share of each category of ops, for every value of an axis at one workload."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.intervals import Interval
from harness.report.glossary import CATEGORIES, short_name
from harness.report.tables import Column, Table, table
from harness.report.values import text
from harness.results.metrics import format_value, significant, time_column
from harness.spec.expand import matches
from harness.spec.study import Series, Study

if TYPE_CHECKING:
    import pandas as pd

#: More values than this are thinned out; first, baseline and last always stay.
_MOST_BARS = 8


@dataclass(frozen=True, slots=True)
class Segment:
    """One category of ops in one bar."""

    category: str
    share: float
    time_ms: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One case: what it spends its time on."""

    label: str
    time_ms: float
    is_baseline: bool
    segments: tuple[Segment, ...]
    interval: str = ""
    """Of its time, where the case was repeated."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The bars of one axis on one GPU, everything else fixed."""

    system: str
    about: str
    bars: tuple[Bar, ...]

    @property
    def longest_ms(self) -> float:
        """Time of the longest bar."""
        return max(bar.time_ms for bar in self.bars)


_Placed = tuple[dict[str, Any], dict[str, Any]]
"""A record and its coordinates."""


def shares_of(
    study: Study,
    records: pd.DataFrame,
    ops: pd.DataFrame,
    systems: Mapping[str, str],
    intervals: Mapping[str, Interval] | None = None,
) -> list[Shares]:
    """For each series, phase and GPU: what the study claims something about, at the workload with most answers.

    The axis is that of the first claim on the series and phase, else the first axis of the series, else its longest
    sweep. The workload is the same on every GPU: the one with most answers over all of them, the heaviest of equals. A
    study that looks at one category of ops has no shares. `intervals` are those of the times, by attempt, where the
    cases were repeated.
    """
    ok = records[records["status"] == "ok"]
    if ops["category"].nunique() < 2:  # all of it in one place
        return []
    by_attempt = dict(list(ops[ops["attempt_id"].isin(ok["attempt_id"])].groupby("attempt_id", sort=False)))
    rows = [row for row in ok.to_dict("records") if row["attempt_id"] in by_attempt]
    placed = [(row, json.loads(row["coordinates"])) for row in rows]
    found = []
    for part in study.parts:
        own = [item for item in placed if item[0]["series"] == part.name]
        for phase in dict.fromkeys(row["phase"] for row, _ in own):
            here = [item for item in own if item[0]["phase"] == phase]
            axis = _axis(study, part, phase, here)
            sweep = _longest(axis, here)
            if len({place[axis] for _, place in sweep}) < 2:
                continue
            for system in dict.fromkeys(row["system"] for row, _ in sweep):
                bars = [item for item in sweep if item[0]["system"] == system]
                found.append(_shares(part, axis, bars, by_attempt, systems.get(system, system), intervals or {}))
    return found


def _axis(study: Study, part: Series, phase: str, rows: Sequence[_Placed]) -> str:
    values: dict[str, set[Any]] = {}
    for _, place in rows:
        for name, value in place.items():
            values.setdefault(name, set()).add(value)
    moving = {name for name, seen in values.items() if len(seen) > 1}
    here = {"series": part.name, "phase": phase}
    claimed = (
        claim.axis
        for claim in study.claims
        if matches({name: wanted for name, wanted in claim.where.items() if name in here}, here)
    )
    first = next((name for name in (*claimed, *part.axes) if name in moving), "")
    return first or max(values, key=lambda name: len(values[name]), default="")


def _longest(axis: str, rows: Sequence[_Placed]) -> list[_Placed]:
    """The rows that differ in the axis and the GPU only, most of them first, then the heaviest."""
    sweeps: dict[tuple[tuple[str, Any], ...], list[_Placed]] = {}
    for row, place in rows:
        if axis in place:
            others = tuple((name, value) for name, value in place.items() if name != axis)
            sweeps.setdefault(others, []).append((row, place))
    return max(sweeps.values(), key=lambda sweep: (len(sweep), sum(_time_ms(row) for row, _ in sweep)), default=[])


def _shares(
    part: Series,
    axis: str,
    sweep: Sequence[_Placed],
    ops: Mapping[str, pd.DataFrame],
    system: str,
    intervals: Mapping[str, Interval],
) -> Shares:
    baseline = part.baseline.get(axis, sweep[0][1][axis])
    bars = [
        _bar(row, f"{short_name(axis)} {text(place[axis])}", place[axis] == baseline, ops[row["attempt_id"]], intervals)
        for row, place in sweep
    ]
    where = [f"{short_name(name)} {text(value)}" for name, value in sweep[0][1].items() if name != axis]
    apart = "ops timed one by one" if intervals else ""
    about = ", ".join(told for told in (part.name, str(sweep[0][0]["phase"]), *where, apart) if told)
    return Shares(system, about, tuple(_thinned(bars)))


def _bar(
    row: Mapping[str, Any], label: str, is_baseline: bool, ops: pd.DataFrame, intervals: Mapping[str, Interval]
) -> Bar:
    times_us = ops.groupby("category", sort=False)["total_us"].sum()
    total_us = float(times_us.sum())
    order = [*CATEGORIES, *(name for name in times_us.index if name not in CATEGORIES)]
    segments = [
        Segment(name, float(times_us[name]) / total_us, float(times_us[name]) / 1000)
        for name in order
        if name in times_us.index and times_us[name] > 0
    ]
    interval = intervals.get(row["attempt_id"])
    return Bar(label, _time_ms(row), is_baseline, tuple(segments), interval.text if interval else "")


def _thinned(bars: list[Bar]) -> list[Bar]:
    if len(bars) <= _MOST_BARS:
        return bars
    step = (len(bars) - 1) / (_MOST_BARS - 1)
    keep = {round(index * step) for index in range(_MOST_BARS)}
    return [bar for index, bar in enumerate(bars) if index in keep or bar.is_baseline]


def _time_ms(row: Mapping[str, Any]) -> float:
    return float(row[time_column(row["phase"])])


def shares_table(shares: Sequence[Shares]) -> Table:
    """The bars as numbers."""
    used = {segment.category for one in shares for bar in one.bars for segment in bar.segments}
    names = [name for name in CATEGORIES if name in used] + sorted(used - set(CATEGORIES))
    columns = [
        Column("GPU"), Column("At"), Column("Case"), Column("Time", "ms", numeric=True),
        *(Column(CATEGORIES.get(name, name), "ms, %", numeric=True) for name in names),
    ]  # fmt: skip
    rows = []
    for each in shares:
        for bar in each.bars:
            share = {
                one.category: f"{significant(one.time_ms, 3)}, {format_value(one.share, 'percent')}"
                for one in bar.segments
            }
            label = f"{bar.label} (baseline)" if bar.is_baseline else bar.label
            time = significant(bar.time_ms) + (f" ({bar.interval})" if bar.interval else "")
            place = [each.system, each.about, label, time]
            rows.append([*place, *(share.get(name, "") for name in names)])
    return table("Where time goes", columns, rows)
