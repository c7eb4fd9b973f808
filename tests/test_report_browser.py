"""The page in a real browser: no error, no request, every plot drawn, readable on a phone, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from hand_run import hand_run

from harness.report import write_report

pytestmark = pytest.mark.browser

DESKTOP, PHONE = (1280, 900), (390, 844)
DRAWN = "document.documentElement.dataset.plots === 'drawn'"
UNFOLD = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
ALL_DRAWN = "[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('svg.main-svg'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of both kinds of numbers."""
    folder = tmp_path_factory.mktemp("report")
    runs = [hand_run(folder / "tables"), hand_run(folder / "roofline", answered_by="roofline")]
    return write_report(runs, folder / "out")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with Browser(executable) as opened:
        yield opened


def test_errors_and_requests_do_not_go_unseen(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<p>bad<script>console.error('seen'); fetch('http://127.0.0.1:9/x'); undefined.thing;</script>")
    browser.show(bad, *DESKTOP, "light")
    browser.wait("document.title === ''")
    assert any("seen" in one for one in browser.complaints)
    assert any("TypeError" in one for one in browser.complaints)
    assert "http://127.0.0.1:9/x" in browser.requests


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_it_opens_without_error_or_request_and_draws_every_plot(
    browser: Browser, page: Path, size: tuple[int, int], scheme: str
) -> None:
    browser.show(page, *size, scheme)
    browser.wait(DRAWN)
    browser.eval(UNFOLD)
    browser.wait(ALL_DRAWN)
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(("file://", "data:", "blob:"))] == []
    counts = browser.eval("""[...document.querySelectorAll('.plot')].map((plot) => [
        plot.querySelectorAll('svg.main-svg').length > 0, plot.querySelectorAll('.scatterlayer .trace').length])""")
    # composed, the headline first: two lines and their rooflines; modelled: the rooflines alone
    assert counts == [[True, 4]] * 6 + [[True, 2]] * 4


def test_the_first_screen_of_a_desktop_has_the_cliff_and_its_plot(browser: Browser, page: Path) -> None:
    browser.show(page, *DESKTOP, "light")
    browser.wait(DRAWN)
    bottoms = browser.eval("""['.cards li', '.hero .plot'].map((one) =>
        document.querySelector(one).getBoundingClientRect().bottom)""")
    assert max(bottoms) <= DESKTOP[1]
    assert browser.eval("document.querySelector('.hero .cards').textContent").strip().startswith("×40.0 B200 decode")


def test_plots_that_were_folded_are_as_wide_as_their_place(browser: Browser, page: Path) -> None:
    browser.show(page, *DESKTOP, "light")
    browser.wait(DRAWN)
    folded = "document.querySelector('#study-1 .parts .plot')"
    assert browser.eval(f"{folded}.querySelector('svg.main-svg')") is None
    browser.eval(UNFOLD)
    browser.wait(ALL_DRAWN)
    drawn, place = browser.eval(f"[{folded}.querySelector('svg.main-svg'), {folded}].map((one) => one.clientWidth)")
    assert drawn == place > 400


def test_a_finding_starts_with_its_number_and_unfolds(browser: Browser, page: Path) -> None:
    browser.show(page, *DESKTOP, "light")
    browser.wait(DRAWN)
    cell = "document.querySelector('#findings td')"
    assert browser.eval(f"{cell}.querySelector('.key-number').textContent") == "40.0×"
    text = f"{cell}.querySelector('details p').checkVisibility()"
    assert browser.eval(text) is False
    browser.eval(f"{cell}.querySelector('summary').click()")
    assert browser.eval(text) is True


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_nothing_is_wider_than_the_window(browser: Browser, page: Path, size: tuple[int, int]) -> None:
    browser.show(page, *size, "light")
    browser.wait(DRAWN)
    browser.eval(UNFOLD)
    browser.wait(ALL_DRAWN)
    browser.eval("document.querySelector('#row-table tbody tr').click()")
    assert browser.eval("document.documentElement.scrollWidth") <= size[0]
    tables = browser.eval("""[...document.querySelectorAll('table:not(.board)')]
        .every((table) => table.closest('.scroll'))""")
    assert tables
    texts = "[...document.querySelectorAll('p, dd, li, td')].map((one) => parseFloat(getComputedStyle(one).fontSize))"
    assert min(browser.eval(texts)) >= 11


def test_colours_follow_the_scheme_while_the_page_is_open(browser: Browser, page: Path) -> None:
    browser.show(page, *DESKTOP, "light")
    browser.wait(DRAWN)
    look = """[getComputedStyle(document.body).backgroundColor,
        document.querySelector('.plot').querySelector('.trace.scatter path.js-line').style.stroke,
        document.querySelector('.plot').querySelector('.xtick text').style.fill]"""
    light = browser.eval(look)
    browser.prefer("dark")
    browser.wait(f"({look})[1] !== {light[1]!r}")
    dark = browser.eval(look)
    assert light[0] == "rgb(255, 255, 255)"
    assert all(before != after for before, after in zip(light, dark, strict=True))
    assert browser.complaints == []


def test_a_click_on_the_legend_hides_a_line_in_every_panel(browser: Browser, page: Path) -> None:
    browser.show(page, *DESKTOP, "light")
    browser.wait(DRAWN)
    shown = """[...document.querySelector('.chart').querySelectorAll('.plot')]
        .map((plot) => plot.querySelectorAll('.scatterlayer .trace').length)"""
    assert browser.eval(shown) == [4, 4]
    browser.eval("document.querySelector('.chart .key').click()")
    browser.wait(f"JSON.stringify({shown}) === '[2,2]'")
    browser.eval("document.querySelector('.chart .key').click()")
    browser.wait(f"JSON.stringify({shown}) === '[4,4]'")


def test_rows_are_filtered_sorted_and_opened(browser: Browser, page: Path) -> None:
    browser.show(page, *DESKTOP, "light")
    count = "document.getElementById('row-count').textContent"
    cells = "[...document.querySelectorAll('#row-table tbody tr')].map((row) => row.cells[{}].textContent)"
    assert browser.eval(count) == "29 of 29 rows"  # 14 from tables, 15 from the roofline
    browser.eval("""(() => { const box = document.getElementById('row-filter');
        box.value = 'h200 composed'; box.dispatchEvent(new Event('input')); })()""")
    assert browser.eval(count) == "6 of 29 rows"
    assert set(browser.eval(cells.format(0))) == {"H200"}
    step = browser.eval(
        "[...document.querySelectorAll('#row-table th')].findIndex((one) => /Decode step/.test(one.textContent))"
    )
    browser.eval(f"document.querySelectorAll('#row-table th')[{step}].click()")
    times = [float(text) for text in browser.eval(cells.format(step))]
    assert times == sorted(times)
    browser.eval("document.querySelector('#row-table tbody tr').click()")
    opened = browser.eval("document.querySelector('#row-table tr.ops').textContent")
    assert "layer.attn.attention" in opened
    assert "DecodeAttention batch=1 kvsl=32768" in opened
