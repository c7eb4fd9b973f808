"""Read a chrome trace of torch.profiler: `export_chrome_trace`, or TLLM_TORCH_PROFILE_TRACE of TensorRT-LLM.

The format gives `ts` and `dur` in microseconds, with decimals (Trace Event Format; `displayTimeUnit` is how a viewer
shows them). They are read as decimal numbers: a time since 1970 in microseconds does not fit into a float.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from harness.errors import UnreadableInput
from harness.profiles.kernels import Kernel, Kind, Range, Trace
from harness.profiles.windows import enclosing

#: Category of an event → what it is; capitals are those of torch before 1.11.
_KINDS: dict[str, Kind] = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "memcpy", "Memcpy": "memcpy",
    "gpu_memset": "memset", "Memset": "memset",
}  # fmt: skip
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime"})
_RANGES = frozenset({"user_annotation"})

_Event = Mapping[str, Any]


def read_torch_trace(path: Path) -> Trace:
    """Read a trace, gzipped or not; raise UnreadableInput where it is damaged or no trace.

    A trace without GPU events is no error: that of a capture of the CPU alone has none.
    """
    data = _load(path)
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise UnreadableInput(f"{path}: no chrome trace: it has no list 'traceEvents'")
    whole = [event for event in events if isinstance(event, dict) and event.get("ph", "X") == "X"]
    calls = {
        correlation: event
        for event in whole
        if event.get("cat") in _CALLS and (correlation := _arg(event, "correlation")) is not None
    }
    ranges = list(_ranges(whole, path))
    kernels, unended = _kernels(whole, calls, path)
    points = [(-1 if one.launched_ns is None else one.launched_ns, None, one.thread) for one in kernels]
    names = enclosing(ranges, points)
    launches = sum("Launch" in _name(event) for event in calls.values())
    missing = () if kernels or not launches else (f"{launches:,} launches were recorded and no kernel",)
    return Trace(
        file=str(path),
        format="torch-trace",
        tool="torch.profiler",
        kernels=tuple(_with_ranges(kernels, names)),
        ranges=tuple(ranges),
        launches=launches if calls else None,
        missing=missing,
        notes=(f"{unended:,} executions have no duration and are left out",) if unended else (),
    )


def _load(path: Path) -> Any:
    """The JSON of a file, with decimals kept exact."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        return json.loads(text, parse_float=Decimal)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableInput(f"{path}: damaged gzip: {error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{path}: not UTF-8 text at byte {error.start}") from error
    except json.JSONDecodeError as error:
        whole = "the file breaks off" if error.pos >= len(error.doc.rstrip()) - 1 else error.msg
        raise UnreadableInput(f"{path}:{error.lineno}:{error.colno}: not JSON: {whole}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path}: not JSON: {error}") from error
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror or error}") from error


def _ranges(events: Sequence[_Event], path: Path) -> Iterator[Range]:
    """Annotations of the program, such as `ProfilerStep#5` and those of record_function."""
    for event in events:
        if event.get("cat") in _RANGES and "dur" in event:
            start_ns = _ns(event, "ts", path)
            yield Range(_name(event), start_ns, start_ns + _ns(event, "dur", path), None, _thread(event))


def _kernels(events: Sequence[_Event], calls: Mapping[Any, _Event], path: Path) -> tuple[list[Kernel], int]:
    """What ran on GPUs in order of its start, and how many events have no duration."""
    found, unended = [], 0
    for event in events:
        kind = _KINDS.get(str(event.get("cat")))
        if kind is None:
            continue
        if "dur" not in event:
            unended += 1
            continue
        call = calls.get(_arg(event, "correlation"))
        start_ns = _ns(event, "ts", path)
        found.append(
            Kernel(
                name=_name(event),
                kind=kind,
                start_ns=start_ns,
                end_ns=start_ns + _ns(event, "dur", path),
                device=f"GPU {_arg(event, 'device', event.get('pid', '?'))}",
                stream=str(_arg(event, "stream", event.get("tid", "?"))),
                thread=_thread(call) if call else None,
                launched_ns=_ns(call, "ts", path) if call else None,
                in_graph=_arg(event, "graph node id", 0) != 0,
            )
        )
    return sorted(found, key=lambda one: (one.start_ns, one.end_ns)), unended


def _with_ranges(kernels: list[Kernel], names: list[tuple[str, ...]]) -> Iterator[Kernel]:
    return (replace(kernel, ranges=found) for kernel, found in zip(kernels, names, strict=True))


def _ns(event: _Event, field: str, path: Path) -> int:
    """A time of an event in whole nanoseconds, from µs; raise UnreadableInput where it is no number."""
    value = event.get(field)
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
        raise UnreadableInput(f"{path}: event {_name(event)!r} has {field} {value!r}, which is no time in µs")
    nanoseconds = round(Decimal(value) * 1000)
    if field == "dur" and nanoseconds < 0:
        raise UnreadableInput(f"{path}: event {_name(event)!r} has the negative duration {value} µs")
    return nanoseconds


def _name(event: _Event) -> str:
    return " ".join(str(event.get("name", "")).split()) or "(no name)"


def _arg(event: _Event, name: str, default: Any = None) -> Any:
    args = event.get("args")
    return args.get(name, default) if isinstance(args, dict) else default


def _thread(event: _Event) -> int | None:
    thread = event.get("tid")
    return thread if isinstance(thread, int) else None
