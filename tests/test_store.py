"""Run folders: what was appended is there, whatever happened after."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shapes import LLAMA_8B

import harness
from harness.errors import UnreadableInput, UsageError
from harness.hardware import load_system
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.results.build import Answerer, priced_attempt, unpriced_attempt
from harness.results.record import OpRow, Record, arrow_schema, column_names
from harness.results.store import (
    Attempt,
    LaterRelease,
    is_run,
    latest_attempts,
    open_run,
    read_attempts,
    read_run,
)
from harness.spec.base import parse
from harness.spec.expand import expand
from harness.spec.study import Study, Suite
from harness.spec.variant import Variant

STUDY = parse(
    Study,
    {
        "name": "s",
        "title": "t",
        "variant": LLAMA_8B,
        "axes": {"G": [4, 8]},
        "workloads": {"decode": {"batch": 1, "kvsl": [1024, 4096]}},
        "systems": ["b200_sxm"],
    },
    "s",
)
SUITE = Suite(name="s", title="t", studies=("s",))
ROOFLINE = RooflinePricer(load_system("b200_sxm"))


def attempts() -> list[Attempt]:
    planned = expand(STUDY, Variant(**LLAMA_8B))
    prices = price_cases([one.case for one in planned], "model", ROOFLINE, ROOFLINE)
    answerer = Answerer("roofline", "roofline 1")
    made = [
        priced_attempt(one, price, answerer, f"R.{number:06d}", "2026-03-01T00:00:00+00:00")
        for number, (one, price) in enumerate(zip(planned[:3], prices, strict=False))
    ]
    return [
        *made,
        unpriced_attempt(planned[3], "skipped", "not collected", answerer, "R.000003", "2026-03-01T00:00:00+00:00"),
    ]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with open_run(tmp_path / "run", SUITE, [STUDY]) as folder:
        folder.append(attempts()[:2])
        folder.append(attempts()[2:])
        folder.write_environment({"python": "3"})
    return tmp_path / "run"


def test_what_was_written_comes_back(run: Path) -> None:
    read = read_run(run)
    assert (read.suite, read.studies, read.environment, read.damage) == (SUITE, (STUDY,), {"python": "3"}, ())
    assert list(read.records.columns) == column_names(Record)
    assert list(read.ops.columns) == column_names(OpRow)
    assert read.records["status"].tolist() == ["ok", "ok", "ok", "skipped"]
    assert read.records["attempt_id"].tolist() == [f"R.00000{n}" for n in range(4)]
    assert harness.load(run).equals(read.records)


def test_failures_are_rows_with_nulls_not_zeros(run: Path) -> None:
    skipped = read_run(run).records.iloc[3]
    assert skipped["reason"] == "not collected"
    for column in ("step_ms", "tpot_ms", "ttft_ms", "tok_s_per_gpu", "roofline_ms", "worst_source"):
        assert skipped.isna()[column], column


def test_the_figures_of_a_step_agree_with_each_other(run: Path) -> None:
    row = read_run(run).records.iloc[0]
    ops = read_run(run).ops.query("attempt_id == 'R.000000'")
    assert ops["total_us"].sum() / 1000 == pytest.approx(row["step_ms"])
    assert row["tok_s_per_user"] == pytest.approx(1000 / row["tpot_ms"])
    assert row["tok_s_per_gpu"] == pytest.approx(1000 / row["step_ms"])
    assert sum(json.loads(row["source_shares"]).values()) == pytest.approx(1)
    assert row["kv_bytes_per_gpu"] == 1024 * 131_072
    assert row["isna"] if "isna" in row else row.isna()["prefill_compute_ms"]


def test_the_tables_are_only_a_copy_of_the_journal(run: Path) -> None:
    before = read_run(run)
    (run / "records.parquet").write_bytes(b"damaged")
    (run / "ops.parquet").unlink()
    assert read_run(run).records.equals(before.records)
    assert read_run(run).ops.equals(before.ops)


def test_tables_older_than_the_journal_are_not_believed(run: Path) -> None:
    with (run / "journal.jsonl").open("a") as journal:
        journal.write(replace_id(attempts()[0], "R.000004").to_line() + "\n")
    assert len(read_run(run).records) == 5


def replace_id(attempt: Attempt, attempt_id: str) -> Attempt:
    ops = tuple(replace(op, attempt_id=attempt_id) for op in attempt.ops)
    return Attempt(replace(attempt.record, attempt_id=attempt_id), ops)


def test_a_truncated_journal_keeps_every_whole_line_and_says_what_is_lost(run: Path) -> None:
    journal = run / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-100])
    read = read_run(run)
    assert len(read.records) == 3
    assert len(read.damage) == 1
    assert "the last line is incomplete" in read.damage[0]


def test_a_damaged_line_is_named_and_the_others_are_read(run: Path) -> None:
    journal = run / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    lines[1] = '{"record": {"schema_version": 1}}\n'
    journal.write_text("".join(lines))
    read = read_run(run)
    assert len(read.records) == 3
    assert "journal.jsonl:2: not a record" in read.damage[0]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("layers", "32", "layers is '32'"),
        ("layers", True, "layers is 'True'"),
        ("layers", 2**63, "layers is '9223372036854775808'"),
        ("layers", None, "layers is 'None'"),
        ("step_ms", "fast", "step_ms is 'fast'"),
        ("step_ms", float("inf"), "step_ms is 'inf'"),
        ("step_ms", float("nan"), "step_ms is 'nan'"),
        ("step_ms", 10**400, "step_ms is '1000"),
        ("attention_dp", 0, "attention_dp is '0'"),
        ("flags", "noisy", "flags is 'noisy'"),
        ("flags", [1], "flags are [1]"),
        ("status", "fine", "status is 'fine', and not one of ok, unsupported, "),
        ("provenance", "rumour", "provenance is 'rumour', and not one of measured, "),
        ("attempt_id", "R", "attempt_id is 'R', and not run, dot and number"),
        ("attempt_id", "R.one", "attempt_id is 'R.one', and not run, dot and number"),
        ("attempt_id", "R.000009", "attempt_id is 'R.000009', and another in its ops"),
        ("coordinates", "[]", "coordinates is '[]', and no JSON object"),
        ("coordinates", '{"G": [8]}', "where each has to be a text or a number"),
        ("case", "{", "Expecting property name"),
        ("reason", "\ud800", "surrogates not allowed"),
        ("colour", "red", "unexpected keyword argument 'colour'"),
        ("schema_version", "2", "not supported between instances of 'str' and 'int'"),
    ],
)
def test_a_line_has_a_value_of_its_type_in_every_column(column: str, value: Any, message: str) -> None:
    data = json.loads(attempts()[0].to_line())
    data["record"][column] = value
    with pytest.raises(UnreadableInput) as caught:
        Attempt.from_line(json.dumps(data), "j:1")
    assert str(caught.value).startswith("j:1: not a record: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "line", ["", "[]", "null", "3", '{"record": 1, "ops": []}', "[" * 100_000, '{"record": {}, "ops": {}}', None]
)
def test_what_is_no_row_at_all_is_told_apart(line: str | None) -> None:
    with pytest.raises(UnreadableInput, match="j:1: not"):
        Attempt.from_line(line, "j:1")


def test_sums_of_bytes_are_floats_in_the_journal(run: Path) -> None:
    [record, *_] = records_of(run)
    assert type(record["kv_bytes_per_gpu"]) is float
    first = attempts()[0]
    huge = Attempt(replace(first.record, hbm_bytes=2**53 + 1), first.ops)
    with open_run(run, SUITE, [STUDY]) as folder:
        folder.append([replace_id(huge, "R.000004")])
    assert read_run(run).records["hbm_bytes"].iloc[4] == 2.0**53


def spoil_line(run: Path, number: int, line: bytes) -> None:
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().split(b"\n")
    lines[number - 1] = line
    journal.write_bytes(b"\n".join(lines))


def test_a_damaged_byte_costs_one_line(run: Path) -> None:
    spoil_line(run, 2, b'{"record": "\xff"}')
    read = read_run(run)
    assert len(read.records) == 3
    assert read.damage == (f"{run}/journal.jsonl:2: not UTF-8 text",)


def test_damage_is_told_from_tables_too_and_after_a_move(run: Path) -> None:
    spoil_line(run, 2, b"{}")
    with open_run(run, SUITE, [STUDY]) as folder:
        folder.append([replace_id(attempts()[1], "R.000001.2")])
    moved = run.rename(run.with_name("moved"))
    for _ in range(2):
        read = read_run(moved)
        assert len(read.records) == 4
        assert read.damage == (f"{moved}/journal.jsonl:2: not a record: 'record'",)
        (moved / "ops.parquet").unlink(missing_ok=True)  # the second time from the journal


def test_much_damage_is_counted(run: Path) -> None:
    with (run / "journal.jsonl").open("a") as journal:
        journal.write("{}\n" * 50)
    read = read_run(run)
    assert len(read.damage) == 21
    assert read.damage[-1] == f"{run}/journal.jsonl: 30 more lines cannot be read"


def test_a_run_with_a_line_of_a_later_release_is_not_read_in_part(run: Path) -> None:
    data = json.loads(attempts()[0].to_line())
    data["record"]["schema_version"] = 99
    spoil_line(run, 1, json.dumps(data).encode())
    with pytest.raises(LaterRelease, match=r"journal\.jsonl:1: written by a later release"):
        read_run(run)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("journal.jsonl", None, "journal.jsonl: is missing"),
        ("study.yaml", None, "study.yaml: no such file"),
        ("study.yaml", "title: mine", "study.yaml: not the study of a run"),
        ("study.yaml", "suite: {}\nstudies: ~", "study.yaml: not the study of a run"),
        ("study.yaml", "suite: ~\nstudies: []", "study.yaml: suite: expected a mapping of fields, found nothing"),
        ("study.yaml", "suite: {name: s, title: t, studies: [s]}\nstudies: [1]", "expected a mapping of fields"),
        ("study.yaml", "[" * 1500, "nested too deeply"),
    ],
)
def test_a_run_that_cannot_be_read_says_which_file(run: Path, name: str, content: str | None, message: str) -> None:
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content)
    with pytest.raises(UnreadableInput) as caught:
        read_run(run)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "content", ["", "[]", "[" * 100_000, '{"a": NaN}', '{"a": 1e999}', '"\\ud800"', '{"a": "\\ud800"}']
)
def test_a_damaged_environment_is_an_empty_one(run: Path, content: str) -> None:
    (run / "environment.json").write_text(content)
    assert read_run(run).environment == {}


@pytest.mark.parametrize("name", ["study.yaml", "environment.json", "records.parquet"])
def test_files_of_somebody_else_make_no_run_and_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("title: mine")
    assert not is_run(tmp_path)
    with pytest.raises(UsageError, match=f"has a {name} that is of no run and would be overwritten; take another"):
        open_run(tmp_path, SUITE, [STUDY]).__enter__()
    assert (tmp_path / name).read_text() == "title: mine"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_study_put_into_a_run_is_not_overwritten_either(run: Path) -> None:
    (run / "study.yaml").write_text("title: mine")
    assert is_run(run)
    with pytest.raises(UsageError, match=r"has a study\.yaml that is of no run"):
        open_run(run, SUITE, [STUDY]).__enter__()
    (run / "study.yaml").write_text("suite: [half a")  # what a crash may leave is written anew
    with open_run(run, SUITE, [STUDY]):
        pass
    assert read_run(run).suite == SUITE


def test_a_later_schema_is_refused_by_name() -> None:
    data = json.loads(attempts()[0].to_line())
    data["record"]["schema_version"] = 99
    with pytest.raises(UnreadableInput, match=r"j:1: written by a later release \(schema 99"):
        Attempt.from_line(json.dumps(data), "j:1")


def test_nan_never_gets_into_a_journal() -> None:
    first = attempts()[0]
    with pytest.raises(ValueError, match="JSON"):
        Attempt(replace(first.record, step_ms=float("nan"))).to_line()


def test_the_last_try_of_a_case_counts() -> None:
    first = attempts()[0]
    again = replace_id(Attempt(replace(first.record, step_ms=1.0)), "R.000000.2")
    assert latest_attempts([first, again]) == [again]


def test_no_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        read_run(tmp_path)


def test_a_full_disk_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    """A real process under a real limit on file size."""
    script = f"""
