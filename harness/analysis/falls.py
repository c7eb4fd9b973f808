"""Falls: neighbours of which the one with more work is faster, as no single kernel would have it.

Between two neighbouring values of a numeric axis, all else equal, an op of at least 5 % of the case grows in its work
(roofline, FLOPs and HBM bytes, none of them less) while its time falls by more than 10 % (`LEAST_FALL`, the scatter of
decode and GEMM rows). The rows are noisy there, or another kernel takes over. Either way the reader should know: a
slope or a gain over such a step is not what it seems, and where another kernel takes over, padding up is faster.

Steps that are cliffs (`harness.analysis.cliffs`) are told as such and are no falls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.analysis.cliffs import LEAST_SHARE, Cliff, Ops, PricedOp, Row, lines_along, ops_by_attempt
from harness.analysis.frame import PLACE, place_of, placed
from harness.analysis.words import number, place_text, symbol
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

LEAST_FALL = 0.10


@dataclass(frozen=True, slots=True)
class Fall:
    """One op, between two neighbouring cases."""

    study: str
    series: str
    system: str
    phase: str
    axis: str
    less: float
    """The axis value with less work."""
    more: float
    """The axis value with more work."""
    op: str
    where: str
    """The other coordinates."""
    work: float
    """How much the work grows, as a factor: the largest growth of FLOPs, bytes and roofline."""
    time_ms_less: float
    """One execution."""
    time_ms_more: float
    attempt_ids: tuple[str, str]

    @property
    def share(self) -> float:
        """The part of the time that falls away."""
        return 1 - self.time_ms_more / self.time_ms_less

    @property
    def text(self) -> str:
        """`layer.ffn.down takes 33 % less time at ISL 512 than at 257 (97.6 → 65.0 µs), with 1.99 times the work`."""
        place = ", ".join(part for part in (self.series, self.where) if part)
        return (
            f"{self.op} takes {100 * self.share:.0f} % less time at {symbol(self.axis)} {self.more:g} than at "
            f"{self.less:g} ({number(1000 * self.time_ms_less)} → {number(1000 * self.time_ms_more)} µs), with "
            f"{number(self.work)} times the work" + (f", at {place}" if place else "")
        )


@dataclass(frozen=True, slots=True)
class FallGroup:
    """Falls on one axis on one GPU, the largest first."""

    system: str
    phase: str
    axis: str
    falls: tuple[Fall, ...]

    @property
    def text(self) -> str:
        """How many, and the largest."""
        several = f"{len(self.falls)} times along {symbol(self.axis)}, most: " if len(self.falls) > 1 else ""
        return f"{self.phase}: {several}{self.falls[0].text}"


def falls(study: Study, records: pd.DataFrame, ops: pd.DataFrame, cliffs: Iterable[Cliff]) -> list[Fall]:
    """Return every fall of a study, in the order of the records, without steps that are `cliffs`."""
    table, names = placed(study, records)
    rows: list[Row] = table[table["status"] == "ok"].to_dict("records")
    priced = ops_by_attempt(ops, {row["attempt_id"] for row in rows})
    known = {frozenset(one.attempt_ids) for one in cliffs}
    return [
        fall
        for axis in names
        for line in lines_along(rows, names, axis).values()
        for step in pairwise(line)
        if frozenset(row["attempt_id"] for row in step) not in known
        for fall in _on_step(study.name, axis, step, priced, names)
    ]


def group_falls(found: Sequence[Fall]) -> list[FallGroup]:
    """Falls by GPU, phase and axis, the largest fall first."""
    groups: dict[tuple[str, str, str], list[Fall]] = {}
    for one in found:
        groups.setdefault((one.system, one.phase, one.axis), []).append(one)
    made = [FallGroup(*key, tuple(sorted(members, key=lambda one: -one.share))) for key, members in groups.items()]
    return sorted(made, key=lambda group: -group.falls[0].share)


def _on_step(
    study: str, axis: str, step: tuple[Row, Row], priced: Mapping[str, Ops], names: list[str]
) -> Iterator[Fall]:
    if any(row["attempt_id"] not in priced for row in step):
        return
    low, high = (priced[row["attempt_id"]] for row in step)
    for name in [name for name in low if name in high]:
        for (less, before), (more, after) in (
            ((step[0], low), (step[1], high)),
            ((step[1], high), (step[0], low)),
        ):
            if _falls(before[name], after[name], sum(op.time_us for op in before.values())):
                place = place_of(less, names, (axis, *PLACE))
                yield _fall(study, axis, less, more, name, before[name], after[name], place_text(place))


def _falls(before: PricedOp, after: PricedOp, total_us: float) -> bool:
    growth = after.growth(before)
    grows = bool(growth) and min(growth) >= 1 and max(growth) > 1
    noticed = before.time_us >= LEAST_SHARE * total_us
    return grows and noticed and after.time_us < (1 - LEAST_FALL) * before.time_us


def _fall(study: str, axis: str, less: Row, more: Row, op: str, before: PricedOp, after: PricedOp, where: str) -> Fall:
    return Fall(
        study=study,
        series=less["series"],
        system=less["system"],
        phase=less["phase"],
        axis=axis,
        less=float(less[axis]),
        more=float(more[axis]),
        op=op,
        where=where,
        work=after.explained(before),
        time_ms_less=before.time_us / before.count / 1000,
        time_ms_more=after.time_us / after.count / 1000,
        attempt_ids=(less["attempt_id"], more["attempt_id"]),
    )
