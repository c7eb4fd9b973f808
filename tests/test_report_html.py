"""The page: whole in one file, safe against what studies and records say, complete."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hand_run import REFUSAL, STUDY_DATA, hand_run

from harness.report import build_report
from harness.report.content import Report
from harness.report.html import render_html, script_json
from harness.report.labels import section_labels
from harness.results.store import Run
from harness.spec.base import parse
from harness.spec.study import Study

#: Attributes that make a browser fetch something.
FETCHING = {"src", "srcset", "data", "poster", "action", "formaction", "background"}


class Page(HTMLParser):
    """Elements and texts of a page; scripts and styles apart."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: dict[str, str] = {}
        self._inside: tuple[str, str] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self._inside = tag, dict(attrs).get("id") or f"{tag}-{len(self.scripts)}"

    def handle_endtag(self, tag: str) -> None:
        if tag in {"script", "style"}:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[self._inside[1]] = self.scripts.get(self._inside[1], "") + data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def data(self, name: str) -> Any:
        return json.loads(self.scripts[name])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return hand_run(tmp_path_factory.mktemp("runs") / "hand")


@pytest.fixture(scope="module")
def report(run: Run) -> Report:
    return build_report([run])


@pytest.fixture(scope="module")
def page(report: Report) -> Page:
    return Page(render_html(report))


def test_it_names_nothing_to_fetch(page: Page) -> None:
    for tag, attributes in page.elements:
        assert not FETCHING & attributes.keys(), (tag, attributes)
        if tag == "link":
            assert attributes["href"] == "data:,"
        if tag == "a":
            assert str(attributes["href"]).startswith("#") or attributes["href"] == "records.csv"
    style = next(text for name, text in page.scripts.items() if name.startswith("style"))
    assert "url(" not in style
    assert "@import" not in style


def test_the_browser_is_told_to_fetch_nothing(page: Page) -> None:
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none';")
    assert "http" not in str(policy)


def test_plotly_is_there_once(page: Page) -> None:
    assert sum(text.count("plotly.js v") for text in page.scripts.values()) == 1


def test_the_first_screen_says_what_was_compared_and_what_kind_of_numbers_these_are(page: Page) -> None:
    first = page.text[: page.text.index("Does attention get faster with G?")]
    for words in (
        "A run made by hand",
        "composed priced from published kernel measurements of TensorRT-LLM 1.3.0rc20, aiconfigurator-core 0.12.0",
        "nothing ran here",
        "hand (4 shapes)",
        "B200, H200",
        "14 ok, 1 refused, 1 skipped",
        "1 contradicts",
        "2 supports",
        "×40.0 B200 decode G within (32, 64]",
        "G 64 is no slower than G 32.",
    ):
        assert words in first, words


def test_every_link_inside_the_page_leads_somewhere(page: Page) -> None:
    anchors = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    links = {str(a["href"])[1:] for tag, a in page.elements if tag == "a" and str(a["href"]).startswith("#")}
    assert links
    assert links <= anchors


def test_every_plot_has_its_figure(page: Page, report: Report) -> None:
    figures = page.data("figures")
    places = [int(str(a["data-figure"])) for _, a in page.elements if "data-figure" in a]
    assert places == list(range(len(figures)))
    assert len(figures) == sum(len(chart.panels) for section in report.sections for chart in section.charts) == 4


def test_every_row_with_a_number_is_there_with_its_ops(page: Page) -> None:
    data = page.data("row-data")
    titles = [column["title"] for column in data["columns"]]
    assert len(data["rows"]) == 14
    row = dict(zip(titles, data["rows"][4]["cells"], strict=True))
    assert (row["GPU"], row["At"], row["Flags"]) == ("B200", "G 32, b 1, KVSL 32768", "l2_warm")
    assert row["Answered with"] == "aiconfigurator-core 0.12.0, trtllm 1.3.0rc20"
    (attention,) = [op for op in data["rows"][4]["ops"] if data["texts"][op[0]] == "layer.attn.attention"]
    # once a layer in ten layers, 20 µs each
    assert attention[1:4] == [10, "20.00", "200.0"]
    shares = dict(part.split() for part in row["Sources, share of time"].split(", "))
    assert sum(map(float, shares.values())) == pytest.approx(100, abs=0.2)


def test_rows_without_a_number_are_listed_and_not_among_the_others(page: Page) -> None:
    assert REFUSAL in page.text
    assert not any("G 64" in row["cells"][2] and row["cells"][0] == "H200" for row in page.data("row-data")["rows"])


def test_texts_of_a_study_are_only_text(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    data = {**STUDY_DATA, "title": evil, "about": evil, "limits": [evil]}
    data["plots"] = [{**STUDY_DATA["plots"][0], "title": evil}]
    run = hand_run(tmp_path / "run", study=parse(Study, data, "s"))
    run = replace(run, records=run.records.assign(variant=evil, reason=evil))
    page = Page(render_html(build_report([run])))
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in page.elements)
    assert sum(tag == "script" for tag, _ in page.elements) == 4
    assert page.text.count("alert(1)</script>") >= 4
    titles = [column["title"] for column in page.data("row-data")["columns"]]
    assert {row["cells"][titles.index("Variant")] for row in page.data("row-data")["rows"]} == {evil}


def test_data_in_a_script_cannot_end_it() -> None:
    data = {"a": "</script><!--", "b": "\u2028\u2029", "c": "µ"}
    text = script_json(data)
    assert "<" not in text
    assert json.loads(text) == data
    with pytest.raises(ValueError, match="JSON"):
        script_json(float("nan"))


def test_two_kinds_of_numbers_are_announced(run: Run, tmp_path: Path) -> None:
    both = build_report([run, hand_run(tmp_path / "roofline", answered_by="roofline")])
    page = Page(render_html(both))
    assert "This report holds numbers of 2 kinds." in page.text
    assert "Cases, composed 14 ok, 1 refused, 1 skipped Cases, modelled 15 ok, 1 skipped" in page.text
    assert "Verdicts, composed 1 contradicts 2 supports 1 cannot tell" in page.text
    assert "measured kernels (composed)" in page.text
    assert "refused group-size (composed) H200" in page.text
    assert "roofline (modelled)" in page.text
    assert section_labels(both) == {"study-1": "A1d composed", "study-2": "A1d modelled"}
    assert page.text.count("priced from the roofline; install trtllm-harness[tables] for verdicts") == 1


def test_a_run_in_which_nothing_has_a_number_is_still_a_report(run: Run) -> None:
    records = run.records.assign(
        status="refused", reason="none", flags=[[]] * 16, worst_source=None, source_shares=None, step_ms=None
    )
    page = Page(render_html(build_report([replace(run, records=records)])))
    assert "16 refused" in page.text
    assert page.data("figures") == []
