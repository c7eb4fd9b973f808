"""A file of any known format → `Trace`. What it is follows from its content; a report of nsys from its suffix."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.errors import UnreadableInput, UsageError
from harness.profiles.kernels import Trace
from harness.profiles.nsys_csv import read_nsys_csv
from harness.profiles.nsys_export import REPORT_SUFFIXES, export_sqlite
from harness.profiles.nsys_sqlite import read_nsys_sqlite
from harness.profiles.torch_trace import read_torch_trace

_SQLITE = b"SQLite format 3\x00"
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 64


def read_trace(path: Path) -> Trace:
    """Read a profile: .nsys-rep where nsys is on PATH, its SQLite export, CSV of nsys stats, a trace of torch.profiler.

    Raises UsageError where there is no such file, UnreadableInput where it is damaged or of no known format,
    EnvironmentUnfit for a report of nsys where there is no nsys.
    """
    if not path.is_file():
        raise UsageError(f"{path}: {'is a folder, not a profile' if path.is_dir() else 'no such file'}")
    if path.suffix in REPORT_SUFFIXES:
        with tempfile.TemporaryDirectory(prefix="trtllm-harness-") as folder:
            return replace(read_nsys_sqlite(export_sqlite(path, Path(folder)), str(path)), file=str(path))
    return _reader(path)(path)


def _reader(path: Path) -> Callable[[Path], Trace]:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise UnreadableInput(f"{path}: cannot be read: {error.strerror or error}") from error
    if head.startswith(_SQLITE):
        return read_nsys_sqlite
    if head.startswith(_GZIP) or head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[{", b"[\n", b"[]")):
        return read_torch_trace
    if b"\x00" in head:
        known = "an SQLite export of nsys, CSV of nsys stats, a chrome trace of torch.profiler (.json, .json.gz)"
        raise UnreadableInput(f"{path}: of no known format; known: {known}, and .nsys-rep where nsys is")
    return read_nsys_csv
