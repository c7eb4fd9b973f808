"""`trtllm-harness import`: files into a run folder, with a row for each that can be read."""

from __future__ import annotations

import csv
import json
import re
import shutil

import pandas as pd
import pytest
from command_line import REPOSITORY, CommandLine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imports import BENCH_REPORTS, EVENTS, REPORTS, bench_report, read

from harness.hardware import load_system
from harness.results.imports import COLUMNS, attempt_of, read_report
from harness.results.imports.table import convert
from harness.results.record import Record, column_names
from harness.results.store import Attempt, read_run


@pytest.fixture
def run(capsys) -> CommandLine:
    return CommandLine(capsys)


def test_three_of_four_are_written_and_the_fourth_is_named(run, tmp_path) -> None:
    out = tmp_path / "theirs"
    names = ("run_stream", "run_nostream", "run_bad_pergpu", "run_truncated")
    outcome = run("import", *(BENCH_REPORTS / f"{name}.json" for name in names), "--out", out)
    truncated = BENCH_REPORTS / "run_truncated.json"
    assert outcome.code == 3
    assert outcome.err == f"error: {truncated}: not JSON at line 40 column 3: Unterminated string starting at\n"
    assert "run_bad_pergpu.json: suspect, trtllm-bench report of TensorRT-LLM 9.9.9\n" in outcome.out

    records = read_run(out).records
    assert list(records["flags"].map(list)) == [[], [], ["suspect"]]
    assert set(records["status"]) == {"ok"}
    assert set(records["provenance"]) == {"imported"}
    assert set(records["level"]) == set(records["phase"]) == {"serve"}
    assert set(records["answered_by"]) == {"trtllm-bench"}
    assert set(records["answered_with"]) == {"TensorRT-LLM 9.9.9"}
    assert list(records["world_size"]) == [8, 8, 8]
    assert list(records["tok_s_per_gpu"]) == [409.6] * 3
    assert records["ttft_ms"].mean() == 2850.0  # the row without streaming is in no statistic
    assert pd.isna(records["ttft_ms"][1])
    assert pd.isna(records["ep"][0])
    assert list(records["kv_format"].fillna("")) == ["fp8", "", "fp8"]
    foreign = [json.loads(text) for text in records["foreign"]]
    assert foreign[2]["performance"]["output_throughput_per_gpu_tok_s"] == 819.2
    assert "output_throughput_per_gpu_tok_s" not in foreign[0]["performance"]
    assert not records.select_dtypes("number").isin([2.5e14]).any().any()

    table = list(csv.DictReader((out / "imports.csv").read_text().splitlines()))
    assert [row["status"] for row in table] == ["ok", "ok", "suspect", "unreadable"]
    assert [row["output_tok_per_s_per_gpu"] for row in table] == ["409.6", "409.6", "409.6", ""]
    assert [row["ttft_ms_mean"] for row in table] == ["2850.0", "", "2850.0", ""]
    assert not (out / "requests.csv").exists()


def test_both_rules_of_tpot_are_printed_with_the_one_that_counts(run, tmp_path) -> None:
    outcome = run("import", EVENTS, "--out", tmp_path / "run")
    assert (outcome.code, outcome.err) == (0, "")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "tpot_ms_mean 25" in lines
    assert "tpot_rule after_first_chunk" in lines
    assert "tpot_ms_mean_from_first_token 20" in lines
    assert "r1 ok 7 100 20 30 first chunk carried 3 tokens" in lines
    assert any(line.startswith("note: 1 request bundled several tokens in the first chunk (r1") for line in lines)

    [record] = read_run(tmp_path / "run").records.to_dict("records")
    assert (record["answered_by"], record["tpot_ms"], record["tpot_rule"]) == ("event-log", 25.0, "after_first_chunk")
    assert (record["tok_s_per_user"], record["requests"], record["requests_without_tpot"]) == (40.0, 4, 2)
    assert (record["failed_requests"], record["invalid_requests"], record["ttft_ms"]) == (1, 1, 170.0)
    assert json.loads(record["how"])["tpot_ms_mean_from_first_token"] == 20.0
    requests = list(csv.DictReader((tmp_path / "run" / "requests.csv").read_text().splitlines()))
    assert [row["tpot_after_first_chunk_ms"] for row in requests] == ["30.0", "", "20.0", "", "", ""]


def test_scripts_get_the_whole_table(run, tmp_path) -> None:
    out = tmp_path / "run"
    outcome = run("import", BENCH_REPORTS / "run_truncated.json", EVENTS, "--out", out, "--json")
    assert outcome.code == 3
    truncated, events = outcome.json["imports"]
    assert (truncated["status"], truncated["gpus"]) == ("unreadable", None)
    assert (events["tpot_ms_mean"], len(events["requests_of_it"])) == (25.0, 6)
    assert set(truncated) >= {column.name for column in COLUMNS}
    assert (out / "index.html").is_file()
    assert outcome.json["run"] == str(out)


