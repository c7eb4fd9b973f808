"""Read what `nsys stats --format csv` writes: totals by name, or every execution.

    cuda_gpu_kern_sum (gpukernsum)           totals of kernels
    cuda_gpu_sum (gpusum)                    totals of kernels and copies
    cuda_gpu_mem_time_sum (gpumemtimesum)    totals of copies
    cuda_gpu_trace (gputrace)                every execution, on its GPU and stream
    nvtx_sum, nvtx_pushpop_sum (pushpopsum)  totals of NVTX ranges, host time
    nvtx_gpu_proj_sum                        totals of NVTX ranges, projected onto the GPU

A report is known by its titles, in their old spelling (`Time(%)`, `Average`) and the new one (`Time (%)`, `Avg (ns)`).
A time is in the unit of its title, ns, us or μs, ms, s (`--timeunit`); without one it is refused. What nsys prints
before a report is passed over; one file may hold several reports. A report may be empty: a header alone, nothing at
all, or the line `SKIPPED: … does not contain CUDA kernel data`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from harness.errors import UnreadableInput
from harness.profiles.kernels import Kernel, Kind, RangeTotal, Total, Trace

#: Unit of a title → nanoseconds.
_UNITS = {
    "ns": 1, "nsec": 1, "us": 1_000, "μs": 1_000, "µs": 1_000, "usec": 1_000, "ms": 1_000_000, "msec": 1_000_000,
    "s": 1_000_000_000, "sec": 1_000_000_000,
}  # fmt: skip
_TITLE = re.compile(r"^(?P<title>.*?)\s*(?:\((?P<unit>[^()]*)\))?$")
_GROUPED = re.compile(r"^-?\d{1,3}(,\d{3})+(\.\d+)?$")

#: Spelling of a title, without unit, in small letters → its name here.
_COLUMNS = {
    "total time": "total", "total proj time": "projected", "start": "start", "duration": "duration",
    "instances": "count", "count": "count", "operations": "count", "calls": "count", "range instances": "count",
    "num calls": "calls", "minimum": "min", "min": "min", "maximum": "max", "max": "max", "proj min": "projected min",
    "name": "name", "kernel name": "name", "operation": "name", "range": "range", "nvtx range": "nvtx range",
    "category": "category", "device": "device", "strm": "stream", "stream": "stream",
}  # fmt: skip
_SKIPPED = re.compile(r"SKIPPED: .*(does not contain|could not be)")
_ENDS = ("Processing [", "Generating ", "NOTICE:", "SKIPPED:", "[")
#: Columns whose unit must be known. An average without one, as in old reports, is not read.
_TIMES = frozenset({"total", "projected", "start", "duration"})


@dataclass(frozen=True, slots=True)
class _Report:
    """One report of a file: where each column stands and in what unit, and its rows with their lines."""

    where: str
    columns: dict[str, int]
    units: dict[str, str | None]
    titles: Sequence[str]
    rows: list[tuple[int, list[str]]]


def read_nsys_csv(path: Path) -> Trace:
    """Read every report of a file; raise UnreadableInput with file, line and title where one cannot be."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{path}: not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror or error}") from error
    reports = list(_reports(path, lines))
    skipped = tuple(dict.fromkeys(line.strip() for line in lines if _SKIPPED.search(line)))
    if not reports and not skipped and any(line.strip() for line in lines):
        raise UnreadableInput(
            f"{path}: no report of nsys stats: no line has the titles of one (Name, Range or Operation, and a time)"
        )
    kernels, totals, ranges = [], [], []
    for report in reports:
        if "start" in report.columns:
            kernels += list(_executions(report))
        elif "range" in report.columns:
            ranges += list(_range_totals(report))
        else:
            totals += list(_totals(report))
    if kernels and totals:
        raise UnreadableInput(f"{path}: holds every execution and totals too, which would count twice; split it")
    return Trace(
        file=str(path),
        format="nsys-csv",
        tool="nsys stats",
        kernels=tuple(sorted(kernels, key=lambda one: (one.start_ns, one.end_ns))),
        totals=tuple(totals),
        range_totals=tuple(ranges),
        notes=skipped,
    )


def _reports(path: Path, lines: Sequence[str]) -> Iterator[_Report]:
    position = 0
    while position < len(lines):
        titles = _titles(lines[position])
        if titles is None:
            position += 1
            continue
        end = next((at for at in range(position + 1, len(lines)) if _is_end(lines[at])), len(lines))
        yield _report(path, titles, position, lines[position:end])
        position = end


def _is_end(line: str) -> bool:
    return not line.strip() or (line.startswith(_ENDS) and not line.startswith("[CUDA")) or _titles(line) is not None


def _titles(line: str) -> list[str] | None:
    """The titles of a report, where a line holds them."""
    cells = [cell.strip() for cell in next(csv.reader([line], delimiter=_delimiter(line)), [])]
    names = {_known(cell) for cell in cells}
    timed = names & {"total", "projected", "duration"}
    return cells if timed and names & {"name", "range"} else None


def _delimiter(line: str) -> str:
    return "\t" if "\t" in line and "," not in line else ","


def _known(cell: str) -> str | None:
    found = _TITLE.match(cell)
    return _COLUMNS.get(" ".join(found["title"].lower().split())) if found else None


