"""A profile beside the composed price of an attempt, bucket by bucket.

Both sides are sums of durations, without gaps and overlap: cumulative time of the profile's slowest GPU, for one
iteration, beside the times of the composed ops of the slowest rank. Ops meet kernels by bucket and no finer: one GEMM
kernel serves projections, FFN, router and lm_head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.files import checked_path
from harness.profiles.buckets import UNKNOWN, BucketTable, kernel_buckets
from harness.profiles.profile import Profile
from harness.results.metrics import time_column
from harness.results.record import PROVENANCE_OF, Record
from harness.results.store import Attempt, read_attempts

#: Provenances whose ops are a price.
_PRICED = tuple(PROVENANCE_OF.values())


@dataclass(frozen=True, slots=True)
class Against:
    """The attempt that was named, and the price of its case."""

    named: Record
    priced: Attempt
    """The same attempt, or a priced one of the same case in the same run."""

    @property
    def measured_ms(self) -> float | None:
        """The time that the named attempt measured, where it is not a price itself."""
        time: float | None = getattr(self.named, time_column(self.named.phase))
        return time if self.named.provenance not in _PRICED else None


@dataclass(frozen=True, slots=True)
class BucketComparison:
    """One bucket, measured and composed."""

    bucket: str
    title: str
    measured_us: float | None
    """Cumulative, one iteration; None where the iterations of the profile are not known."""
    measured_share_pct: float | None
    composed_us: float | None
    """None where the price has no such op."""
    composed_share_pct: float | None

    @property
    def error_pct(self) -> float | None:
        """Composed / measured - 1, in %."""
        if not self.measured_us or self.composed_us is None:
            return None
        return 100 * (self.composed_us / self.measured_us - 1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A profile beside a price."""

    attempt_id: str
    priced_attempt_id: str
    answered_with: str
    provenance: str
    phase: str
    level: str
    case: str
    buckets: tuple[BucketComparison, ...]
    elapsed_us: float | None
    """Of the profile, one iteration: gaps and overlap are in it."""
    composed_us: float
    measured_us: float | None
    """Of the attempt, where it was measured: without a profiler."""
    why_shares_only: str | None
    left_out: tuple[str, ...]
    """Composed ops that no bucket takes."""

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        buckets = [{**asdict(one), "error_pct": one.error_pct} for one in self.buckets]
        return {**asdict(self), "buckets": buckets}


def find_against(named: str) -> Against:
    """Find what `RUN:ATTEMPT` names: a run folder, and an attempt id, the end of one, or its number.

    A measured attempt is compared with a priced one of the same case in the same run. Raises UsageError where there is
    no such attempt, none that was priced, or one without a time; UnreadableInput where the run cannot be read.
    """
    run, colon, wanted = named.rpartition(":")
    if not colon or not run or not wanted:
        raise UsageError(f"--case {named}: takes RUN:ATTEMPT, a run folder and an attempt_id, as reports/demo:000004")
    attempts, _ = read_attempts(checked_path(run)) if Path(run).is_dir() else ([], [])
    if not attempts:
        raise UsageError(f"--case {named}: {run} holds no run")
    found = _find(attempts, wanted)
    if found is None:
        first, last = attempts[0].record.attempt_id, attempts[-1].record.attempt_id
        raise UsageError(f"--case {named}: {run} has no attempt {wanted!r}; it has {first} to {last}")
    priced = found if found.record.provenance in _PRICED else _priced(attempts, found.record)
    if priced is None:
        raise UsageError(
            f"--case {named}: {found.record.attempt_id} is {found.record.provenance}, and {run} has no price of its "
            "case; price the study with `trtllm-harness run STUDY --on tables` and name that attempt"
        )
    if priced.record.status != "ok":
        reason = f": {priced.record.reason}" if priced.record.reason else ""
        raise UsageError(
            f"--case {named}: {priced.record.attempt_id} is {priced.record.status} and has no time{reason}"
        )
    return Against(found.record, priced)


