"""Cliffs: cases much slower than their neighbours along an axis and than their roofline explain.

Between two neighbouring values of a numeric axis, all else equal, an op's time changes by r = time(high) / time(low).
What explains that is q, the largest of the changes of its roofline, its FLOPs and its HBM bytes: a kernel far above its
roofline may still grow with its work. The step's excess is r/q. A step is a cliff when

    excess ≥ 2                   less than half of it is explained (`LEAST_EXCESS`),
    excess ≥ 2 x its neighbours  the steps before and after it on the axis are not like it (`OVER_NEIGHBOURS`),
    added time ≥ 5 % of the case at the low end (`LEAST_SHARE`): an op beneath notice makes no cliff.

Only cases with a number count, so the edge lies in (low, high]: somewhere above `low`, at most at `high`.

How high a cliff is has one definition everywhere (`Cliff.size`): r where the work stays as it is (q ≤ 1.05, as between
two group sizes of the same query heads), and r/q, "beyond its work", where it does not (as between two group sizes of
the same KV heads, which have more query heads to serve).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from harness.analysis.frame import PLACE, place_of, placed
from harness.analysis.words import number, place_text, symbol
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

LEAST_EXCESS = 2.0
OVER_NEIGHBOURS = 2.0
LEAST_SHARE = 0.05
#: Work that grows by no more than this is the same work.
SAME_WORK = 1.05

Row = dict[str, Any]
Place = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """One step down, between two neighbouring cases."""

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
    explained: float
    """How much of that its work explains, as a factor."""
    op: str
    """The op that adds most time."""
    ops: tuple[tuple[str, float], ...]
    """Every op that breaks here and its size, that one first."""
    heads: tuple[str, str]
    """Query and KV heads at `low` and at `high`: `64:2`, `64:1`."""
    place: Place
    """The other coordinates."""
    time_ms_low: float
    """One execution of the op."""
    time_ms_high: float
    attempt_ids: tuple[str, ...]

    @property
    def same_work(self) -> bool:
        """Whether both sides do the same work, so that the factor needs no explanation."""
        return self.explained <= SAME_WORK

    @property
    def size(self) -> float:
        """The factor at the same work; else what of it the work does not explain."""
        return self.factor if self.same_work else self.factor / self.explained

    @property
    def size_text(self) -> str:
        """`×40.2`, or `×20.1 beyond its work`."""
        return f"×{number(self.size)}" + ("" if self.same_work else " beyond its work")

    @property
    def where(self) -> str:
        """The other coordinates, readable; the series is told apart."""
        return place_text(pair for pair in self.place if pair[0] not in PLACE)

    @property
    def step(self) -> str:
        """`from G 32 to 64 (64:2 → 64:1 heads)`."""
        heads = "" if self.heads[0] == self.heads[1] else f" ({self.heads[0]} → {self.heads[1]} heads)"
        return f"from {symbol(self.axis)} {self.low:g} to {self.high:g}{heads}"


def cliffs(study: Study, records: pd.DataFrame, ops: pd.DataFrame) -> list[Cliff]:
    """Return every cliff of a study, system by system; of one interval those of equal work first, the largest first."""
    table, names = placed(study, records)
    rows: list[Row] = table[table["status"] == "ok"].to_dict("records")
    priced = ops_by_attempt(ops, {row["attempt_id"] for row in rows})
    found = [
        cliff
        for axis in names
        for place, line in lines_along(rows, names, axis).items()
        for cliff in _on_line(study.name, axis, place, line, priced)
    ]
    return sorted(found, key=lambda one: (one.system, one.phase, one.axis, one.low, not one.same_work, -one.size))


@dataclass(frozen=True, slots=True)
class PricedOp:
    """One op of one case, all executions."""

    time_us: float
    roofline_us: float
    flops: float
    hbm_bytes: float
    count: int

    def __add__(self, other: PricedOp) -> PricedOp:
        return PricedOp(
            self.time_us + other.time_us,
            self.roofline_us + other.roofline_us,
            self.flops + other.flops,
            self.hbm_bytes + other.hbm_bytes,
            self.count + other.count,
        )

    def growth(self, before: PricedOp) -> tuple[float, ...]:
        """The changes of its roofline, FLOPs and bytes from `before`, as factors."""
        pairs = [(getattr(self, name), getattr(before, name)) for name in ("roofline_us", "flops", "hbm_bytes")]
        return tuple(after / earlier for after, earlier in pairs if earlier)

    def explained(self, before: PricedOp) -> float:
        """How much the op may grow from `before`: the largest of these changes."""
        return max(self.growth(before), default=1.0)


Ops = Mapping[str, PricedOp]


def ops_by_attempt(ops: pd.DataFrame, attempts: set[str]) -> dict[str, dict[str, PricedOp]]:
    """Attempt → op → what it takes."""
    found: dict[str, dict[str, PricedOp]] = {}
    columns = ["attempt_id", "op", "time_us", "roofline_us", "flops", "hbm_bytes", "count"]
    for attempt, name, *sizes, count in ops[ops["roofline_us"].notna()][columns].itertuples(index=False, name=None):
        if attempt in attempts:
            time_us, roofline_us, flops, hbm_bytes = (count * size for size in sizes)
            op = PricedOp(time_us, roofline_us, flops, hbm_bytes, count)
            mine = found.setdefault(attempt, {})
            mine[name] = mine[name] + op if name in mine else op
    return found


def lines_along(rows: list[Row], names: list[str], axis: str) -> dict[Place, list[Row]]:
    """Cases that differ only in a numeric axis, in its order."""
    lines: dict[Place, list[Row]] = {}
    for row in rows:
        if isinstance(row[axis], int | float) and not isinstance(row[axis], bool):
            lines.setdefault(place_of(row, names, (axis,)), []).append(row)
    return {place: sorted(line, key=lambda row: float(row[axis])) for place, line in lines.items() if len(line) > 1}


def _on_line(study: str, axis: str, place: Place, line: list[Row], ops: Mapping[str, Ops]) -> Iterator[Cliff]:
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
            broken.sort(key=lambda name: before[name].time_us - after[name].time_us)
            yield _cliff(study, axis, place, (low, high), {name: (before[name], after[name]) for name in broken})


def _excesses(before: Ops, after: Ops) -> dict[str, float]:
    """Op → how far its time changed beyond what explains it."""
    return {
        name: after[name].time_us / op.time_us / after[name].explained(op)
        for name, op in before.items()
        if name in after and op.time_us
    }


def _cliff(
    study: str, axis: str, place: Place, step: tuple[Row, Row], broken: Mapping[str, tuple[PricedOp, PricedOp]]
) -> Cliff:
    low, high = step
    name, (before, after) = next(iter(broken.items()))
    low_us, high_us = (op.time_us / op.count for op in (before, after))
    return Cliff(
        study=study,
        series=low["series"],
        system=low["system"],
        phase=low["phase"],
        axis=axis,
        low=float(low[axis]),
        high=float(high[axis]),
        factor=high_us / low_us,
        explained=after.explained(before),
        op=name,
        ops=tuple((op, _size(*times)) for op, times in broken.items()),
        heads=(low["heads"], high["heads"]),
        place=place,
        time_ms_low=low_us / 1000,
        time_ms_high=high_us / 1000,
        attempt_ids=(low["attempt_id"], high["attempt_id"]),
    )


def _size(before: PricedOp, after: PricedOp) -> float:
    factor, explained = after.time_us / before.time_us, after.explained(before)
    return factor if explained <= SAME_WORK else factor / explained
