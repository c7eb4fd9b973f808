"""The report that trtllm-bench prints, out of a log: labels, units in their titles, lines of other kinds kept.

Layout: TensorRT-LLM 1.0 to 1.3.0rc, as in pull requests 7104 and 9459 and issue 6294 of NVIDIA/TensorRT-LLM. The report
is one message of the logger, so its first line has a prefix with the time; every line may have that of a launcher.
"""

from __future__ import annotations

import re
from typing import Any

from harness.results.imports.documents import Unreadable
from harness.results.imports.row import Draft, ImportRow
from harness.results.imports.table import COLUMNS
from harness.results.imports.trtllm_bench import TOOL, complete

_OVERVIEW = "= PERFORMANCE OVERVIEW"
_VERSIONS = ("TensorRT LLM Version", "TensorRT-LLM Version")

#: Number of the rank that a launcher puts before a line; time, name, level and rank that the logger does.
_LAUNCHER = re.compile(r"^\s*\[?\d+(,\d+)?\]?(<\w+>)?:(\s|$)")
_LOGGER = re.compile(r"^\[[^\]]*\]\s*\[TRT-LLM\]\s*(\[[^\]]*\]\s*)*")
_HEADER = re.compile(r"^= (?P<section>[A-Z][A-Z+ ]*\b.*?)\s*$")
_RULE = re.compile(r"^(=+|-- .* -+|-+)\s*$")
_LABEL = re.compile(r"^(?P<label>[^:]*[^:\s])\s*:\s*(?P<value>.*?)\s*$")
_TITLE = re.compile(r"^(?P<title>.*?)\s*\((?P<unit>[^()]*)\)$")
_NUMBER = re.compile(r"^(?P<number>[-+]?[0-9.]+([eE][-+]?[0-9]+)?)(?P<percent>\s*%)?$")


def is_log(text: str) -> bool:
    """Whether a text holds a printed report."""
    return _OVERVIEW in text


def read(file: str, text: str) -> ImportRow:
    """The row of a log with one report in it. Raises Unreadable where there are several."""
    labels, sections, lines = _parse(text)
    foreign: dict[str, Any] = {**labels, "sections": sections, **({"lines": lines} if lines else {})}
    draft = Draft(file, "trtllm-bench log", TOOL, foreign)
    titles = {_titled(label)[0]: label for label in labels}
    for column in COLUMNS:
        label = titles.get(column.log) if column.log else None
        if label:
            value, unit = labels[label], _titled(label)[1]
            found = _NUMBER.match(value) if value and column.kind != "text" else None
            if found:
                value, unit = _number(found["number"]), "%" if found["percent"] else unit
            draft.take(column, (label,), value, unit)
    complete(draft)
    version = next((labels[name] for name in _VERSIONS if labels.get(name)), None)
    return draft.row(f"TensorRT-LLM {version}" if version else None)


def _parse(text: str) -> tuple[dict[str, str | None], list[str], list[str]]:
    """Labels with their values, headings of sections, and the lines of the report that are neither."""
    labels: dict[str, str | None] = {}
    where: dict[str, int] = {}
    sections: list[str] = []
    lines: list[str] = []
    inside = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = _LAUNCHER.sub("", raw)
        message = _LOGGER.sub("", line)
        header = _HEADER.match(message)
        if header:
            inside = True
            sections.append(header["section"])
        elif message != line:  # the next message of the logger
            inside = False
        elif inside and message.strip() and not _RULE.match(message):
            found = _LABEL.match(message)
            if not found:
                lines.append(message.rstrip())
                continue
            label = " ".join(found["label"].split())
            if label in labels:
                raise Unreadable(f"line {number} has {label!r} again, after line {where[label]}; one report a file")
            labels[label], where[label] = found["value"] if found["value"] not in ("", "None") else None, number
    return labels, sections, lines


def _titled(label: str) -> tuple[str, str]:
    """Title and unit of a label: `Total Latency (ms)` is in `ms`."""
    found = _TITLE.match(label)
    return (found["title"], found["unit"]) if found else (label, "")


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:  # 1.2.3
        return text
