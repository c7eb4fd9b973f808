"""What is read as a result: run folders, tables and foreign reports, each column with its role."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from answered import a_study
from hand_run import hand_run
from hypothesis import given
from hypothesis import strategies as st
from measured_run import Machine, measured_attempts, write

from harness.analysis.inputs import Options, read_results
from harness.analysis.inputs.codes import cell_text
from harness.analysis.inputs.columns import roles_of
from harness.errors import UnreadableInput, UsageError
from harness.report.records_csv import render_csv
from harness.results.store import JOURNAL_FILE, RECORDS_FILE, LaterRelease

CASE = Path(__file__).parent / "cases" / "12-compare-two-runs"
REPORTS = Path(__file__).parent / "cases" / "03-bench-report-normalise"


def table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_gives_workloads_figures_and_what_was_found_in_place() -> None:
    results = read_results(CASE / "candidate.csv")
    assert results.kind == "table"
    assert len(results.rows) == 11
    assert len(results.workloads) == 9
    assert set(results.figures) == {"ttft_ms", "tpot_ms", "output_tok_s_per_gpu"}
    assert (results.figures["ttft_ms"].column, results.figures["ttft_ms"].factor) == ("ttft_s", 1000)
    assert results.values["tpot_ms"].iloc[:3].tolist() == [13.0, 13.5, 19.0]
    assert list(results.environment.columns) == ["engine_version"]
    assert results.rows["replicate"].iloc[:3].tolist() == ["1", "2", "3"]
    assert "repeat" not in results.identity_columns
    assert "kvp" in results.identity_columns
    assert results.damage == ()
    assert [name for name, _ in results.workloads[0].shown][:3] == ["phase", "variant", "head_size"]  # as in the file


def test_a_failed_row_has_no_figure_whatever_its_cells_say(tmp_path: Path) -> None:
    results = read_results(
        table(tmp_path / "t.csv", "G,status,tok_s_per_gpu\n1,failed,0.0\n2,ok,5\n3,ok,\n4,skipped,\n")
    )
    assert results.rows["status"].tolist() == ["failed", "ok", "no figure", "skipped"]
    assert [math.isnan(one) for one in results.values["tok_s_per_gpu"]] == [True, False, True, True]


@pytest.mark.parametrize(
    ("column", "name", "factor"),
    [
        ("ttft_ms", "ttft_ms", 1), ("ttft_s", "ttft_ms", 1000), ("p99_ttft_s", "ttft_p99_ms", 1000),
        ("tpot_ms_mean", "tpot_mean_ms", 1), ("itl_p50_us", "itl_p50_ms", 0.001), ("latency_ns", "latency_ms", 1e-6),
        ("request_latency_ms", "request_latency_ms", 1),
    ],
)  # fmt: skip
def test_times_become_milliseconds(column: str, name: str, factor: float) -> None:
    (figure,) = roles_of(["G", column], "t").figures
    assert (figure.name, figure.factor, figure.direction) == (name, factor, "lower")


def test_a_column_that_nobody_knows_is_part_of_the_question() -> None:
    roles = roles_of(["G", "moon_phase", "ttft_ms", "Driver_Version", "cv_percent", "timestamp"], "t")
    assert roles.identity == ("g", "moon_phase")
    assert roles.environment == ("driver_version",)
    assert roles.about == ("cv_percent",)
    assert roles.started == "timestamp"


def test_a_user_says_what_a_column_is() -> None:
    options = Options(environment=("Moon_Phase",), metrics={"Joy": "higher"})
    roles = roles_of(["G", "moon_phase", "joy"], "t", options)
    assert roles.environment == ("moon_phase",)
    assert [(one.name, one.direction) for one in roles.figures] == [("joy", "higher")]
    assert options.unknown(["g", "joy"]) == ["Moon_Phase"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["G", "ttft_s", "ttft_ms"], "ttft_s and ttft_ms both are ttft_ms"),
        (["G", "ttft"], "ttft has no unit; call it ttft_ms or ttft_s"),
        (["G", "p99_tpot"], "p99_tpot has no unit"),
        (["G", "throughput"], "throughput has no unit"),
        (["G", "repeat", "trial", "ttft_ms"], "repeat and trial both are the replicate"),
        (["G", "g", "ttft_ms"], "'g' is there twice"),
    ],
)
def test_columns_that_contradict_each_other_are_named(names: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=r"^t: ") as error:
        roles_of(names, "t")
    assert told in str(error.value)


def test_all_findings_come_at_once() -> None:
    with pytest.raises(UsageError) as error:
        roles_of(["ttft", "throughput", "G"], "t")
    assert len(error.value.findings) == 2


@given(st.integers(-(10**12), 10**12))
def test_a_number_is_the_same_question_however_it_is_written(number: int) -> None:
    assert cell_text(number) == cell_text(float(number)) == cell_text(f" {number}.0 ") == str(number)


def test_numbers_of_csv_and_parquet_are_the_same_workload(tmp_path: Path) -> None:
    text = table(tmp_path / "t.csv", "G,eplb,name,ttft_ms\n8,True,x,1.5\n8.0,true,x ,2.5\n")
    frame = pd.DataFrame({"G": [8.0, 8.0], "eplb": [True, True], "name": ["x", "x"], "ttft_ms": [1.5, 2.5]})
    frame.to_parquet(tmp_path / "t.parquet")
    (one,), (other,) = (read_results(path).workloads for path in (text, tmp_path / "t.parquet"))
    assert one == other
    assert one.key == (("eplb", "true"), ("g", "8"), ("name", "x"))


def test_a_blank_says_nothing(tmp_path: Path) -> None:
    one = read_results(table(tmp_path / "a.csv", "G,ep,ttft_ms\n8,,1\n"))
    other = read_results(table(tmp_path / "b.csv", "G,ttft_ms\n8,1\n"))
    assert one.workloads == other.workloads
    assert one.identity_columns == ("g",)


def test_bad_cells_and_lines_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    text = "G,ttft_ms\n1,12ms\n2,inf\n3,N/A\n4,7\n5\n"
    results = read_results(table(tmp_path / "t.csv", text))
    assert len(results.rows) == 4
    assert results.values["ttft_ms"].dropna().tolist() == [7.0]
    assert len(results.damage) == 3
    assert "line 6 has 1 cells and the header 2" in results.damage[0]
    assert "row 1: ttft_ms is '12ms' and no number" in results.damage[1]
    assert "row 2: ttft_ms is 'inf'" in results.damage[2]


def test_a_quoted_cell_may_hold_a_comma_and_a_line_break(tmp_path: Path) -> None:
    results = read_results(table(tmp_path / "t.csv", 'name,ttft_ms\n"a, b\nc",1\n'))
    assert results.workloads[0].key == (("name", "a, b c"),)
    headed = read_results(table(tmp_path / "u.csv", '"the\nname",ttft_ms\nx,1\n'))
    assert headed.workloads[0].key == (("the name", "x"),)
    assert headed.damage == ()


def test_cells_of_every_type_of_parquet_are_texts(tmp_path: Path) -> None:
    columns = {
        "bytes": pa.array([b"fp8"]),
        "coded": pa.array([b"tp4"]).dictionary_encode(),
        "list": pa.array([[4, 8]]),
        "map": pa.array([{"b": 1, "a": None}]),
        "names": pa.array([["x", "y"]]),
        "nothing": pa.nulls(1),
        "whole": pa.array([8], pa.uint64()),
        "ttft_ms": pa.array([1.5], pa.float32()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    results = read_results(tmp_path / "t.parquet")
    assert dict(results.workloads[0].key) == {
        "bytes": "fp8", "coded": "tp4", "list": "[4, 8]", "map": '{"a": null, "b": 1}', "names": "x;y", "whole": "8",
    }  # fmt: skip


def test_a_figure_that_is_a_duration_or_a_truth_value_is_refused(tmp_path: Path) -> None:
    columns = {"ttft_ms": pa.array([1000], pa.duration("us")), "tpot_ms": pa.array([True]), "": pa.array([1])}
    pq.write_table(pa.table({name: columns[name] for name in ("ttft_ms", "tpot_ms")}), tmp_path / "t.parquet")
    with pytest.raises(UsageError) as refused:
        read_results(tmp_path / "t.parquet")
    assert "ttft_ms is of type duration[us] and no number" in str(refused.value)
    assert "tpot_ms is of type bool and no number" in str(refused.value)
    pq.write_table(pa.table({"": columns[""], "itl_ms": pa.array([1.0])}), tmp_path / "t.parquet")
    with pytest.raises(UsageError, match="column 1 has no name"):
        read_results(tmp_path / "t.parquet")


def test_flags_of_a_table_say_what_was_disturbed(tmp_path: Path) -> None:
    rows = read_results(table(tmp_path / "t.csv", "G,flags,ttft_ms\n8,noisy;l2_warm,2\n8,,1\n8,l2_warm,1\n")).rows
    assert rows["disturbance"].tolist() == ["the machine was not quiet (noisy)", None, None]
    pq.write_table(pa.table({"flags": [["noisy"], [], None], "ttft_ms": [2, 1, 1]}), tmp_path / "t.parquet")
    rows = read_results(tmp_path / "t.parquet").rows
    assert rows["disturbance"].tolist() == ["the machine was not quiet (noisy)", None, None]


def test_a_column_is_found_in_place_or_judged_not_both() -> None:
    with pytest.raises(UsageError, match="--environment joy and --metric joy=higher: a column is one or the other"):
        roles_of(["G", "joy"], "t.csv", Options(environment=("joy",), metrics={"Joy": "higher"}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "its first line has 0 columns"),
        ("G;ttft_ms\n1;2\n", "cells are separated by commas"),
        ("G,,ttft_ms\n1,2,3\n", "column 2 has no name"),
        ("G,ttft_s,TTFT_S\n1,2,3\n", "'ttft_s' is there twice"),
        ("G,joy\n1,2\n", "no column is a figure"),
    ],
)
def test_what_is_no_table_is_said(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises((UsageError, UnreadableInput)) as error:
        read_results(table(tmp_path / "t.csv", text))
    assert told in str(error.value)


def test_text_that_is_not_utf8_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"G,ttft_ms\n\xff\xfe,1\n")
    with pytest.raises(UnreadableInput, match=r"t\.csv: no CSV table in UTF-8"):
        read_results(tmp_path / "t.csv")


def test_an_attempt_that_is_there_twice_counts_once_and_equal_repeats_count_all(tmp_path: Path) -> None:
    twice = read_results(table(tmp_path / "a.csv", "G,repeat,ttft_ms\n1,1,5\n1,1,5\n1,2,5\n"))
    assert len(twice.rows) == 2
    assert "1 rows are there twice" in twice.notes[0]
    alike = read_results(table(tmp_path / "b.csv", "G,ttft_ms\n1,5\n1,5\n"))
    assert len(alike.rows) == 2


def test_a_table_without_a_question_or_without_rows_is_read(tmp_path: Path) -> None:
    alone = read_results(table(tmp_path / "a.csv", "commit,ttft_ms\nabc,1\n1e5,2\n"))
    assert [one.key for one in alone.workloads] == [()]
    assert alone.environment["commit"].tolist() == ["abc", "1e5"]
    empty = read_results(table(tmp_path / "b.csv", "G,ttft_ms\n"))
    assert (len(empty.rows), empty.workloads) == (0, ())


def test_the_order_of_rows_and_columns_does_not_matter(tmp_path: Path) -> None:
    frame = pd.read_csv(CASE / "candidate.csv", dtype=str, keep_default_na=False)
    rng = random.Random(7)
    columns = rng.sample(list(frame.columns), len(frame.columns))
    frame.sample(frac=1, random_state=7)[columns].to_csv(tmp_path / "t.csv", index=False)
    assert set(read_results(tmp_path / "t.csv").workloads) == set(read_results(CASE / "candidate.csv").workloads)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"G": [1], "ttft_ms": [1.0]}), tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(data[: len(data) // 2])
    with pytest.raises(UnreadableInput, match=r"t\.parquet: no Parquet table"):
        read_results(tmp_path / "t.parquet")


def test_what_is_nothing_that_is_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        read_results(tmp_path / "absent")
    with pytest.raises(UsageError, match="holds no run"):
        read_results(tmp_path)
    with pytest.raises(UnreadableInput, match="no report that is known"):
        read_results(table(tmp_path / "t.txt", "hello\n"))


# Run folders


def test_a_run_folder_gives_its_cases_without_reading_the_journal(tmp_path: Path) -> None:
    run = hand_run(tmp_path / "run")
    journal = tmp_path / "run" / JOURNAL_FILE
    journal.write_bytes(b"x" * journal.stat().st_size)  # as long as the tables say, and nothing in it
    results = read_results(tmp_path / "run")
    assert (results.kind, results.provenances, results.damage) == ("run", ("composed",), ())
    assert len(results.workloads) == len(run.records) == 16
    assert results.rows["status"].tolist() == run.records["status"].tolist()
    assert list(results.values.columns) == ["step_ms"]
    assert dict(results.workloads[0].key).keys() == {"case_id", "answered_by", "level", "provenance"}
    assert dict(results.workloads[0].shown)["G"] == "8"
    assert results.facts["harness"] == "0.0.1"


def test_a_damaged_table_of_a_run_is_read_from_the_journal(tmp_path: Path) -> None:
    hand_run(tmp_path / "run")
    whole = read_results(tmp_path / "run")
    (tmp_path / "run" / RECORDS_FILE).write_bytes(b"PAR1 and no more")
    again = read_results(tmp_path / "run")
    assert again.damage == ()
    pd.testing.assert_frame_equal(again.values, whole.values)
    assert again.workloads == whole.workloads


def test_a_case_that_was_tried_again_counts_once_and_a_damaged_line_is_named(tmp_path: Path) -> None:
    hand_run(tmp_path / "run")
    journal = tmp_path / "run" / JOURNAL_FILE
    first = json.loads(journal.read_text().splitlines()[0])
    first["record"] |= {"attempt_id": "RUN.000000.2", "step_ms": 77.0}
    first["ops"] = []
    with journal.open("a") as file:
        file.write(json.dumps(first) + "\nnonsense\n")
    results = read_results(tmp_path / "run")
    assert len(results.rows) == 16
    assert results.values["step_ms"].iloc[0] == 77.0
    assert len(results.damage) == 1
    assert "journal.jsonl:18: not a record" in results.damage[0]


def test_a_run_of_a_later_release_is_refused(tmp_path: Path) -> None:
    hand_run(tmp_path / "run")
    journal = tmp_path / "run" / JOURNAL_FILE
    journal.write_text(journal.read_text().replace('"schema_version":3', '"schema_version":99'))
    with pytest.raises(LaterRelease, match="written by a later release"):
        read_results(tmp_path / "run")


def test_a_table_of_records_is_read_as_records(tmp_path: Path) -> None:
    run = hand_run(tmp_path / "run")
    whole = read_results(tmp_path / "run")
    (tmp_path / "records.csv").write_text(render_csv(run.records))
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "run" / RECORDS_FILE).read_bytes())
    for path in (tmp_path / "records.csv", tmp_path / "copy.parquet"):
        results = read_results(path)
        assert results.kind == "table"
        assert results.workloads == whole.workloads
        pd.testing.assert_frame_equal(results.values, whole.values)


def test_records_that_are_there_twice_count_once_and_those_of_a_later_release_are_refused(tmp_path: Path) -> None:
    hand_run(tmp_path / "run")
    records = pq.read_table(tmp_path / "run" / RECORDS_FILE)
    pq.write_table(pa.concat_tables([records, records]), tmp_path / "twice.parquet")
    assert len(read_results(tmp_path / "twice.parquet").rows) == 16
    later = records.set_column(0, "schema_version", pa.array([99] * 16, pa.int64()))
    pq.write_table(later, tmp_path / "later.parquet")
    with pytest.raises(LaterRelease, match=r"later\.parquet: written by a later release \(schema 99"):
        read_results(tmp_path / "later.parquet")


def test_a_table_of_records_that_was_edited_is_refused_cell_by_cell(tmp_path: Path) -> None:
    head = "attempt_id,case_id,answered_by,level,provenance,status,coordinates,schema_version,step_ms\n"
    good = "RUN.000001.r0,c,torch,layer,measured,ok,{},3,5\n"
    assert read_results(table(tmp_path / "t.csv", head + good)).values["step_ms"].tolist() == [5.0]
    edited = ",,,,,,,,\nRUN.one,c,torch,layer,measured,ok,[1],three,inf\n"
    with pytest.raises(UnreadableInput) as refused:
        read_results(table(tmp_path / "t.csv", head + good + edited))
    assert str(refused.value).replace(f"{tmp_path / 't.csv'}: ", "").splitlines() == [
        "row 2: attempt_id is blank, and every record has one",
        "row 3: attempt_id is 'RUN.one', which is not run, dot and number, such as 20260301T120000Z.000001.r0",
        "row 2: case_id is blank, and every record has one",
        "row 2: answered_by is blank, and every record has one",
        "row 2: level is blank, and every record has one",
        "4 more cells are not what records hold",
    ]
    with pytest.raises(LaterRelease):  # 10 is later than 3, whatever their texts
        read_results(table(tmp_path / "t.csv", head + good + good.replace("01.r0", "02.r0").replace(",3,", ",10,")))


def test_replicates_clocks_and_disturbances_are_kept(tmp_path: Path) -> None:
    def changes(_: object, replicate: int) -> dict[str, object]:
        quiet = {"sm_clock_mhz": 1755.0}
        return {**quiet, "flags": ["noisy"], "foreign_cpus": 1.3} if replicate == 1 else quiet

    study = a_study()
    write(tmp_path / "run", study, measured_attempts(study, lambda _: 10.0, Machine(replicates=2), changes))
    rows = read_results(tmp_path / "run").rows
    assert sorted(set(rows["replicate"])) == ["0", "1"]
    assert set(rows["sm_clock_mhz"]) == {1755.0}
    said = rows[rows["replicate"] == "1"]["disturbance"].tolist()
    assert said == ["others kept up to 1.30 processors busy (noisy)"] * 4
    assert rows[rows["replicate"] == "0"]["disturbance"].isna().all()


def test_a_report_of_trtllm_bench_is_asked_what_it_was_asked(tmp_path: Path) -> None:
    results = read_results(REPORTS / "run_stream.json")
    assert results.kind == "report"
    assert results.values["tpot_ms"].iloc[0] == pytest.approx(33.3333)
    changed = json.loads((REPORTS / "run_stream.json").read_text())
    changed["streaming_metrics"]["avg_tpot_ms"] = 40.0
    changed["engine"]["version"] = "10.0"
    (tmp_path / "other.json").write_text(json.dumps(changed))
    assert read_results(tmp_path / "other.json").workloads == results.workloads
    changed["world_info"]["max_batch_size"] = 64
    (tmp_path / "other.json").write_text(json.dumps(changed))
    assert read_results(tmp_path / "other.json").workloads != results.workloads


def test_a_damaged_report_is_named() -> None:
    with pytest.raises(UnreadableInput, match="run_truncated"):
        read_results(REPORTS / "run_truncated.json")
