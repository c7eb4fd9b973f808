"""The report in words: Markdown and terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hand_run import LEFT_OUT, REFUSAL, hand_run

from harness.errors import UsageError
from harness.report import build_report, print_summary, terminal_summary
from harness.report.content import Report
from harness.report.markdown import render_markdown
from harness.report.terminal import summary_lines


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build_report([hand_run(tmp_path_factory.mktemp("runs") / "hand")])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The same study, once from tables and once from the roofline."""
    folder = tmp_path_factory.mktemp("runs")
    return build_report([hand_run(folder / "tables"), hand_run(folder / "roofline", answered_by="roofline")])


def test_markdown_says_what_the_page_says(report: Report) -> None:
    text = render_markdown(report)
    assert text.startswith(
        "# A run made by hand\n\nTwo GPUs.\n\n**composed**: priced from published kernel measurements"
    )
    for line in (
        "- Cases: 14 ok, 1 refused, 1 skipped",
        "### Contradicted on at least one GPU (1)",
        "- **A1d** G 64 is no slower than G 32.",
        "## A1d Decode lives on G",
        "- KVSL ends at 32768.",
        "### Effect of G in decode",
        "| GPU | b | KVSL | G 8 (ms) | 16 (×) | 32 (×) | 64 (×) |",
        "## Environment of hand",
    ):
        assert line in text.splitlines(), line
    assert LEFT_OUT in text
    assert REFUSAL in text


def test_every_row_of_a_markdown_table_has_as_many_cells_as_its_head(report: Report) -> None:
    width = 0
    for line in render_markdown(report).splitlines():
        cells = line.replace("\\|", "").count("|")
        width = 0 if not cells else width or cells
        assert cells == width, line


def test_markdown_escapes_what_would_break_a_table(report: Report) -> None:
    records = report.records.assign(reason="a | b\nc")
    text = render_markdown(replace(report, records=records))
    assert "a \\| b c" in text


def test_plain_summary(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(report)
    lines = capsys.readouterr().out.splitlines()
    assert lines == list(summary_lines(report))
    assert lines[0] == "A run made by hand"
    assert "Cases: 14 ok, 1 refused, 1 skipped" in lines
    assert "A1d: B200 contradicts, H200 cannot tell: G 64 is no slower than G 32." in lines
    assert "without a number in group-size: 1 skipped, 1 refused" in lines
    assert any(line.startswith("cliff: B200 decode: layer.attn.attention") for line in lines)


def test_rich_summary_holds_the_same_verdicts(report: Report) -> None:
    from rich.console import Console

    console = Console(width=120, record=True, file=io.StringIO())
    console.print(terminal_summary(report))
    text = console.export_text()
    for word in ("A run made by hand", "✗ contradicts", "? cannot tell", "✓ supports", "14 ok", "cliff"):
        assert word in text


def test_kinds_of_numbers_are_never_mixed(both: Report) -> None:
    assert [section.provenance for section in both.sections] == ["composed", "modelled"]
    assert list(both.badges) == ["composed", "modelled"]
    for section in both.sections:
        assert sum(section.counts.values()) == 16
        assert {chart.provenance for chart in section.charts} == {section.provenance}
    text = render_markdown(both)
    assert "## Findings, composed" in text.splitlines()
    assert "## Findings, modelled" in text.splitlines()
    lines = list(summary_lines(both))
    assert "Cases, composed: 14 ok, 1 refused, 1 skipped" in lines
    assert "Cases, modelled: 15 ok, 1 skipped" in lines
    # the roofline knows no cliff
    assert sum(line.startswith("cliff") for line in lines) == 1
    assert sum(line.endswith("G 64 is no slower than G 32. [modelled]") for line in lines) == 1


def test_rows_of_one_study_answered_in_two_ways_are_two_sections(tmp_path: Path) -> None:
    run = hand_run(tmp_path / "run")
    provenance = ["modelled" if system == "h200_sxm" else "composed" for system in run.records["system"]]
    sections = build_report([replace(run, records=run.records.assign(provenance=provenance))]).sections
    assert [(section.provenance, {v.system for v in section.verdicts}) for section in sections] == [
        ("composed", {"b200_sxm"}),
        ("modelled", {"h200_sxm"}),
    ]


def test_a_run_without_rows_is_an_error(tmp_path: Path) -> None:
    run = hand_run(tmp_path / "run")
    with pytest.raises(UsageError, match="there are no rows to report"):
        build_report([replace(run, records=run.records.iloc[:0])])
    with pytest.raises(UsageError, match="no run"):
        build_report([])


def test_damage_of_a_run_is_said(tmp_path: Path) -> None:
    damaged = replace(hand_run(tmp_path / "run"), damage=("journal.jsonl: the last line is incomplete",))
    assert "> journal.jsonl: the last line is incomplete" in render_markdown(build_report([damaged]))
