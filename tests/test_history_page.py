"""The page and the Markdown of a history."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from browser import Browser
from command_line import REPOSITORY
from markdown_it import MarkdownIt

from harness.analysis.history import History, Index, judge_history, parse_policy, read_sources
from harness.report.history import render_markdown, render_page, write_history
from harness.report.history.payload import history_payload

CASE = REPOSITORY / "tests" / "cases" / "07-nightly-history" / "history.csv"


@pytest.fixture(scope="module")
def history() -> History:
    found = read_sources([CASE], Index(None))
    return judge_history(found.sources, parse_policy(["threshold=5%,nights=3"]))


def test_the_payload_has_every_night_with_its_state_and_value(history) -> None:
    data = history_payload(history)
    assert (len(data["nights"]), data["nights"][0], data["nights"][-1]) == (24, "2026-03-01", "2026-03-24")
    one = data["series"][0]
    assert (one["n"], data["verdicts"][one["v"]]) == ("A-g8-h128-nvfp4", "regression")
    assert one["s"] == "uuuuuuutuuuussssrrrrrrrr"
    assert one["x"][7] == 931.0
    assert one["q"][-1] == 2  # samples of the last night
    assert one["y"][-2:] == [939.0, 941.7]
    stopped = next(series for series in data["series"] if series["n"].startswith("D"))
    assert stopped["s"] == "uuuuuuuuuuuuuu....f....."
    assert len(stopped["x"]) == 14


def test_rows_behind_a_night_are_named(history) -> None:
    data = history_payload(history)
    lines = CASE.read_text(encoding="utf-8").splitlines()[1:]
    one = data["series"][0]
    for value, ref in zip(one["y"], one["a"], strict=True):
        assert ref < 0  # a table has rows, no attempts
        assert float(lines[-ref - 1].split(",")[7]) == value
    assert data["runs"] == ["history.csv"]


def test_the_page_fetches_nothing_and_says_the_summary_without_scripts(history) -> None:
    page = render_page(history)
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page)
    shown = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for text in ("139 rows, 137 usable values", "1 regression, 2 environment", "commits c013 to c017", "has no offset"):
        assert text in shown


def test_markdown_is_one_table_that_a_parser_reads(history) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(render_markdown(history))
    rows = sum(token.type == "tr_open" for token in tokens)
    assert rows == 8  # the header, and seven series of which each is listed
    texts = [token.content for token in tokens if token.type == "inline"]
    assert "139 rows, 137 usable values, 1 failed, 1 rejected" in " ".join(texts)


def test_what_an_input_says_formats_nothing(tmp_path) -> None:
    name = "<script>alert(1)</script> | `x` **b**"
    start = datetime(2026, 3, 1, tzinfo=timezone.utc)
    rows = [f'{(start + timedelta(days=day)).isoformat()},"{name}",5.0' for day in range(3)]
    path = tmp_path / "t.csv"
    path.write_text("run_started,variant,step_ms\n" + "\n".join(rows) + "\n", encoding="utf-8")
    history = judge_history(read_sources([path], Index(None)).sources)
    assert "<script>alert" not in render_page(history)
    tokens = MarkdownIt("commonmark").enable("table").parse(render_markdown(history))
    children = [child.type for token in tokens for child in token.children or []]
    assert set(children) <= {"text", "softbreak"}


@pytest.fixture(scope="module")
def page(history, tmp_path_factory) -> Path:
    return write_history(history, tmp_path_factory.mktemp("history"))


@pytest.fixture
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with Browser(executable) as opened:
        yield opened


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_a_series_opens_with_its_change_points_samples_and_runs(browser, page, scheme, width) -> None:
    browser.show(page, width, 1000, scheme)
    browser.wait("document.querySelectorAll('.row').length === 7")
    browser.eval("document.querySelector('.row').click()")
    text = browser.eval("document.getElementById('detail').innerText")
    assert "A-g8-h128-nvfp4" in text
    assert "commit c013 to c017" in text
    assert "2026-03-13 to 2026-03-17" in text
    assert "driver drv-570, host p1-n1" in text
    samples = browser.eval("document.querySelectorAll('#detail table:last-of-type tbody').length")
    assert samples
    assert re.search(r"2026-03-24\s+941\.7 tok/s/GPU\s+history\.csv\s+row \d+\s+c024", text)
    assert browser.eval("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert browser.complaints == []


@pytest.mark.browser
def test_nights_are_coloured_by_their_state(browser, page) -> None:
    browser.show(page, 1400, 1000, "light")
    browser.wait("document.querySelectorAll('.row').length === 7")
    colours = browser.eval(
        """(() => {
          const canvas = document.querySelector('.row .strip');
          const at = (night) => Array.from(canvas.getContext('2d').getImageData(
            Math.floor((night + 0.4) * canvas.width / 24), canvas.height / 2, 1, 1).data.slice(0, 3));
          return [at(0), at(7), at(20)];
        })()"""
    )
    assert colours == [[0xB9, 0xC7, 0xD3], [0xD5, 0x9B, 0x1C], [0xC8, 0x46, 0x0F]]  # unchanged, transient, regression


@pytest.mark.browser
def test_verdicts_and_words_filter_and_keys_move(browser, page) -> None:
    browser.show(page, 1400, 1000, "light")
    browser.wait("document.querySelectorAll('.row').length === 7")
    browser.eval("document.querySelector('.filter').click()")
    assert browser.eval("document.querySelectorAll('.row').length") == 6
    browser.eval(
        "(() => { const find = document.getElementById('find'); find.value = 'noisy';"
        " find.dispatchEvent(new Event('input')); })()"
    )
    assert browser.eval("document.querySelectorAll('.row').length") == 1
    browser.eval("document.getElementById('rows').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}))")
    assert "could not be seen" in browser.eval("document.getElementById('detail').innerText")
    browser.eval("document.querySelector('#detail .close').click()")
    assert browser.eval("document.getElementById('detail').hidden")


def test_json_beside_the_page_is_what_is_printed(page) -> None:
    data = json.loads((page.parent / "history.json").read_text(encoding="utf-8"))
    assert data["verdicts"]["regression"] == 1
    assert sorted(path.name for path in page.parent.iterdir()) == [
        "history.csv", "history.html", "history.json", "history.md",
    ]  # fmt: skip
