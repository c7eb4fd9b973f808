"""Read the SQLite export of Nsight Systems, made by `nsys export --type sqlite`.

Tables and columns: NVIDIA Nsight Systems documentation, "SQLite Schema Reference". They are made lazily, so that one
without rows is not there at all. Times are nanoseconds. Kernels of CUDA graphs are led back to the time of their
capture by CUDA_GRAPH_NODE_EVENTS (graphNodeId → originalGraphNodeId), as TensorRT-LLM's
examples/layer_wise_benchmarks/parse.py does.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import UnreadableInput
from harness.profiles.kernels import Kernel, Kind, Range, Trace
from harness.profiles.windows import enclosing

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NODES = "CUDA_GRAPH_NODE_EVENTS"
NVTX = "NVTX_EVENTS"

#: Tables any of which an export of a profile has.
_OF_NSYS = frozenset({KERNELS, RUNTIME, NVTX, "ANALYSIS_DETAILS", "ENUM_NSYS_EVENT_TYPE", "META_DATA_CAPTURE"})
#: Event types of NVTX_EVENTS that are ranges: name in ENUM_NSYS_EVENT_TYPE → its number where that table is missing.
_RANGE_TYPES = {"NvtxPushPopRange": 59, "NvtxStartEndRange": 60}
_DOMAIN_TYPE = {"NvtxDomainCreate": 75}
#: The thread is the low 24 bits of globalTid; the rest is the process (documentation, "Serialized identifiers").
_PROCESS_MASK = ~0xFFFFFF
_LAYERWISE = "layer_wise_benchmarks "
_ARGS = _LAYERWISE + "args "

_Point = tuple[int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class _Launch:
    start_ns: int
    thread: int | None
    process: int | None


@dataclass(slots=True)
class _Base:
    """An open export."""

    file: str
    connection: sqlite3.Connection
    columns: dict[str, set[str]]
    texts: dict[int, str]

    def has(self, table: str) -> bool:
        return table in self.columns

    def rows(self, table: str, required: Sequence[str], optional: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        """Rows of a table that is there; UnreadableInput where it lacks a required column, NULL for an optional one."""
        have = self.columns[table]
        missing = [name for name in required if name not in have]
        if missing:
            raise UnreadableInput(f"{self.file}: table {table} lacks {', '.join(missing)}; export the report again")
        wanted = [f'"{name}"' if name in have else "NULL" for name in (*required, *optional)]
        return self.connection.execute(f'SELECT {", ".join(wanted)} FROM "{table}"')  # noqa: S608  # names of ours


def read_nsys_sqlite(path: Path, file: str | None = None) -> Trace:
    """Read an export; `file` is how messages call it.

    Raises UnreadableInput where it is no SQLite file, no export of Nsight Systems, damaged, or lacks columns. An export
    without kernels is no error: that of a capture in which none ran has none.
    """
    name = file or str(path)
    try:
        # immutable: an export on a read-only file system opens too, and nothing is written beside it.
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            return _trace(_open(name, connection))
    except sqlite3.Error as error:
        raise UnreadableInput(f"{name}: not a readable SQLite export of nsys: {error}") from error


def _open(file: str, connection: sqlite3.Connection) -> _Base:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    columns = {name: {row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')} for name in names}
    if not _OF_NSYS & columns.keys():
        raise UnreadableInput(f"{file}: no export of nsys: it has none of {', '.join(sorted(_OF_NSYS))}")
    base = _Base(file, connection, columns, {})
    if base.has("StringIds"):
        base.texts = {key: " ".join(str(value).split()) for key, value in base.rows("StringIds", ("id", "value"))}
    elif base.has(KERNELS):
        raise UnreadableInput(f"{file}: table StringIds is missing, so that no kernel has a name; export it again")
    return base


def _trace(base: _Base) -> Trace:
    ranges, layerwise, notes = _ranges(base)
    calls, captures, launches = _calls(base)
    executions = list(_executions(base, calls, notes))
    points, unknown = _points(base, executions)
    names = enclosing(ranges, points) if ranges else [()] * len(points)
    kernels = [replace(kernel, ranges=found) for (kernel, _), found in zip(executions, names, strict=True)]
    if unknown and ranges:
        notes.append(f"{unknown:,} kernels of CUDA graphs were captured before the profile began: no range names them")
    missing = []
    if base.has(GRAPHS):
        [(graphs,)] = base.connection.execute(f'SELECT COUNT(*) FROM "{GRAPHS}"')  # noqa: S608
        if graphs:
            missing.append(f"{graphs:,} graph launches were traced whole, without kernels: use --cuda-graph-trace node")
    if launches and not any(kernel.kind == "kernel" for kernel in kernels):
        missing.append(
            f"{launches:,} launches were recorded and no kernel: CUDA tracing did not work there (a driver older than "
            "the container's CUDA, or no permission), or the kernels are in graphs"
        )
    return Trace(
        file=base.file,
        format="nsys-sqlite",
        tool=_tool(base),
        kernels=tuple(sorted(kernels, key=lambda one: (one.start_ns, one.end_ns))),
        ranges=tuple(ranges),
        captures=tuple(captures),
        layerwise=layerwise,
        launches=launches if base.has(RUNTIME) else None,
        missing=tuple(missing),
        notes=tuple(notes),
    )


def _tool(base: _Base) -> str:
    """`NVIDIA Nsight Systems 2025.3.2`, from META_DATA_EXPORT where it is there."""
    if not base.has("META_DATA_EXPORT"):
        return "NVIDIA Nsight Systems"
    told = {str(key): value for key, value in base.rows("META_DATA_EXPORT", ("name", "value"))}
    name = told.get("EXPORT_PRODUCT_NAME") or "NVIDIA Nsight Systems"
    return f"{name} {told.get('EXPORT_PRODUCT_VERSION') or ''}".strip()


def _ranges(base: _Base) -> tuple[list[Range], dict[str, object], list[str]]:
    """NVTX ranges but those of NCCL and DeepGEMM, what layer-wise benchmarks say of themselves, and notes."""
    if not base.has(NVTX):
        return [], {}, []
    pushed, started = _types(base, _RANGE_TYPES)
    [created] = _types(base, _DOMAIN_TYPE)
    rows = list(base.rows(NVTX, ("start", "end"), ("eventType", "text", "textId", "domainId", "globalTid")))
    nccl = {
        domain
        for _, _, kind, text, text_id, domain, _ in rows
        if kind == created and _text(base, text, text_id) == "NCCL"
    }
    found: list[Range] = []
    layerwise: dict[str, object] = {}
    unended = 0
    for start, end, kind, text, text_id, domain, thread in rows:
        name = _text(base, text, text_id)
        if kind not in {None, pushed, started} or (domain in nccl and domain is not None) or name.startswith("[DG]"):
            continue
        if name.startswith(_LAYERWISE):
            layerwise |= _args(name)
        elif end is None:
            unended += 1
        else:
            found.append(Range(name, start, end, _process(thread), None if kind == started else thread))
    return found, layerwise, [f"{unended:,} NVTX ranges never end and are left out"] if unended else []


def _types(base: _Base, names: dict[str, int]) -> list[int]:
    known = dict(base.rows("ENUM_NSYS_EVENT_TYPE", ("name", "id"))) if base.has("ENUM_NSYS_EVENT_TYPE") else names
    return [known.get(name, number) for name, number in names.items()]


def _text(base: _Base, text: str | None, text_id: int | None) -> str:
    found = text if text is not None else base.texts.get(text_id, "") if text_id is not None else ""
    return " ".join(found.split())


def _args(name: str) -> dict[str, object]:
    try:
        told = json.loads(name[len(_ARGS) :]) if name.startswith(_ARGS) else {}
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _process(thread: int | None) -> int | None:
    return None if thread is None else thread & _PROCESS_MASK


def _calls(base: _Base) -> tuple[dict[tuple[int | None, int], _Launch], list[Range], int]:
    """Host calls by process and correlation, the capture ranges that they make, and how many launch something."""
    if not base.has(RUNTIME):
        return {}, [], 0
    calls: dict[tuple[int | None, int], _Launch] = {}
    open_now: dict[int | None, int] = {}
    captures: list[Range] = []
    launches = 0
    rows = base.rows(RUNTIME, ("start", "end"), ("correlationId", "globalTid", "nameId"))
    for start, end, correlation, thread, name_id in sorted(rows, key=lambda row: row[0]):
        process, name = _process(thread), base.texts.get(name_id, "")
        if correlation is not None:
            calls[process, correlation] = _Launch(start, thread, process)
            calls.setdefault((None, correlation), calls[process, correlation])
        launches += "LaunchKernel" in name or "GraphLaunch" in name
        if name.startswith(("cudaProfilerStart", "cuProfilerStart")):
            open_now.setdefault(process, start)
        elif name.startswith(("cudaProfilerStop", "cuProfilerStop")) and process in open_now:
            captures.append(Range("capture", open_now.pop(process), end, process))
    return calls, captures, launches


def _executions(
    base: _Base, calls: dict[tuple[int | None, int], _Launch], notes: list[str]
) -> Iterator[tuple[Kernel, int | None]]:
    """What ran on GPUs, with its graph node; what ends before it starts is left out and said."""
    tables: tuple[tuple[str, Kind], ...] = ((KERNELS, "kernel"), (MEMCPY, "memcpy"), (MEMSET, "memset"))
    found = [(kind, row) for table, kind in tables if base.has(table) for row in _activity(base, table, kind)]
    processes = {row[5] for _, row in found}
    told = "globalTid" in base.columns.get(RUNTIME, ())
    backwards = 0
    for kind, (start, end, gpu, stream, correlation, process, node, name) in found:
        if end < start:
            backwards += 1
            continue
        launch = calls.get((process if told else None, correlation))
        device = f"GPU {gpu}" if len(processes) < 2 else f"GPU {gpu} of process {_pid(process)}"
        yield (
            Kernel(
                name, kind, start, end, device, str(stream), process,
                launch.thread if launch else None, launch.start_ns if launch else None, node is not None,
            ),
            node,
        )  # fmt: skip
    if backwards:
        notes.append(f"{backwards:,} executions end before they start and are left out")


def _activity(base: _Base, table: str, kind: Kind) -> Iterator[tuple[Any, ...]]:
    """start, end, device, stream, correlation, process, graph node, name; the name of a copy tells its direction."""
    required = ["start", "end", "deviceId", "streamId"]
    optional = ["correlationId", "globalPid", "graphNodeId"]
    if kind == "kernel":
        named = next((one for one in ("demangledName", "shortName") if one in base.columns[table]), "demangledName")
        for *row, name_id in base.rows(table, [*required, named], optional):
            start, end, gpu, stream, text_id, correlation, process = row
            yield start, end, gpu, stream, correlation, process, name_id, base.texts.get(text_id, f"(name {text_id})")
        return
    kinds: dict[int, str] = {}
    if kind == "memcpy" and base.has("ENUM_CUDA_MEMCPY_OPER"):
        kinds = {key: str(label) for key, label in base.rows("ENUM_CUDA_MEMCPY_OPER", ("id",), ("label",))}
    for *row, copy in base.rows(table, required, [*optional, "copyKind"]):
        yield (*row, f"CUDA {kind} {kinds.get(copy, '')}".strip())


def _pid(process: int | None) -> int | str:
    """The operating system's number: the 24 bits above those of the thread."""
    return "?" if process is None else (process >> 24) & 0xFFFFFF


def _points(base: _Base, executions: Sequence[tuple[Kernel, int | None]]) -> tuple[list[_Point], int]:
    """When, and in whose thread, each execution was launched, those of graphs captured; and how many of these fail."""
    captured: dict[int, _Launch] = {}
    original: dict[int, int] = {}
    if base.has(NODES):
        for start, node, parent, thread in base.rows(
            NODES, ("start", "graphNodeId"), ("originalGraphNodeId", "globalTid")
        ):
            if parent is not None:
                original[node] = parent
            else:
                captured[node] = _Launch(start, thread, _process(thread))
    points: list[_Point] = []
    unknown = 0
    for kernel, node in executions:
        at: _Launch | None = captured.get(_first(node, original)) if node is not None else None
        if node is not None and at is None:
            unknown += 1
        if at is None and kernel.launched_ns is not None:
            at = _Launch(kernel.launched_ns, kernel.thread, kernel.process)
        points.append((at.start_ns, at.process, at.thread) if at else (-1, None, None))
    return points, unknown


def _first(node: int, original: dict[int, int]) -> int:
    """The node that was captured, behind all its clones."""
    seen = set()
    while node in original and node not in seen:
        seen.add(node)
        node = original[node]
    return node
