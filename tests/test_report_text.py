"""The report in words: Markdown and terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hand_run import LEFT_OUT, REFUSAL, STUDY_DATA, hand_run

from harness.errors import UsageError
from harness.report import build_report, print_summary, terminal_summary
from harness.report.content import Report
from harness.report.markdown import render_markdown
from harness.report.terminal import summary_lines
from harness.spec.base import parse
from harness.spec.study import Study


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
        "- Sources, share of time: exact 79 %, interpolated 18 %, modelled 3 %",
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
    assert "hand (4 shapes); B200, H200; decode" in lines
    assert (
        "cliff: B200 decode, G within (32, 64]: layer.attn.attention ×40.0 from G 32 to 64 (64:2 → 64:1 heads) "
        "at b 8, KVSL 32768 (0.0400 → 1.600 ms), ×10.0 at b 1"
    ) in lines
    assert (
        "A1d: B200 contradicts 40.0×; H200 cannot tell (needed rows are refused): G 64 is no slower than G 32." in lines
    )
    assert "cannot be judged: 1 claim (on H200): needed rows are refused" in lines


def test_one_study_shows_what_its_axes_do(report: Report) -> None:
    effects = [line for line in summary_lines(report) if line.startswith("effect: ")]
    # B200 at b 8: the layer takes 1.25 ms at G 8, of which attention 0.8; 0.5, 0.4 and 16 ms at G 16, 32, 64
    assert effects[0].startswith("effect: B200: G 8 takes 1.2")
    assert effects[0].endswith("best: G 32 (decode, b 8, KVSL 32768; one of 2 workloads)")
    assert len(effects) == 2


def suite_of(folder: Path, *changes: dict[str, Any]) -> Report:
    """Studies like the hand-made one, each with changes, in one report."""
    runs = [
        hand_run(folder / f"run-{number}", study=parse(Study, {**STUDY_DATA, **change}, "s"))
        for number, change in enumerate(changes)
    ]
    return build_report(runs)


def test_of_several_studies_each_has_its_bottom_line(tmp_path: Path) -> None:
    report = suite_of(tmp_path, {"name": "one"}, {"name": "two", "guidelines": "A1o"})
    lines = list(summary_lines(report))
    for label in ("A1d", "A1o"):
        (line,) = [line for line in lines if line.startswith(f"{label}: ")]
        assert line == (
            f"{label}: B200 supports 0.625×; H200 supports 0.643×: Doubling G from 8 to 16 pays. "
            "(other claims: 1 contradicts, 1 cannot tell)"
        )
    assert not any(line.startswith("effect: ") for line in lines)


def test_a_study_that_claims_nothing_shows_its_effects_among_the_findings(tmp_path: Path) -> None:
    report = suite_of(tmp_path, {"name": "one"}, {"name": "two", "guidelines": [], "claims": []})
    effects = [line for line in summary_lines(report) if line.startswith("effect: ")]
    assert [line.partition(": G 8")[0] for line in effects] == ["effect: two, B200", "effect: two, H200"]
    text = render_markdown(report)
    assert "Effects of what was asked:" in text
    assert "- **two**, B200: G 8 takes" in text


def test_narrowed_axes_show_what_was_asked_and_group_what_is_lost(tmp_path: Path) -> None:
    report = suite_of(
        tmp_path, {"name": "one"}, {"name": "two", "guidelines": "A1o", "axes": {"G": [8, 32]}, "exclude": []}
    )
    lines = list(summary_lines(report))
    assert (
        "cannot be judged: 2 claims: G 16, G 64 not in this sweep; 1 claim (on H200): needed rows are refused" in lines
    )
    assert any(line.startswith("effect: A1o, B200: G 8 takes") for line in lines)
    assert not any(line.startswith("effect: A1d") for line in lines)


def test_the_summary_of_many_studies_is_short(tmp_path: Path) -> None:
    report = suite_of(tmp_path, *({"name": f"study-{number}", "guidelines": f"X{number}"} for number in range(9)))
    # title, provenance, what was asked, cases, sources; one cliff; nine bottom lines; what cannot be judged
    assert len(list(summary_lines(report))) == 5 + 1 + 9 + 1


def test_the_roofline_is_loud_and_judges_nothing(tmp_path: Path) -> None:
    report = build_report([hand_run(tmp_path / "run", answered_by="roofline")])
    text = "priced from the roofline; install trtllm-harness[tables] for verdicts"
    lines = list(summary_lines(report))
    assert lines.count(f"NO VERDICTS: {text}") == 1
    assert not any("supports" in line or "contradicts" in line for line in lines)
    assert any(line.startswith("A1d: B200 roofline only 0.5") for line in lines)
    markdown = render_markdown(report)
    assert f"> **{text}**" in markdown.splitlines()
    assert "roofline only: layer.attn.attention, b 8, KVSL 32768: G 16 over 8 is 0.5" in markdown
    assert "What the published tables cannot show (these numbers are the roofline's):" in markdown.splitlines()


def test_rich_summary_holds_the_same_verdicts(report: Report) -> None:
    from rich.console import Console

    console = Console(width=120, record=True, file=io.StringIO())
    console.print(terminal_summary(report))
    text = console.export_text()
    for word in ("A run made by hand", "✗ 40.0×", "? (needed rows are", "✓ 0.625×", "14 ok", "cliff", "effect"):
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
    (modelled,) = [line for line in lines if line.startswith("A1d modelled: ")]
    assert modelled.startswith("A1d modelled: B200 roofline only 0.5")
    assert modelled.endswith("Doubling G from 8 to 16 pays. [modelled]")


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
    assert "> **journal.jsonl: the last line is incomplete**" in render_markdown(build_report([damaged]))