def test_a_report_of_imported_rows_can_be_written_again(run, tmp_path) -> None:
    run("import", EVENTS, REPORTS / "bench.log", REPORTS / "profile_export_aiperf.json", "--out", tmp_path / "run")
    outcome = run("report", tmp_path / "run", "--out", tmp_path / "again")
    assert (outcome.code, outcome.err) == (0, "")
    assert "synth/g8-h128" in (tmp_path / "again" / "report.md").read_text()


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("empty.json", "", "no report that is known: it is empty"),
        ("notes.txt", "hello", "no report that is known: its first line is 'hello'"),
        ("other.json", '{"a": 1}', "no report that is known: it has a"),
        ("twice.json", '{"performance": {"a": 1, "a": 2}}', "key 'a' is there twice in one object from line 1 on"),
        ("half.json", '{"performance": {"a": "\\ud800"}}', "half of a surrogate pair from line 1 on, which is no text"),
        ("deep.json", '{"performance": ' + "[" * 100_000, "nested too deeply from line 1 on"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_report(tmp_path, name: str, content: str, note: str) -> None:
    row = read(tmp_path, name, content)
    assert row.status == "unreadable"
    assert row.notes[0].startswith(note)


def test_where_nothing_can_be_read_nothing_is_written(run, tmp_path) -> None:
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    outcome = run("import", tmp_path / "latin.json", tmp_path / "none.json", "--out", tmp_path / "run")
    assert outcome.code == 3
    assert outcome.err == (
        f"error: {tmp_path}/latin.json: not UTF-8 text at byte 7\n"
        f"error: {tmp_path}/none.json: cannot be read: No such file or directory\n"
    )
    assert not (tmp_path / "run").exists()


def test_a_run_is_never_overwritten_and_a_file_taken_once(run, tmp_path) -> None:
    assert run("import", EVENTS, "--out", tmp_path / "run").code == 0
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    outcome = run("import", EVENTS, "--out", tmp_path / "run")
    assert (outcome.code, outcome.err) == (2, f"error: {tmp_path}/run already holds a run; take another --out\n")
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before
    outcome = run("import", EVENTS, EVENTS.parent / "." / EVENTS.name, "--out", tmp_path / "other")
    assert outcome.code == 2
    assert "are the same file; name each file once" in outcome.err


def test_an_imported_row_cannot_be_run_again(run, tmp_path) -> None:
    run("import", EVENTS, "--out", tmp_path / "run")
    outcome = run("rerun", tmp_path / "run", "0")
    assert outcome.code == 2
    assert "was imported from a report of event-log" in outcome.err


def test_a_known_gpu_is_recognised(tmp_path) -> None:
    data = bench_report()
    data["machine"]["name"] = load_system("h200_sxm").gpu_name
    record = attempt_of(read(tmp_path, "report.json", data), "run.000000", "2026-01-01T00:00:00+00:00").record
    assert record.system == "h200_sxm"
    assert attempt_of(read_report(BENCH_REPORTS / "run_stream.json"), "run.000000", "").record.system is None


def test_the_same_content_has_the_same_identity(tmp_path) -> None:
    shutil.copy(EVENTS, tmp_path / "copy.jsonl")
    ids = [attempt_of(read_report(path), "run.000000", "").record.case_id for path in (EVENTS, tmp_path / "copy.jsonl")]
    other = attempt_of(read_report(BENCH_REPORTS / "run_stream.json"), "run.000000", "").record.case_id
    assert ids[0] == ids[1] != other


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(section=st.sampled_from(sorted(bench_report())), data=st.data())
def test_whatever_a_field_holds_the_record_can_be_journalled(tmp_path, section: str, data: st.DataObject) -> None:
    report = bench_report()
    field = data.draw(st.sampled_from(sorted(report[section])))
    report[section][field] = data.draw(JSON_VALUES)
    row = read(tmp_path, "report.json", report)
    if row.status == "unreadable":
        return
    line = attempt_of(row, "run.000000", "2026-01-01T00:00:00+00:00").to_line()
    assert Attempt.from_line(line, "here").to_line() == line


def test_every_column_leads_to_one_of_a_record_or_to_none() -> None:
    targets = [column.record for column in COLUMNS if column.record]
    assert len(set(targets)) == len(targets)
    assert set(targets) <= set(column_names(Record))
    for column in COLUMNS:
        assert convert(1.0, column.unit, column.unit) == 1.0


def test_the_document_has_every_column_as_it_is() -> None:
    text = (REPOSITORY / "docs" / "imports.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\| (.*) \|$", text, re.MULTILINE)
    assert rows == [(column.name, column.record, column.meaning) for column in COLUMNS]
