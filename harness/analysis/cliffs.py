"""Cliffs: cases much slower than their neighbours along an axis and than their roofline explain.

Between two neighbouring values of a numeric axis, all else equal, an op's time changes by r = time(high) / time(low).
What explains that is q, the largest of the changes of its roofline, its FLOPs and its HBM bytes: a kernel far above its
roofline may still grow with its work. The step's excess is r/q. A step is a cliff when

    excess ≥ 2                   less than half of it is explained (`LEAST_EXCESS`),
    excess ≥ 2 x its neighbours  the steps before and after it on the axis are not like it (`OVER_NEIGHBOURS`),
    added time ≥ 5 % of the case at the low end (`LEAST_SHARE`): an op beneath notice makes no cliff.

Only cases with a number count, so the edge lies in (low, high]: somewhere above `low`, at most at `high`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from harness.analysis.frame import PLACE, place_of, placed
from harness.analysis.words import number, place_text, symbol
from harness.results.metrics import significant
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

LEAST_EXCESS = 2.0
OVER_NEIGHBOURS = 2.0
LEAST_SHARE = 0.05

Row = dict[str, Any]
Place = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Cliff:
    """One step down: one op, between two neighbouring cases."""

    study: str
    series: str
    system: str
    phase: str
    axis: str
    low: float
    high: float
    """The edge lies in (low, high]."""
    factor: float
    """Time of the op at `high` over its time at `low`."""
    op: str
    """The op whose time changed most."""
    where: str
    """The other coordinates."""
    time_ms_low: float
    """One execution of the op."""
    time_ms_high: float
    attempt_ids: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Edge:
    """Cliffs of one op on one axis that share an edge, over all series and coordinates at which they were seen."""

    study: str
    system: str
    phase: str
    axis: str
    low: float
    high: float
    op: str
    cliffs: tuple[Cliff, ...]
    text: str


def cliffs(study: Study, records: pd.DataFrame, ops: pd.DataFrame) -> list[Cliff]:
    """Return every cliff of a study, system by system, the largest factor of an edge first."""
    table, names = placed(study, records)
    rows: list[Row] = table[table["status"] == "ok"].to_dict("records")
    priced = _ops_of(ops, {row["attempt_id"] for row in rows})
    found = [
        cliff
        for axis in names
        for place, line in _lines(rows, names, axis).items()
        for cliff in _on_line(study.name, axis, place, line, priced)
    ]
    return sorted(found, key=lambda one: (one.system, one.phase, one.axis, one.low, -one.factor))


def edges(found: Iterable[Cliff]) -> list[Edge]:
    """Merge cliffs of the same op, axis, phase and system whose intervals overlap; their edge lies in all of them."""

    def kind(one: Cliff) -> tuple[str, str, str, str, str]:
        return one.study, one.system, one.phase, one.axis, one.op

    merged: list[Edge] = []
    for key, group in groupby(sorted(found, key=lambda one: (*kind(one), one.low, one.high)), key=kind):
        pending: list[Cliff] = []
        for one in group:
            if pending and one.low >= min(other.high for other in pending):
                merged.append(_edge(key, pending))
                pending = []
            pending.append(one)
        merged.append(_edge(key, pending))
    return merged


@dataclass(frozen=True, slots=True)
class _Op:
    """One op of one case, all executions."""

    time_us: float
    roofline_us: float
    flops: float
    hbm_bytes: float
    count: int

    def __add__(self, other: _Op) -> _Op:
        return _Op(
            self.time_us + other.time_us,
            self.roofline_us + other.roofline_us,
            self.flops + other.flops,
            self.hbm_bytes + other.hbm_bytes,
            self.count + other.count,
        )

    def explained(self, before: _Op) -> float:
        """How much the op may grow from `before`: the largest change of its roofline, FLOPs and bytes."""
        pairs = [(getattr(self, name), getattr(before, name)) for name in ("roofline_us", "flops", "hbm_bytes")]
        return max((after / earlier for after, earlier in pairs if earlier), default=1.0)


_Ops = Mapping[str, _Op]


def _ops_of(ops: pd.DataFrame, attempts: set[str]) -> dict[str, dict[str, _Op]]:
    """Attempt → op → what it takes."""
    found: dict[str, dict[str, _Op]] = {}
    columns = ["attempt_id", "op", "time_us", "roofline_us", "flops", "hbm_bytes", "count"]
    for attempt, name, *sizes, count in ops[ops["roofline_us"].notna()][columns].itertuples(index=False, name=None):
        if attempt in attempts:
            time_us, roofline_us, flops, hbm_bytes = (count * size for size in sizes)
            op = _Op(time_us, roofline_us, flops, hbm_bytes, count)
            mine = found.setdefault(attempt, {})
            mine[name] = mine[name] + op if name in mine else op
    return found


def _lines(rows: list[Row], names: list[str], axis: str) -> dict[Place, list[Row]]:
    """Cases that differ only in a numeric axis, in its order."""
    lines: dict[Place, list[Row]] = {}
    for row in rows:
        if isinstance(row[axis], int | float) and not isinstance(row[axis], bool):
            lines.setdefault(place_of(row, names, (axis,)), []).append(row)
    return {place: sorted(line, key=lambda row: float(row[axis])) for place, line in lines.items() if len(line) > 1}


def _on_line(study: str, axis: str, place: Place, line: list[Row], ops: Mapping[str, _Ops]) -> Iterator[Cliff]:
    steps = [(low, high) for low, high in pairwise(line) if low["attempt_id"] in ops and high["attempt_id"] in ops]
    excesses = [_excesses(ops[low["attempt_id"]], ops[high["attempt_id"]]) for low, high in steps]
    for at, (low, high) in enumerate(steps):
        before, after = ops[low["attempt_id"]], ops[high["attempt_id"]]
        beside = [excesses[i] for i in (at - 1, at + 1) if 0 <= i < len(steps)]
        total_us = sum(op.time_us for op in before.values())
        broken = [
            name
            for name, excess in excesses[at].items()
            if excess >= max([LEAST_EXCESS, *(OVER_NEIGHBOURS * other.get(name, 0.0) for other in beside)])
            and after[name].time_us - before[name].time_us >= LEAST_SHARE * total_us
        ]
        if broken:
            name = max(broken, key=lambda name: after[name].time_us - before[name].time_us)
            yield _cliff(study, axis, place, (low, high), name, (before[name], after[name]))


def _excesses(before: _Ops, after: _Ops) -> dict[str, float]:
    """Op → how far its time changed beyond what explains it."""
    return {
        name: after[name].time_us / op.time_us / after[name].explained(op)
        for name, op in before.items()
        if name in after and op.time_us
    }


def _cliff(study: str, axis: str, place: Place, step: tuple[Row, Row], name: str, ops: tuple[_Op, _Op]) -> Cliff:
    low, high = step
    low_us, high_us = (op.time_us / op.count for op in ops)
    where = place_text(pair for pair in place if pair[0] not in PLACE)
    factor = high_us / low_us
    text = (
        f"{name} takes {number(factor)} times as long at {symbol(axis)} {high[axis]} as at {low[axis]}"
        + (f" ({where})" if where else "")
        + f": {number(low_us)} → {number(high_us)} µs, where its work explains {number(ops[1].explained(ops[0]))} times"
    )
    return Cliff(
        study=study,
        series=low["series"],
        system=low["system"],
        phase=low["phase"],
        axis=axis,
        low=float(low[axis]),
        high=float(high[axis]),
        factor=factor,
        op=name,
        where=where,
        time_ms_low=low_us / 1000,
        time_ms_high=high_us / 1000,
        attempt_ids=(low["attempt_id"], high["attempt_id"]),
        text=text,
    )


def _edge(key: tuple[str, str, str, str, str], members: list[Cliff]) -> Edge:
    study, system, phase, axis, op = key
    ranked = sorted(members, key=lambda one: -one.factor)
    low, high = max(one.low for one in members), min(one.high for one in members)
    least, most = number(ranked[-1].factor), number(ranked[0].factor)
    factors = most if least == most else f"{least} to {most}"
    worst = ranked[0]
    at = ", ".join(part for part in (worst.series, worst.where) if part)
    text = (
        f"{phase}: {op} breaks at {symbol(axis)} within ({low:g}, {high:g}], {factors} times slower in {len(members)} "
        f"{'pair' if len(members) == 1 else 'pairs'} of cases; worst at {at or 'the only point'}: "
        f"{_ms(worst.time_ms_low)} → {_ms(worst.time_ms_high)} ms from {symbol(axis)} {worst.low:g} to {worst.high:g}"
    )
    return Edge(study, system, phase, axis, low, high, op, tuple(ranked), text)


def _ms(time_ms: float) -> str:
    """To a tenth of a microsecond, which is what the tables resolve; to four digits above a millisecond."""
    return f"{time_ms:.4f}" if time_ms < 1 else significant(time_ms)
