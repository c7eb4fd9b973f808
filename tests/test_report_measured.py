"""Reports of rows that ran, of rows beside their prices, and of imported rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from hand_run import STUDY, hand_run
from measured_run import Machine, measured_attempts, write

from harness.report import build_report, report_data, write_report
from harness.report.html import render_html
from harness.report.markdown import render_markdown
from harness.report.measured import failures_table, run_facts_table, summary_text
from harness.report.terminal import summary_lines
from harness.results.record import QUESTION
from harness.results.store import Attempt, Run
from harness.spec.expand import PlannedCase

H200 = STUDY.model_copy(update={"systems": ("h200_sxm",)})
NOISY = {
    "flags": ["noisy"], "foreign_cpus": 1.31, "telemetry_valid": False, "telemetry_note": "2 of 40 samples not covered",
}  # fmt: skip


def time_ms(planned: PlannedCase) -> float:
    g, batch = planned.coordinates["G"], planned.coordinates["batch"]
    return {8: 1.9, 16: 1.5, 32: 1.4, 64: 3.0}[g] * (1 + batch / 4)


def changes(planned: PlannedCase, replicate: int) -> dict[str, Any]:
    g, batch = planned.coordinates["G"], planned.coordinates["batch"]
    if (g, batch, replicate) == (64, 8, 1):
        return {"status": "crash", "reason": "killed by SIGSEGV"}
    return NOISY if (g, batch, replicate) == (8, 1, 2) else {}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "measured"
    return write(folder, H200, measured_attempts(H200, time_ms, Machine(), changes))


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return hand_run(tmp_path_factory.mktemp("runs") / "composed")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that holds imported rows and nothing else: no shape, no system, no study that asked."""
    (one, *_) = measured_attempts(H200, time_ms, Machine(replicates=1))
    nothing: dict[str, Any] = dict.fromkeys([*QUESTION, "experts", "step_ms", "replicate", "arms", "isl", "kvsl"])
    names = [name for name in nothing if name != "case"]
    record = replace(
        one.record, **dict.fromkeys(names), case=None, provenance="imported", answered_by="trtllm-bench",
        answered_with="trtllm 1.0.0", level="serve", study="imports", coordinates="{}", variant="llama-8b",
        tok_s_per_gpu=1234.5, flags=["suspect"], foreign='{"kv_cache_percentage": 0.9}', worst_source=None,
        source_shares=None, roofline_ms=None, flops=None, hbm_bytes=None, link_bytes=None, kv_bytes_per_gpu=None,
    )  # fmt: skip
    return write(tmp_path_factory.mktemp("runs") / "foreign", H200, [Attempt(record)])


def test_facts_of_the_run(measured: Run) -> None:
    facts = {row[0].text: row[1].text for row in run_facts_table(measured.records).rows}
    assert facts["Device"] == "NVIDIA H200"
    assert facts["Host"] == "node7"
    assert facts["Answered by"] == "torch: torch 2.13.0"
    assert facts["Threads"] == "2"
    assert facts["Replicates"] == "3 fresh processes for each case"
    assert facts["Samples of a row"] == "40, 0 discarded with a cause"
    assert facts["Sampling ended"] == "precise 23"
    assert facts["Telemetry"] == "valid for 22 of 23 rows; 2 of 40 samples not covered (1 rows)"
    assert facts["Processors that others kept busy"] == "0.03 to 1.31"
    assert facts["Flag noisy"].startswith("1 of 23 rows: others kept the machine busy")
    assert "Power, all GPUs" not in facts


def test_failures_say_class_reason_log_and_what_to_do(measured: Run) -> None:
    table = failures_table(measured.records, {"h200_sxm": "H200"})
    (row,) = ({column.title: cell.text for column, cell in zip(table.columns, one, strict=True)} for one in table.rows)
    assert row == {
        "Class": "crash",
        "Study": "group-size",
        "On": "H200",
        "Case": "decode G 64, b 8, KVSL 32768",
        "Replicate": "1",
        "Reason": "killed by SIGSEGV",
        "Log": "logs/decode-r1.log",
        "Advice": "read the log; `trtllm-harness rerun ATTEMPT` runs this case alone",
        "Attempt": "RUN.000007.r1",
    }


def test_what_a_row_advises_itself_comes_first(tmp_path: Path) -> None:
    own = {"status": "oom", "reason": "no room", "how": json.dumps({"advice": "take batch 4"})}
    attempts = measured_attempts(H200, time_ms, Machine(replicates=1), lambda _, __: own)
    table = failures_table(write(tmp_path / "run", H200, attempts).records, {})
    assert {row[7].text for row in table.rows} == {"take batch 4"}


def test_the_page_shows_medians_with_intervals_and_failures(measured: Run) -> None:
    page = render_html(build_report([measured]))
    for text in ("Measured cases", "How it was measured", "Failures", "killed by SIGSEGV", "logs/decode-r1.log"):
        assert text in page
    assert '"error_y":{' in page
    assert "99 % interval over 3 replicates" in page
    assert "scatter allowed" not in page
    assert "Measured beside composed" not in page


def test_markdown_has_the_same(measured: Run) -> None:
    text = render_markdown(build_report([measured]))
    assert "### Measured cases" in text
    assert "### Failures" in text
    assert "### How it was measured" in text
    assert "| Device | NVIDIA H200 |" in text
    assert "(8 cases, up to 3 replicates)" in text


