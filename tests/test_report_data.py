"""The report as data, and the short names of its studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hand_run import STUDY_DATA, hand_run

from harness.report import build_report, report_data
from harness.report.content import Report
from harness.report.labels import section_labels
from harness.spec.base import parse
from harness.spec.study import Study


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build_report([hand_run(tmp_path_factory.mktemp("runs") / "hand")])


@pytest.fixture(scope="module")
def data(report: Report) -> dict[str, Any]:
    """What a program reads that takes the report as JSON."""
    read: dict[str, Any] = json.loads(json.dumps(report_data(report), allow_nan=False))
    return read


def test_it_says_what_was_compared(data: dict[str, Any]) -> None:
    assert (data["title"], data["about"], data["warnings"]) == ("A run made by hand", "Two GPUs.", [])
    assert data["gpus"] == {"b200_sxm": "B200", "h200_sxm": "H200"}
    assert data["cases"] == {"ok": 14, "refused": 1, "skipped": 1}
    [study] = data["studies"]
    assert (study["study"], study["label"], study["provenance"]) == ("group-size", "group-size", "composed")
    assert study["guidelines"] == ["A1d"]
    assert study["flags"] == {"l2_warm": 7}
    assert sum(study["sources"]["decode"].values()) == pytest.approx(1)


def test_verdicts_have_everything_that_the_page_says(data: dict[str, Any]) -> None:
    verdicts = data["studies"][0]["verdicts"]
    assert [(one["claim_id"], one["system"], one["verdict"]) for one in verdicts] == [
        ("gain", "b200_sxm", "supports"), ("gain", "h200_sxm", "supports"),
        ("limit", "b200_sxm", "contradicts"), ("limit", "h200_sxm", "cannot tell"),
    ]  # fmt: skip
    first, *_, last = verdicts
    assert (first["key"], first["what"], first["where"]) == ("0.625×", "G 16 over 8", "b 8, KVSL 32768")
    assert first["figures"] == [
        {"label": "G 16 over 8", "value": 0.625, "unit": "×", "where": "b 8, KVSL 32768", "judged": True}
    ]
    assert (last["reason"], last["caveats"]) == ("needed rows are refused", [])


def test_cliffs_come_by_edge_with_their_pairs(data: dict[str, Any]) -> None:
    [edge] = data["studies"][0]["cliffs"]
    assert {name: edge[name] for name in ("system", "phase", "axis", "low", "high", "op")} == {
        "system": "b200_sxm", "phase": "decode", "axis": "G", "low": 32, "high": 64, "op": "layer.attn.attention",
    }  # fmt: skip
    assert edge["size"] == pytest.approx(40)
    assert [(pair["where"], round(pair["factor"], 6), pair["heads"]) for pair in edge["pairs"]] == [
        ("b 8, KVSL 32768", 40, ["64:2", "64:1"]), ("b 1, KVSL 32768", 10, ["64:2", "64:1"]),
    ]  # fmt: skip


def test_effects_are_rows_and_lines(data: dict[str, Any]) -> None:
    effects = data["studies"][0]["effects"]
    attention = [row for row in effects["rows"] if row["part"] == "attention" and row["system"] == "b200_sxm"]
    assert [(row["value"], round(row["ratio"], 6)) for row in attention if row["where"].startswith("b 8")] == [
        (16, 0.625), (32, 0.5), (64, 20),
    ]  # fmt: skip
    line = effects["lines"][0]
    assert (line["axis"], line["baseline"], line["best"]) == ("G", 8, 32)
    assert [value for value, _ in line["ratios"]] == [8, 16, 32, 64]


def test_a_roofline_report_warns(tmp_path: Path) -> None:
    data = report_data(build_report([hand_run(tmp_path / "run", answered_by="roofline")]))
    assert data["warnings"] == ["priced from the roofline; install trtllm-harness[tables] for verdicts"]
    assert {verdict["verdict"] for verdict in data["studies"][0]["verdicts"]} == {"cannot tell"}


def labels(folder: Path, *changes: dict[str, Any]) -> list[str]:
    runs = [
        hand_run(folder / f"run-{number}", study=parse(Study, {**STUDY_DATA, **change}, "s"))
        for number, change in enumerate(changes)
    ]
    return list(section_labels(build_report(runs)).values())


def test_a_study_alone_goes_by_its_name(tmp_path: Path) -> None:
    assert labels(tmp_path / "a", {}) == ["group-size"]
    assert labels(tmp_path / "b", {"guidelines": []}) == ["group-size"]


def test_studies_go_by_guideline_by_kind_of_model_or_by_name(tmp_path: Path) -> None:
    experts = {**STUDY_DATA["variant"], "experts": {"count": 8, "top_k": 2, "inter": 2048}}
    assert labels(tmp_path / "a", {"name": "one"}, {"name": "two", "guidelines": "M4"}) == ["A1d", "M4"]
    assert labels(tmp_path / "b", {"name": "one"}, {"name": "two", "variant": experts, "level": "layer"}) == [
        "A1d dense", "A1d MoE",
    ]  # fmt: skip
    assert labels(tmp_path / "c", {"name": "one"}, {"name": "two"}) == ["one", "two"]
    assert labels(tmp_path / "d", {"name": "one"}, {"name": "two", "guidelines": []}) == ["A1d", "two"]
