"""Read a report of any known format. The content says what it is, not the name of the file."""

from __future__ import annotations

from pathlib import Path

from harness.results.imports import aiperf, event_log, trtllm_bench, trtllm_bench_log
from harness.results.imports.documents import Unreadable, at, parse_json, read_text
from harness.results.imports.row import ImportRow

#: What `import` takes.
FORMATS = (
    "JSON and printed reports of trtllm-bench, event logs as JSON Lines, and profile_export_aiperf.json, "
    "profile_export_aiperf.csv and profile_export.jsonl of AIPerf"
)


def read_report(path: Path) -> ImportRow:
    """Return the row of a file; one that cannot be read gives a row of status `unreadable` whose note says why."""
    try:
        return _read(str(path), read_text(path))
    except Unreadable as error:
        return ImportRow(file=str(path), status="unreadable", notes=(str(error),))


def _read(file: str, text: str) -> ImportRow:
    first = text.lstrip().partition("\n")[0].rstrip()
    if first.startswith("{"):
        return _read_json(file, text, first)
    if trtllm_bench_log.is_log(text):
        return trtllm_bench_log.read(file, text)
    if first.startswith("Metric,"):
        return aiperf.read_csv(file, text)
    raise Unreadable(_unknown("it is empty" if not first else "its first line is " + repr(first[:60])))


def _read_json(file: str, text: str, first: str) -> ImportRow:
    try:
        line = parse_json(first)
    except Unreadable:  # a document of several lines, or a damaged one
        line = None
    if isinstance(line, dict) and "event" in line:
        return event_log.read(file, text)
    if isinstance(line, dict) and {"metadata", "metrics"} <= line.keys():
        return aiperf.read_jsonl(file, text)
    data = parse_json(text)
    if isinstance(at(data, ("performance",)), dict):
        return trtllm_bench.read(file, data)
    if aiperf.is_summary(data):
        return aiperf.read_json(file, data)
    raise Unreadable(_unknown(f"it has {', '.join(list(data)[:8]) or 'nothing'}"))


def _unknown(has: str) -> str:
    return f"no report that is known: {has}. Known are {FORMATS}"
