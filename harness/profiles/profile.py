"""A trace, bucketed: what ran how often and how long, on which GPU, and what could not be told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.errors import UsageError
from harness.profiles.buckets import UNKNOWN, BucketTable, kernel_buckets
from harness.profiles.kernels import Kernel, Kind, RangeTotal, Total, Trace
from harness.profiles.timeline import Timeline, timeline_of
from harness.profiles.windows import Choice, Selection, select

#: Why totals say nothing of elapsed time.
NO_TIMELINE = (
    "totals only: when executions ran is not in the file, so that elapsed time, gaps and overlap are not known"
)


@dataclass(frozen=True, slots=True)
class KernelRow:
    """All executions of one name."""

    name: str
    kind: Kind
    bucket: str
    count: int
    cumulative_ns: int
    share_pct: float
    """Of the cumulative time of everything."""
    min_ns: int | None
    max_ns: int | None


@dataclass(frozen=True, slots=True)
class BucketRow:
    """All executions of one bucket, on all GPUs."""

    bucket: str
    title: str
    count: int
    cumulative_ns: int
    share_pct: float


@dataclass(frozen=True, slots=True)
class RangeRow:
    """Executions by the innermost NVTX range around their launch, those of CUDA graphs around their capture."""

    name: str
    count: int
    cumulative_ns: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What one file says."""

    file: str
    format: str
    tool: str
    status: Literal["ok", "partial", "empty"]
    """`empty`: nothing ran on a GPU. `partial`: something that ran is missing, see `missing`."""
    how: str
    """Which executions count."""
    iterations: int | None
    iterations_by: str
    layers: int | None
    """Decoder layers that ran, where the profile says so."""
    kernels: tuple[KernelRow, ...]
    buckets: tuple[BucketRow, ...]
    timelines: tuple[Timeline, ...]
    """One for each GPU; none where the file has totals only."""
    ranges: tuple[RangeRow, ...]
    range_totals: tuple[RangeTotal, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def cumulative_ns(self) -> int:
        """Durations of all executions, added."""
        return sum(row.cumulative_ns for row in self.kernels)

    @property
    def unknown(self) -> tuple[KernelRow, ...]:
        """Kernels that no rule names."""
        return tuple(row for row in self.kernels if row.bucket == UNKNOWN)

    @property
    def slowest(self) -> Timeline | None:
        """The GPU that took longest."""
        return max(self.timelines, key=lambda one: one.elapsed_ns, default=None)

    def to_data(self) -> dict[str, Any]:
        """Plain data, one document."""
        data = asdict(self)
        for timeline, one in zip(data["timelines"], self.timelines, strict=True):
            timeline |= {"overlap_ns": one.overlap_ns, "exposed_ns": one.exposed_ns}
        return {**data, "cumulative_ns": self.cumulative_ns, "unknown": [row.name for row in self.unknown]}


def make_profile(trace: Trace, choice: Choice = Choice(), table: BucketTable | None = None) -> Profile:  # noqa: B008
    """Bucket the executions that count. Raises UsageError where the choice cannot be met, see `select`."""
    table = table or kernel_buckets()
    names: dict[tuple[str, Kind], str] = {}

    def bucket_of(one: Kernel | Total) -> str:
        key = one.name, one.kind
        if key not in names:
            names[key] = table.of_kernel(*key)
        return names[key]

    selection = _selection(trace, choice, table)
    chosen = [kernel for window in selection.windows for kernel in window]
    rows = _kernel_rows([*map(_total, chosen), *trace.totals], bucket_of)
    devices = sorted({kernel.device for kernel in chosen})
    timelines = tuple(
        timeline_of(device, [_on(window, device) for window in selection.windows], bucket_of, table)
        for device in devices
    )
    notes = [*trace.notes, *selection.notes, *([NO_TIMELINE] if trace.totals else [])]
    return Profile(
        file=trace.file,
        format=trace.format,
        tool=trace.tool,
        status="partial" if trace.missing else "ok" if rows else "empty",
        how=selection.how,
        iterations=selection.iterations,
        iterations_by=selection.iterations_by,
        layers=_layers(trace),
        kernels=tuple(rows),
        buckets=tuple(_bucket_rows(rows, table)),
        timelines=timelines,
        ranges=tuple(_range_rows(chosen)),
        range_totals=trace.range_totals,
        missing=trace.missing,
        notes=tuple(notes),
    )


def _selection(trace: Trace, choice: Choice, table: BucketTable) -> Selection:
    """What counts; of totals all does, and how many iterations they hold has to be told."""
    if trace.kernels or trace.ranges or not trace.totals:
        return select(trace, choice, table)
    if choice.range is not None or choice.skip:
        raise UsageError(f"{trace.file}: --range and --skip need a timeline, and the file has totals only")
    by = "--iterations" if choice.iterations else "totals do not say; give --iterations N"
    return Selection((), "all of the file", choice.iterations, by)


def _on(window: Iterable[Kernel], device: str) -> list[Kernel]:
    return [kernel for kernel in window if kernel.device == device]


def _layers(trace: Trace) -> int | None:
    told = trace.layerwise.get("layer_indices")
    return len(told) if isinstance(told, list) and told else None


def _total(kernel: Kernel) -> Total:
    return Total(kernel.name, kernel.kind, 1, kernel.duration_ns, kernel.duration_ns, kernel.duration_ns)


def _kernel_rows(totals: Iterable[Total], bucket_of: Any) -> list[KernelRow]:
    """One row a name, the longest first."""
    found: dict[tuple[str, Kind], list[Total]] = {}
    for one in totals:
        found.setdefault((one.name, one.kind), []).append(one)
    whole = sum(one.total_ns for mine in found.values() for one in mine)
    rows = [
        KernelRow(
            name=name,
            kind=kind,
            bucket=bucket_of(mine[0]),
            count=sum(one.count for one in mine),
            cumulative_ns=(time_ns := sum(one.total_ns for one in mine)),
            share_pct=_share(time_ns, whole),
            min_ns=min((one.min_ns for one in mine if one.min_ns is not None), default=None),
            max_ns=max((one.max_ns for one in mine if one.max_ns is not None), default=None),
        )
        for (name, kind), mine in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.cumulative_ns, row.name))


def _bucket_rows(rows: Iterable[KernelRow], table: BucketTable) -> Iterator[BucketRow]:
    found: dict[str, list[KernelRow]] = {}
    for row in rows:
        found.setdefault(row.bucket, []).append(row)
    whole = sum(row.cumulative_ns for mine in found.values() for row in mine)
    for bucket in sorted(found, key=table.order):
        mine = found[bucket]
        time_ns = sum(row.cumulative_ns for row in mine)
        yield BucketRow(bucket, table.title(bucket), sum(row.count for row in mine), time_ns, _share(time_ns, whole))


def _share(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _range_rows(kernels: Iterable[Kernel]) -> list[RangeRow]:
    """The longest first; what lies in no range is left out."""
    found: dict[str, list[int]] = {}
    for kernel in kernels:
        if kernel.ranges:
            found.setdefault(kernel.ranges[-1], []).append(kernel.duration_ns)
    rows = [RangeRow(name, len(times), sum(times)) for name, times in found.items()]
    return sorted(rows, key=lambda row: (-row.cumulative_ns, row.name))
