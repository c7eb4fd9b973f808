"""records.csv reads back as what the run holds."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hand_run import hand_run

from harness.report.records_csv import render_csv
from harness.results.record import Record, column_names
from harness.results.store import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return hand_run(tmp_path_factory.mktemp("runs") / "hand")


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_all_columns_of_all_rows(run: Run) -> None:
    text = render_csv(run.records)
    assert text.splitlines()[0].split(",") == column_names(Record)
    assert text.count("\r\n") == len(run.records) + 1
    assert [row["attempt_id"] for row in read(text)] == run.records["attempt_id"].tolist()


def test_numbers_read_back_exactly_and_whole_numbers_are_whole(run: Run) -> None:
    rows = read(render_csv(run.records))
    assert [float(row["step_ms"]) for row in rows if row["status"] == "ok"] == run.records["step_ms"].dropna().tolist()
    assert {row["kvsl"] for row in rows} == {"32768"}
    assert {row["batch"] for row in rows} == {"1", "8"}
    assert {row["attention_dp"] for row in rows} == {"false"}


def test_nulls_are_blank(run: Run) -> None:
    refused = read(render_csv(run.records))[-1]
    assert refused["status"] == "refused"
    assert (refused["step_ms"], refused["isl"], refused["worst_source"], refused["ttft_ms"]) == ("", "", "", "")
    cells = {cell for row in read(render_csv(run.records)) for cell in row.values()}
    assert not cells & {"nan", "NaN", "None", "<NA>"}


def test_cells_with_quotes_commas_and_line_breaks_survive(run: Run) -> None:
    reason = 'no "rows", none\r\nat all'
    changed = replace(run, records=run.records.assign(reason=reason))
    rows = read(render_csv(changed.records))
    assert {row["reason"] for row in rows} == {reason}
    assert json.loads(rows[0]["coordinates"]) == {"G": 8, "batch": 1, "kvsl": 32768}


def test_flags_are_one_cell(run: Run) -> None:
    changed = run.records.assign(flags=[["extrapolated", "l2_warm"]] * len(run.records))
    assert read(render_csv(changed))[0]["flags"] == "extrapolated;l2_warm"
    assert read(render_csv(run.records))[4]["flags"] in {"", "l2_warm"}


def test_it_lies_beside_the_page(run: Run, tmp_path: Path) -> None:
    from harness.report import write_report

    assert write_report([run], tmp_path / "out") == tmp_path / "out" / "index.html"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.html", "records.csv", "report.md"]
    assert (tmp_path / "out" / "records.csv").read_bytes().decode() == render_csv(run.records)
