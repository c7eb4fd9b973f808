"""Where time goes: the share of each category of ops, for every value of an axis at one workload."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.report.glossary import CATEGORIES, short_name
from harness.report.tables import Column, Table, table
from harness.report.values import text
from harness.results.metrics import format_value, significant, time_column
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


@dataclass(frozen=True, slots=True)
class Shares:
    """The bars of one axis on one GPU, everything else fixed."""

    system: str
    about: str
    bars: tuple[Bar, ...]


def shares_of(study: Study, records: pd.DataFrame, ops: pd.DataFrame, systems: Mapping[str, str]) -> list[Shares]:
    """For each series, phase and GPU: the first axis at the workload with most answers, the heaviest of equals."""
    ok = records[records["status"] == "ok"]
    by_attempt = dict(list(ops[ops["attempt_id"].isin(ok["attempt_id"])].groupby("attempt_id", sort=False)))
    found = []
    for part in study.parts:
        rows = ok[ok["series"] == part.name].to_dict("records")
        places = [(row, json.loads(row["coordinates"])) for row in rows]
        axis = next(iter(part.axes), "") or _longest_sweep(places)
        for phase in dict.fromkeys(row["phase"] for row in rows):
            for system in dict.fromkeys(row["system"] for row in rows):
                here = [item for item in places if item[0]["phase"] == phase and item[0]["system"] == system]
                shares = _shares(part, axis, here, by_attempt, systems.get(system, system))
                found += [shares] if shares else []
    return found


def _longest_sweep(places: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Without an axis of the variant, the workload field with most values."""
    values: dict[str, set[Any]] = {}
    for _, place in places:
        for name, value in place.items():
            values.setdefault(name, set()).add(value)
    return max(values, key=lambda name: len(values[name]), default="")


def _shares(
    part: Series,
    axis: str,
    rows: list[tuple[dict[str, Any], dict[str, Any]]],
    ops: Mapping[str, pd.DataFrame],
    system: str,
) -> Shares | None:
    sweeps: dict[tuple[tuple[str, Any], ...], list[tuple[dict[str, Any], Any]]] = {}
    for row, place in rows:
        if axis in place:
            others = tuple((name, value) for name, value in place.items() if name != axis)
            sweeps.setdefault(others, []).append((row, place[axis]))
    if not sweeps:
        return None
    others, sweep = max(sweeps.items(), key=lambda item: (len(item[1]), sum(_time_ms(row) for row, _ in item[1])))
    baseline = part.baseline.get(axis, sweep[0][1])
    bars = [_bar(row, f"{short_name(axis)} {text(value)}", value == baseline, ops[row["attempt_id"]]) for row, value in sweep]
    where = ", ".join(f"{short_name(name)} {text(value)}" for name, value in others)
    phase = str(sweep[0][0]["phase"])
    return Shares(system, ", ".join(part for part in (part.name, phase, where) if part), tuple(_thinned(bars)))


def _bar(row: Mapping[str, Any], label: str, is_baseline: bool, ops: pd.DataFrame) -> Bar:
    times_us = ops.groupby("category", sort=False)["total_us"].sum()
    total_us = float(times_us.sum())
    order = [*CATEGORIES, *(name for name in times_us.index if name not in CATEGORIES)]
    segments = [
        Segment(name, float(times_us[name]) / total_us, float(times_us[name]) / 1000)
        for name in order
        if name in times_us.index and times_us[name] > 0
    ]
    return Bar(label, _time_ms(row), is_baseline, tuple(segments))


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
        *(Column(CATEGORIES.get(name, name), "%", numeric=True) for name in names),
    ]  # fmt: skip
    rows = []
    for one in shares:
        for bar in one.bars:
            share = {segment.category: format_value(segment.share, "percent") for segment in bar.segments}
            label = f"{bar.label} (baseline)" if bar.is_baseline else bar.label
            rows.append([one.system, one.about, label, significant(bar.time_ms), *(share.get(name, "") for name in names)])
    return table("Where time goes", columns, rows)
