"""Which executions count: those of the capture ranges, of chosen NVTX ranges, or all."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.profiles.buckets import BucketTable
from harness.profiles.kernels import Kernel, Range, Trace

#: Names that a message lists.
_NAMED = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a profile is asked for."""

    range: str | None = None
    """Name of NVTX ranges, with * and ? as in file names; the executions that were launched in one of them count."""
    skip: int | None = None
    """Leave out the first ranges, the warm-up. None: as many as the profile says were warm-up."""
    iterations: int | None = None
    """How many iterations what is left holds. None: as many as its ranges say."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What counts."""

    windows: tuple[tuple[Kernel, ...], ...]
    """One after the other; what lies between two of them is no gap."""
    how: str
    """In words."""
    iterations: int | None
    iterations_by: str
    """How that many are known, or why they are not."""
    notes: tuple[str, ...] = ()


def select(trace: Trace, choice: Choice, table: BucketTable) -> Selection:
    """Choose the executions that count.

    A range holds what was launched in it, on the same thread; what only has a start on the GPU is taken by that.
    Raises UsageError where no range has the name, or the ranges of several problems would be mixed.
    """
    windows, how, notes = _captured(trace)
    wanted = choice.range if choice.range is not None else _layerwise_range(trace, table)
    if wanted is None:
        if choice.skip:
            raise UsageError(f"{trace.file}: --skip leaves out the first of the ranges that --range names")
        count, by = _iterations(trace.ranges, trace.captures, table)
        return Selection(windows, how, choice.iterations or count, _by(choice, by), notes)
    ranges = _chosen(trace, wanted)
    skip = _warmup(trace) if choice.skip is None else choice.skip
    if skip >= len(ranges):
        raise UsageError(f"{trace.file}: --skip {skip} leaves none of {len(ranges)} ranges {wanted!r}")
    left = ranges[skip:]
    kept = _inside([kernel for window in windows for kernel in window], left)
    how = f"launched in {len(left)} ranges {wanted!r}" + (f", the first {skip} left out" if skip else "")
    by = f"one for each of the ranges {wanted!r}"
    return Selection(tuple(filter(None, kept)), how, choice.iterations or len(left), _by(choice, by), notes)


def _by(choice: Choice, by: str) -> str:
    return "--iterations" if choice.iterations else by


def _captured(trace: Trace) -> tuple[tuple[tuple[Kernel, ...], ...], str, tuple[str, ...]]:
    """The executions of each capture range; all of them where none was recorded, or none holds any."""
    inside = tuple(filter(None, _inside(trace.kernels, trace.captures)))
    if not inside:
        return ((trace.kernels,) if trace.kernels else ()), "the whole capture", ()
    left_out = len(trace.kernels) - sum(map(len, inside))
    note = f"{left_out:,} executions lie outside the capture ranges and are left out"
    how = f"{len(inside)} capture range{'s' if len(inside) > 1 else ''}, cudaProfilerStart to cudaProfilerStop"
    return inside, how, (note,) if left_out else ()


def _inside(kernels: Iterable[Kernel], ranges: Sequence[Range]) -> list[tuple[Kernel, ...]]:
    """The executions that each of some ranges holds; the first range that holds one has it."""
    held: list[list[Kernel]] = [[] for _ in ranges]
    points = sorted(kernels, key=_at)
    waiting = sorted(range(len(ranges)), key=lambda index: ranges[index].start_ns)
    open_now: list[int] = []
    position = 0
    for kernel in points:
        at_ns = _at(kernel)
        while position < len(waiting) and ranges[waiting[position]].start_ns <= at_ns:
            open_now.append(waiting[position])
            position += 1
        open_now = [index for index in open_now if ranges[index].end_ns > at_ns]
        thread = kernel.thread if kernel.launched_ns is not None else None
        owner = next((index for index in open_now if ranges[index].holds(at_ns, kernel.process, thread)), None)
        if owner is not None:
            held[owner].append(kernel)
    return [tuple(one) for one in held]


def _at(kernel: Kernel) -> int:
    return kernel.start_ns if kernel.launched_ns is None else kernel.launched_ns


def _chosen(trace: Trace, wanted: str) -> list[Range]:
    found = [one for one in trace.ranges if one.name == wanted or fnmatch.fnmatchcase(one.name, wanted)]
    if found:
        return sorted(found, key=lambda one: one.start_ns)
    names = list(dict.fromkeys(one.name for one in trace.ranges))
    known = ", ".join(repr(name) for name in names[:_NAMED]) or "none"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    raise UsageError(f"{trace.file}: no range is called {wanted!r}; it has {known}{more}")


def _layerwise_range(trace: Trace, table: BucketTable) -> str | None:
    """The runs of layer-wise benchmarks, between which the GPU does other things."""
    if not trace.layerwise:
        return None
    names = list(dict.fromkeys(one.name for one in trace.ranges if table.is_iteration(one.name)))
    if len(names) > 1:
        listed = ", ".join(map(repr, names[:_NAMED]))
        raise UsageError(f"{trace.file}: holds {len(names)} problems; choose one by --range: {listed}")
    return names[0] if names else None


def _warmup(trace: Trace) -> int:
    told = trace.layerwise.get("warmup_times")
    return told if isinstance(told, int) and told > 0 else 0


def _iterations(ranges: Sequence[Range], captures: Sequence[Range], table: BucketTable) -> tuple[int | None, str]:
    """How many iterations the ranges of each process mark."""
    marks = [one for one in ranges if table.is_iteration(one.name) and _is_captured(one, captures)]
    if not marks:
        return None, "no range marks iterations; give --iterations N, or --range NAME"
    counts = {process: sum(one.process == process for one in marks) for process in {one.process for one in marks}}
    if len(set(counts.values())) > 1:
        return None, f"processes have {', '.join(str(n) for n in sorted(counts.values()))} ranges that mark iterations"
    return next(iter(counts.values())), f"ranges such as {marks[0].name!r}"


def _is_captured(mark: Range, captures: Sequence[Range]) -> bool:
    return not captures or any(one.holds(mark.start_ns, mark.process, mark.thread) for one in captures)


def enclosing(ranges: Sequence[Range], points: Sequence[tuple[int, int | None, int | None]]) -> list[tuple[str, ...]]:
    """The names of the ranges around each point (time, process, thread), the outermost first."""
    order = sorted(range(len(points)), key=lambda index: points[index][0])
    found: list[tuple[str, ...]] = [()] * len(points)
    starts = iter(sorted(ranges, key=lambda one: (one.start_ns, -one.end_ns)))
    upcoming: Range | None = next(starts, None)
    open_now: list[Range] = []
    for index in order:
        at_ns, process, thread = points[index]
        while upcoming is not None and upcoming.start_ns <= at_ns:
            open_now.append(upcoming)
            upcoming = next(starts, None)
        open_now = [one for one in open_now if one.end_ns > at_ns]
        found[index] = tuple(_names(open_now, at_ns, process, thread))
    return found


def _names(ranges: Iterable[Range], at_ns: int, process: int | None, thread: int | None) -> Iterator[str]:
    return (one.name for one in ranges if one.holds(at_ns, process, thread))
