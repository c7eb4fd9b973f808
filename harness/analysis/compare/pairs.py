"""One figure of one workload on both sides, and workloads that have none to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.analysis.inputs import Figure, Workload

Verdict = Literal["worse", "better", "same", "inconclusive", "not computed", "prediction changed"]
State = Literal["newly failing", "newly working", "failed in both", "only in base", "only in candidate"]


@dataclass(frozen=True, slots=True)
class Values:
    """One side: a value for each replicate that counts, in the figure's unit."""

    values: tuple[float, ...]
    median: float
    attempts: tuple[str, ...] = ()
    clocks_mhz: tuple[float, ...] = ()
    """Of the same replicates; empty where one of them has none."""
    note: str = ""
    """What to know of them: attempts that failed, disturbed ones that stand aside."""
    is_disturbed: bool = False
    """Whether something outside disturbed all of them, so that they decide nothing."""

    @property
    def count(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class OpShift:
    """How one op of a case moved."""

    op: str
    category: str
    base_us: float
    candidate_us: float
    share: float
    """Its part of what all ops together moved by; above 1 where others moved the other way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A figure of a workload that both sides have, or that one of them lacks."""

    workload: Workload
    figure: Figure
    base: Values | None
    candidate: Values | None
    verdict: Verdict
    policy: str
    """`interval`, `threshold:5%` or `exact`."""
    change: float | None = None
    """candidate / base - 1: of the geometric mean of replicates where an interval is taken, else of the medians."""
    low: float | None = None
    """Least that `change` may be, at 99 %; null without an interval."""
    high: float | None = None
    p: float | None = None
    """Chance of such a change where the true one is no more than 1 %, two-sided, before the table is considered."""
    reason: str = ""
    replicates_needed: int | None = None
    """Of an inconclusive pair: replicates of each side that would settle it, if they scatter as these do."""
    clock: str = ""
    """What the clock says of a change: whether cycles moved too."""
    blame: tuple[OpShift, ...] = ()
    """The ops that moved most, where both sides have ops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """A workload without figures on both sides."""

    workload: Workload
    state: State
    base_status: str = ""
    candidate_status: str = ""
    reason: str = ""
