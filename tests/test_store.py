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
from harness.results.store import Attempt, latest_attempts, open_run, read_attempts, read_run
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