def test_the_terminal_says_what_ran_and_what_failed(measured: Run) -> None:
    lines = list(summary_lines(build_report([measured])))
    assert "ran on NVIDIA H200: 3 replicates, 23 of 24 rows, 920 samples; 1 crash; 1 noisy" in lines


def test_the_terminal_says_why_nothing_was_timed(measured: Run) -> None:
    why = "this worker runs on a CPU, and the case asks for h200_sxm"
    records = measured.records.assign(status="unsupported", reason=why)
    assert summary_text(records) == f"nothing was timed: none of 24 rows; first unsupported: {why}"


def test_data_has_it_too(measured: Run) -> None:
    data = json.loads(json.dumps(report_data(build_report([measured])), allow_nan=False))
    (study,) = data["studies"]
    assert study["measured"]["facts"]["Device"] == "NVIDIA H200"
    assert [one["Class"] for one in study["measured"]["failures"]] == ["crash"]
    case = study["measured"]["cases"][0]
    assert case["replicates"] == 2  # the third was disturbed
    assert case["low_ms"] < case["high_ms"]
    figure = study["verdicts"][0]["figures"][0]
    assert figure["low"] < figure["value"] < figure["high"]
    assert "beside" not in data
    assert "imported" not in data


def test_one_replicate_says_so_everywhere(tmp_path: Path) -> None:
    run = write(tmp_path / "once", H200, measured_attempts(H200, time_ms, Machine(replicates=1)))
    report = build_report([run])
    data = json.loads(json.dumps(report_data(report), allow_nan=False))
    assert {one["verdict"] for one in data["studies"][0]["verdicts"]} == {"cannot tell"}
    assert {one["reason"] for one in data["studies"][0]["verdicts"]} == {"1 replicate"}
    text = render_markdown(report)
    assert "(1 replicate)" in text
    assert '"error_y"' not in render_html(report)


def test_measured_beside_composed(measured: Run, composed: Run) -> None:
    report = build_report([measured, composed])
    data = json.loads(json.dumps(report_data(report), allow_nan=False))
    cases = data["beside"]["cases"]
    assert len(cases) == 6  # the tables refuse one and the study leaves one out
    first = cases[0]
    # H200, b 1, G 8: 10 layers of 0.030 ms attention and five GEMMs of 0.010 ms, with the roofline of the rest
    assert first["error_pct"] == pytest.approx(100 * (first["composed_ms"] / first["measured_ms"] - 1))
    assert {one["category"] for one in data["beside"]["categories"]} >= {"attention", "ffn", "projection"}
    page, text = render_html(report), render_markdown(report)
    assert 'id="beside"' in page
    assert "## Measured beside composed" in text
    assert any(line.startswith("beside: H200 decode: composed / measured - 1 is ") for line in summary_lines(report))


def test_provenances_meet_nowhere_else(measured: Run, composed: Run) -> None:
    both = build_report([measured, composed])
    alone = [build_report([measured]).sections[0], build_report([composed]).sections[0]]
    for one, other in zip(both.sections, alone, strict=True):
        assert one.verdicts == other.verdicts
        assert one.shares == other.shares
        assert one.cliffs == other.cliffs


def test_a_report_of_imported_rows_alone(foreign: Run, tmp_path: Path) -> None:
    report = build_report([foreign])
    assert report.sections == ()
    index = write_report(report, tmp_path / "out")
    page, text = index.read_text(), (tmp_path / "out" / "report.md").read_text()
    for told in ("trtllm-bench", "1234", "kv_cache_percentage = 0.9", "suspect", "llama-8b"):
        assert told in text
    assert "Imported rows" in page
    lines = list(summary_lines(report))
    assert "imported: taken from a report of another tool" in lines
    data = json.loads(json.dumps(report_data(report), allow_nan=False))
    assert data["imported"][0]["Variant"] == "llama-8b"
    assert data["studies"] == []


def test_imported_rows_beside_others_change_nothing(foreign: Run, measured: Run) -> None:
    both, alone = build_report([measured, foreign]), build_report([measured])
    assert [one.verdicts for one in both.sections] == [one.verdicts for one in alone.sections]
    assert "Imported rows" in render_html(both)


def test_a_run_on_the_cpu_has_no_roofline(tmp_path: Path) -> None:
    run = write(tmp_path / "cpu", H200, measured_attempts(H200, time_ms, Machine(on_cpu=True)))
    report = build_report([run])
    assert dict(report.facts())["Machines"] == "CPU"
    assert not any(chart.has_roofline for chart in report.sections[0].charts)
    assert "on at least one machine" in render_html(report)
    assert [one.verdict for one in report.sections[0].verdicts] == ["supports", "contradicts"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with Browser(executable) as opened:
        yield opened


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_in_a_browser(
    browser: Browser, measured: Run, composed: Run, foreign: Run, tmp_path: Path, width: int
) -> None:
    browser.show(write_report([measured, composed, foreign], tmp_path), width, 900, "dark")
    browser.wait("document.documentElement.dataset.plots === 'drawn'")
    browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    browser.wait("[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('svg.main-svg'))")
    assert browser.complaints == []
    assert browser.eval("document.querySelectorAll('.errorbars .yerror').length") > 0
    assert browser.eval("document.documentElement.scrollWidth") <= width
