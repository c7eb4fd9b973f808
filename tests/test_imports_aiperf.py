"""Exports of AIPerf. The files in `reports/` have the shapes that its documentation shows, with figures of our own."""

from __future__ import annotations

import json

import pytest
from imports import REPORTS, read

from harness.results.imports import read_report

FIGURES = {
    "requests": 200, "failed_requests": 3, "input_tokens_mean": 550.0, "output_tokens_mean": 101.0, "duration_s": 50.0,
    "requests_per_s": 4.0, "output_tok_per_s": 404.0, "total_tok_per_s": 2604.0, "user_tok_per_s_decode_only": 67.5,
    "ttft_ms_mean": 500.0, "tpot_ms_mean": 15.0, "tpot_rule": "from_first_token", "request_latency_ms_mean": 2000.0,
}  # fmt: skip


def summary() -> dict[str, dict[str, object]]:
    data: dict[str, dict[str, object]] = json.loads((REPORTS / "profile_export_aiperf.json").read_text())
    return data


def test_the_summary() -> None:
    row = read_report(REPORTS / "profile_export_aiperf.json")
    assert (row.status, row.tool, row.tool_version, row.notes) == ("ok", "aiperf", "aiperf 0.14.0", ())
    assert row.values == {**FIGURES, "model": "synth/g8-h128", "concurrency": 8, "output_tokens": 20200}


def test_its_csv_says_the_same() -> None:
    row = read_report(REPORTS / "profile_export_aiperf.csv")
    assert (row.status, row.tool, row.tool_version, row.notes) == ("ok", "aiperf", "", ())
    assert row.values == FIGURES
    assert row.foreign["Request Latency (ms)"]["p50"] == 1900.0
    assert row.foreign["lines"][1][2] == "Example GPU"


def test_the_unit_says_what_a_value_is_in(tmp_path) -> None:
    data = summary()
    data["request_latency"] |= {"unit": "sec", "avg": 2.0}
    assert read(tmp_path, "seconds.json", data).values["request_latency_ms_mean"] == 2000.0
    data["request_latency"] |= {"unit": "fortnights"}
    row = read(tmp_path, "strange.json", data)
    assert (row.status, "request_latency_ms_mean" in row.values) == ("suspect", False)
    assert row.notes == ("request_latency.avg has unit 'fortnights' where ms was expected; left blank",)


def test_a_title_without_unit_is_no_time(tmp_path) -> None:
    text = (REPORTS / "profile_export_aiperf.csv").read_text().replace("Request Latency (ms)", "Request Latency")
    row = read(tmp_path, "export.csv", text)
    assert row.notes == ("Request Latency.avg has no unit where ms was expected; left blank",)


def test_without_streaming_there_is_no_ttft(tmp_path) -> None:
    data = summary()
    for tag in ("time_to_first_token", "inter_token_latency", "output_token_throughput_per_user"):
        del data[tag]
    row = read(tmp_path, "export.json", data)
    assert row.status == "ok"
    assert not {"ttft_ms_mean", "tpot_ms_mean", "tpot_rule", "user_tok_per_s_decode_only"} & row.values.keys()


def test_a_cancelled_run_is_suspect(tmp_path) -> None:
    row = read(tmp_path, "export.json", {**summary(), "was_cancelled": True})
    assert (row.status, row.notes) == ("suspect", ("the run was cancelled before its end",))


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("Request Latency (ms),1,2,3,4,5", "line 8 has 'Request Latency (ms)' again"),
        ("Time to Second Token (ms),1,2", "line 8 has 3 cells where its header has 6"),
    ],
)
def test_a_damaged_csv_is_named_with_its_line(tmp_path, line: str, note: str) -> None:
    text = (REPORTS / "profile_export_aiperf.csv").read_text().replace("\n\nMetric,Value", f"\n{line}\n\nMetric,Value")
    assert read(tmp_path, "export.csv", text).notes == (note,)


def test_requests_are_averaged_and_warmup_is_not() -> None:
    row = read_report(REPORTS / "profile_export.jsonl")
    assert row.values == {
        "requests": 2, "failed_requests": 1, "input_tokens_mean": 500.0, "output_tokens": 6, "output_tokens_mean": 3.0,
        "ttft_ms_mean": 150.0, "tpot_ms_mean": 10.0, "tpot_rule": "from_first_token", "requests_without_tpot": 1,
        "user_tok_per_s_decode_only": 100.0, "chunk_gap_ms_mean": 20.0, "chunk_gap_ms_max": 32.0,
        "request_latency_ms_mean": 170.0,
    }  # fmt: skip
    assert row.foreign == {"warmup_requests": 1}
    assert [(one.request, one.status) for one in row.requests] == [("a", "ok"), ("b", "ok"), ("c", "failed")]


def test_a_request_in_an_unknown_unit_is_named(tmp_path) -> None:
    text = (
        (REPORTS / "profile_export.jsonl")
        .read_text()
        .replace('"value": 240.0, "unit": "ms"', '"value": 240.0, "unit": ""')
    )
    row = read(tmp_path, "profile_export.jsonl", text)
    assert row.notes == ("line 2: request_latency has unit '' where ms was expected",)