def _report(path: Path, titles: list[str], position: int, lines: Sequence[str]) -> _Report:
    """A report with its titles understood. Raises UnreadableInput for titles that are there twice, or without unit."""
    where = f"{path}:{position + 1}"
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise UnreadableInput(f"{where}: the title {twice[0]!r} is there twice; which column is meant cannot be told")
    columns: dict[str, int] = {}
    units: dict[str, str | None] = {}
    for index, title in enumerate(titles):
        name = _known(title)
        if name is None:
            continue
        if name in columns:
            raise UnreadableInput(f"{where}: the titles {titles[columns[name]]!r} and {title!r} mean the same")
        columns[name] = index
        found = _TITLE.match(title)
        units[name] = found["unit"] if found else None
    if "calls" in columns:
        raise UnreadableInput(f"{where}: a report of host calls (Num Calls); take cuda_gpu_kern_sum or cuda_gpu_trace")
    if "nvtx range" in columns:
        raise UnreadableInput(f"{where}: kernels by NVTX range, in which nested ranges repeat; take another report")
    for name in columns.keys() & _TIMES:
        _check_unit(where, titles[columns[name]], units[name])
    reader = csv.reader(lines[1:], delimiter=_delimiter(lines[0]))
    rows = [(position + 1 + reader.line_num, row) for row in reader]
    return _Report(where, columns, units, titles, rows)


def _check_unit(where: str, title: str, unit: str | None) -> int:
    """Nanoseconds in the unit of a title; raises UnreadableInput where it has none, or one that is not known."""
    if unit is None or unit not in _UNITS:
        said = "has no unit" if unit is None else f"is in {unit!r}, which is no unit of time"
        raise UnreadableInput(f"{where}: the title {title!r} {said}; known: {', '.join(_UNITS)}")
    return _UNITS[unit]


def _need(where: str, columns: dict[str, int], *names: str) -> None:
    wanted = {"total": "Total Time", "projected": "Total Proj Time", "count": "Instances"}
    missing = [wanted.get(name, name.capitalize()) for name in names if name not in columns]
    if missing:
        raise UnreadableInput(f"{where}: the column {', '.join(missing)} is missing")


def _totals(report: _Report) -> Iterator[Total]:
    _need(report.where, report.columns, "total", "count", "name")
    for line, row in _checked(report):
        name = _cell(report, row, "name")
        yield Total(
            name=name,
            kind=_kind(name, _cell(report, row, "category")),
            count=_count(report, row, line),
            total_ns=_ns(report, row, line, "total"),
            min_ns=_ns(report, row, line, "min") if report.units.get("min") else None,
            max_ns=_ns(report, row, line, "max") if report.units.get("max") else None,
        )


def _range_totals(report: _Report) -> Iterator[RangeTotal]:
    gpu = "projected" in report.columns
    time = "projected" if gpu else "total"
    _need(report.where, report.columns, time, "count")
    for line, row in _checked(report):
        name = _cell(report, row, "range").removeprefix(":")
        yield RangeTotal(name, _count(report, row, line), _ns(report, row, line, time), gpu)


def _executions(report: _Report) -> Iterator[Kernel]:
    _need(report.where, report.columns, "duration", "name", "device", "stream")
    for line, row in _checked(report):
        name = _cell(report, row, "name")
        start_ns = _ns(report, row, line, "start")
        yield Kernel(
            name=name,
            kind=_kind(name, ""),
            start_ns=start_ns,
            end_ns=start_ns + _ns(report, row, line, "duration"),
            device=_cell(report, row, "device") or "GPU",
            stream=_cell(report, row, "stream"),
        )


def _checked(report: _Report) -> Iterator[tuple[int, list[str]]]:
    for line, row in report.rows:
        if len(row) != len(report.titles):
            hint = "; a name with commas has to be in quotes" if len(row) > len(report.titles) else "; it breaks off"
            raise UnreadableInput(f"{_at(report, line)}: {len(row)} cells under {len(report.titles)} titles{hint}")
        yield line, row


def _at(report: _Report, line: int) -> str:
    return f"{report.where.rpartition(':')[0]}:{line}"


def _cell(report: _Report, row: Sequence[str], name: str) -> str:
    return " ".join(row[report.columns[name]].split()) if name in report.columns else ""


def _kind(name: str, category: str) -> Kind:
    lowered = name.lower()
    if lowered.startswith(("[cuda mem", "cuda mem")) or category == "MEMORY_OPER":
        return "memset" if "memset" in lowered else "memcpy"
    return "kernel"


def _count(report: _Report, row: Sequence[str], line: int) -> int:
    value = _number(report, row, line, "count")
    if value != int(value) or value < 1:
        raise UnreadableInput(f"{_at(report, line)}: {report.titles[report.columns['count']]} is {value}, no count")
    return int(value)


def _ns(report: _Report, row: Sequence[str], line: int, name: str) -> int:
    """A time in whole nanoseconds, from the unit of its title."""
    title = report.titles[report.columns[name]]
    factor = _check_unit(report.where, title, report.units[name])
    value = _number(report, row, line, name)
    if value < 0:
        raise UnreadableInput(f"{_at(report, line)}: {title} is {value}: a time is not negative")
    return round(value * factor)


def _number(report: _Report, row: Sequence[str], line: int, name: str) -> Decimal:
    cell = row[report.columns[name]].strip()
    try:
        value = Decimal(cell.replace(",", "") if _GROUPED.match(cell) else cell)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise UnreadableInput(f"{_at(report, line)}: {report.titles[report.columns[name]]} is {cell[:40]!r}, no number")
    return value
