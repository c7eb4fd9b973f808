"""A comparison as JUnit XML, by the schema of Ant's JUnit task that Jenkins and others read.

Schema: github.com/windyroad/JUnit-Schema, JUnit.xsd (2022-04-10). A figure is a test: worse is a failure,
inconclusive and not computed are skipped with their reason. A workload without figures is a test too; newly failing is
a failure.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from xml.etree import ElementTree as ET

from harness.analysis.compare import Comparison
from harness.report.compare import words

_FAILURES = frozenset({"worse", "newly failing"})
_PASSES = frozenset({"same", "better", "newly working"})

#: What XML 1.0 has no character for.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Test:
    outcome: str
    workload: str
    name: str
    message: str


def render_junit(comparison: Comparison, at: datetime | None = None) -> str:
    """Return the document; `at` is when it was made, now by default."""
    tests = list(_tests(comparison))
    moment = (at or datetime.now(timezone.utc)).astimezone(timezone.utc)
    suites = ET.Element("testsuites")
    failures = sum(test.outcome in _FAILURES for test in tests)
    broken = list(comparison.damage) + ([words.headline(comparison)] if comparison.is_empty else [])
    suite = ET.SubElement(
        suites, "testsuite", name="compare", package="trtllm-harness", id="0",
        timestamp=moment.strftime("%Y-%m-%dT%H:%M:%S"), hostname=_clean(socket.gethostname()) or "localhost",
        tests=str(len(tests) + len(broken)), failures=str(failures), errors=str(len(broken)),
        skipped=str(sum(_is_skipped(test) for test in tests)), time="0",
    )  # fmt: skip
    properties = ET.SubElement(suite, "properties")
    for name, value in (("comparison", words.title(comparison)), *words.facts(comparison)):
        ET.SubElement(properties, "property", name=_clean(name), value=_clean(value))
    for test in tests:
        _add(suite, test)
    for number, text in enumerate(broken, 1):
        case = ET.SubElement(suite, "testcase", classname="input", name=f"input {number}", time="0")
        ET.SubElement(case, "error", type="unreadable", message=_clean(text)).text = _clean(text)
    ET.SubElement(suite, "system-out").text = _clean(words.headline(comparison))
    ET.SubElement(suite, "system-err").text = _clean("\n".join(words.warnings(comparison)))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _is_skipped(test: _Test) -> bool:
    return test.outcome not in _FAILURES | _PASSES


def _add(suite: ET.Element, test: _Test) -> None:
    case = ET.SubElement(suite, "testcase", classname=_clean(test.workload), name=_clean(test.name), time="0")
    message = f"{test.outcome}: {test.message}" if test.message else test.outcome
    if test.outcome in _FAILURES:
        ET.SubElement(case, "failure", type=test.outcome, message=_clean(message)).text = _clean(message)
    elif _is_skipped(test):
        ET.SubElement(case, "skipped", message=_clean(message))


def _tests(comparison: Comparison) -> Iterator[_Test]:
    for section in comparison.sections:
        for one in section.unpaired:
            yield _Test(section.name, comparison.names.of(one.workload), "status", words.unpaired_text(one))
        for pair in section.pairs:
            change = [words.side_text(pair.base) or "absent", words.side_text(pair.candidate) or "absent"]
            told = [" → ".join(change), words.change_text(pair), words.interval_text(pair), words.why(pair)]
            name = words.figure_text(pair)
            yield _Test(section.name, comparison.names.of(pair.workload), name, "; ".join(filter(None, told)))


def _clean(text: str) -> str:
    return _NO_XML.sub("�", text).strip()