import sys; sys.path[:0] = {sys.path!r}
from pathlib import Path
from test_store import *
with open_run(Path({str(tmp_path / "run")!r}), SUITE, [STUDY]) as folder:
    for number in range(1000):
        folder.append([replace_id(attempts()[0], f"R.{{number:06d}}")])
"""
    limit = 100_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", script], preexec_fn=limited, capture_output=True, text=True, check=False
    )
    assert "EnvironmentUnfit" in done.stderr
    assert "cannot be written" in done.stderr
    kept, damage = read_attempts(tmp_path / "run")
    assert not damage
    size = (tmp_path / "run" / "journal.jsonl").stat().st_size
    assert len(kept) > 5
    assert limit - size < size / len(kept) * 2


def test_every_column_has_a_type_and_only_optional_ones_are_nullable() -> None:
    schema = arrow_schema(Record)
    assert schema.field("case_id").nullable is False
    assert schema.field("step_ms").nullable
    assert str(schema.field("flags").type) == "list<item: string>"
    assert str(schema.field("layers").type) == "int64"
    assert str(schema.field("status").type) == "string"


def records_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["record"] for line in (run / "journal.jsonl").read_text().splitlines()]


def test_a_record_holds_the_whole_case(run: Path) -> None:
    from harness.spec.case import Case

    for record in records_of(run):
        assert Case.model_validate_json(record["case"]).case_id == record["case_id"]