def _find(attempts: list[Attempt], wanted: str) -> Attempt | None:
    """The last attempt of that id, end of an id, or number in the plan."""
    ids = [one.record.attempt_id for one in attempts]
    ends = [(one, one.partition(".")[2]) for one in ids]
    exact = [at for at, (whole, end) in enumerate(ends) if wanted in (whole, end)]
    if not exact and wanted.isdigit():
        exact = [at for at, (_, end) in enumerate(ends) if int(end.partition(".")[0]) == int(wanted)]
    return attempts[exact[-1]] if exact else None


def _priced(attempts: list[Attempt], record: Record) -> Attempt | None:
    """A price of the same case at the same level, composed before modelled."""
    same = [
        one
        for one in attempts
        if one.record.provenance in _PRICED
        and (one.record.case_id, one.record.level) == (record.case_id, record.level)
        and one.record.status == "ok"
    ]
    return min(reversed(same), key=lambda one: _PRICED.index(one.record.provenance), default=None)


def compare(profile: Profile, against: Against, table: BucketTable | None = None) -> Comparison:
    """Put a profile beside the price of an attempt."""
    table = table or kernel_buckets()
    composed, left_out = _composed(against.priced, table)
    cumulative = _cumulative(profile)
    why = _why_shares_only(profile, against.named)
    per = None if why or not profile.iterations else profile.iterations
    whole_ns, whole_us = sum(cumulative.values()), sum(composed.values())
    buckets = tuple(
        BucketComparison(
            bucket=name,
            title=table.title(name),
            measured_us=cumulative.get(name, 0) / per / 1000 if per else None,
            measured_share_pct=100 * cumulative.get(name, 0) / whole_ns if whole_ns else None,
            composed_us=composed.get(name),
            composed_share_pct=100 * composed[name] / whole_us if name in composed and whole_us else None,
        )
        for name in sorted({*cumulative, *composed}, key=table.order)
    )
    slowest = profile.slowest
    record, measured = against.priced.record, against.measured_ms
    return Comparison(
        attempt_id=against.named.attempt_id,
        priced_attempt_id=record.attempt_id,
        answered_with=record.answered_with,
        provenance=record.provenance,
        phase=record.phase,
        level=record.level,
        case=f"{record.variant}, {record.coordinates}",
        buckets=buckets,
        elapsed_us=slowest.elapsed_ns / per / 1000 if slowest and per else None,
        composed_us=whole_us,
        measured_us=None if measured is None else 1000 * measured,
        why_shares_only=why,
        left_out=tuple(left_out),
    )


def _composed(priced: Attempt, table: BucketTable) -> tuple[dict[str, float], list[str]]:
    """Time of the ops of each bucket in µs, and the ops that none takes."""
    found: dict[str, float] = {}
    left_out = []
    for op in priced.ops:
        bucket = table.of_op(op.op)
        if bucket is None or op.total_us is None:
            left_out.append(op.op)
        else:
            found[bucket] = found.get(bucket, 0.0) + op.total_us
    return found, left_out


def _cumulative(profile: Profile) -> Mapping[str, int]:
    """Cumulative time of each bucket on the GPU that took longest; of totals, on all that the file adds up."""
    if profile.slowest:
        return {one.bucket: one.cumulative_ns for one in profile.slowest.buckets}
    return {one.bucket: one.cumulative_ns for one in profile.buckets}


def _why_shares_only(profile: Profile, record: Record) -> str | None:
    """Why times cannot be compared, only shares of them."""
    if profile.iterations is None:
        return f"how many iterations the profile holds is not known: {profile.iterations_by}"
    if profile.layers is not None and record.layers is not None and profile.layers != record.layers:
        return f"the profile is of {profile.layers} of {record.layers} layers"
    return None


def unknown_share_pct(comparison: Comparison) -> float:
    """Share of measured time in kernels that no rule names: by so much any bucket may be too small."""
    return next((one.measured_share_pct or 0.0 for one in comparison.buckets if one.bucket == UNKNOWN), 0.0)
