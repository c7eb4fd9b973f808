"""What a comparison is written as: Markdown by a CommonMark parser, JUnit by its schema, JSON, a page in a browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from browser import Browser
from lxml import etree
from markdown_it import MarkdownIt

from harness.analysis.compare import Comparison, compare
from harness.analysis.inputs import read_results
from harness.report.compare import comparison_data, render_junit, render_markdown, write_comparison
from harness.report.compare.markdown import escaped

HERE = Path(__file__).parent
CASE = HERE / "cases" / "12-compare-two-runs"
NASTY = "a|b <script>alert(1)</script> *x* `y` [z](http://x) \\ _u_ ]]> \x07 & #1"


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(read_results(CASE / "base.csv"), read_results(CASE / "candidate.csv"))


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Names and reasons that would break whatever does not escape them."""
    folder = tmp_path_factory.mktemp("nasty")
    quoted = '"' + NASTY.replace('"', '""') + '"'
    for name, value in (("base", "1"), ("candidate", "2")):
        lines = ["variant,status,reason,ttft_ms", f"{quoted},ok,,{value}", f"other,failed,{quoted},"]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return compare(read_results(folder / "base.csv"), read_results(folder / "candidate.csv"))


def table_cells(text: str) -> list[list[str]]:
    """Cells of every table row of a Markdown text, as text; GitHub's tables on top of CommonMark."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and token.level >= 3 and rows and token.children is not None:
            rows[-1].append("".join(child.content for child in token.children))
    return rows


def test_markdown_reads_back_as_tables(found: Comparison) -> None:
    text = render_markdown(found)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    assert [one.tag for one in tokens if one.type == "heading_open"] == ["h2", *["h3"] * len(found.sections)]
    assert sum(one.type == "table_open" for one in tokens) == len(found.sections)
    rows = table_cells(text)
    assert rows[3][-4:] == ["ttft_ms", "200.0", "220.0", "+10.0 %"]
    assert rows[4][-4:] == ["tpot_ms", "12.50", "13.50 (median of 3, 13.00 to 19.00)", "+8.0 %"]
    widths = [len(row) for row in rows]
    assert min(widths) >= 2


def test_nothing_in_an_input_formats_markdown(nasty: Comparison) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(render_markdown(nasty))
    kinds = {child.type for token in tokens for child in token.children or ()}
    assert kinds <= {"text", "text_special", "strong_open", "strong_close"}
    assert not any(token.type == "html_block" for token in tokens)
    assert any(NASTY in cell for row in table_cells(render_markdown(nasty)) for cell in row)
    assert escaped("group_size") == "group_size"


@pytest.fixture(scope="module")
def schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(str(HERE / "junit_schema" / "JUnit.xsd")))


@pytest.mark.parametrize("which", ["found", "nasty"])
def test_junit_is_valid_by_its_schema(which: str, schema: etree.XMLSchema, request: pytest.FixtureRequest) -> None:
    document = etree.fromstring(render_junit(request.getfixturevalue(which)).encode())
    schema.assertValid(document)


def test_junit_tells_failures_from_what_cannot_be_told(found: Comparison, schema: etree.XMLSchema) -> None:
    at = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
    (suite,) = etree.fromstring(render_junit(found, at).encode())
    assert suite.get("timestamp") == "2026-03-01T12:00:00"
    # 8 figures and 6 workloads without; worse are three figures and one workload
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["14", "4", "0", "5"]
    cases = suite.findall("testcase")
    failing = [case for case in cases if case.find("failure") is not None]
    assert [case.get("name") for case in failing] == ["status", "ttft_ms", "tpot_ms", "output_tok_s_per_gpu"]
    assert failing[1].find("failure").get("message") == "worse: 200.0 → 220.0; +10.0 %"
    assert sum(case.find("skipped") is not None for case in cases) == 5


def test_an_input_that_is_damaged_or_pairs_with_nothing_is_an_error_of_junit(
    tmp_path: Path, schema: etree.XMLSchema
) -> None:
    (tmp_path / "a.csv").write_text("G,ttft_ms\n1,x\n")
    (tmp_path / "b.csv").write_text("G,ttft_ms\n2,1\n")
    empty = compare(read_results(tmp_path / "a.csv"), read_results(tmp_path / "b.csv"))
    document = etree.fromstring(render_junit(empty).encode())
    schema.assertValid(document)
    (suite,) = document
    assert suite.get("errors") == "2"
    told = [error.get("message") for error in suite.iter("error")]
    assert "and no number" in told[0]
    assert told[1].startswith("Nothing could be compared")


def test_data_is_json_and_says_what_the_tables_say(found: Comparison) -> None:
    data = json.loads(json.dumps(comparison_data(found), allow_nan=False))
    assert data["headline"] == "2 workloads worse, 1 newly failing"
    assert data["exit_code"] == 1
    assert data["sections"]["worse"] == {"workloads": 2, "figures": 3}
    assert (data["paired_workloads"], data["figures_compared"]) == (5, 7)
    assert data["candidate"]["figures"]["ttft_ms"] == {"column": "ttft_s", "factor": 1000.0}
    assert [one["figure"] for one in data["pairs"] if one["verdict"] == "not computed"] == ["output_tok_s_per_gpu"]
    assert len(data["unpaired"]) == 6


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with Browser(executable) as opened:
        yield opened


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_the_page_opens_without_error_or_request_and_fits(
    browser: Browser, found: Comparison, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    browser.show(write_comparison(found, tmp_path), *size, scheme)
    browser.eval("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(("file://", "data:"))] == []
    assert browser.eval("document.documentElement.scrollWidth") <= size[0]
    assert browser.eval("document.querySelector('.verdict').textContent") == "2 workloads worse, 1 newly failing"
    assert browser.eval("document.querySelectorAll('main tbody tr').length") == 14
    assert browser.eval("document.querySelectorAll('svg.strip').length") == 7


@pytest.mark.browser
def test_the_page_finds_lines_and_shows_names_as_they_are(browser: Browser, nasty: Comparison, tmp_path: Path) -> None:
    browser.show(write_comparison(nasty, tmp_path), 1280, 900, "light")
    assert browser.complaints == []
    assert "<script>alert(1)</script>" in browser.eval("document.querySelector('#worse td').textContent")
    browser.eval("""(() => { const box = document.querySelector('#search'); box.value = 'OTHER';
        box.dispatchEvent(new Event('input')); })()""")
    assert browser.eval("[...document.querySelectorAll('main tbody tr')].filter((row) => !row.hidden).length") == 1
    assert browser.eval("document.querySelector('#found').textContent") == "1 of 2 lines"
