"""Names that labelled points must not take: all that stands beside coordinates in a table."""

from __future__ import annotations

from pathlib import Path

from hand_run import STUDY, hand_run

from harness.analysis.frame import FACTS, PLACE, observations, placed
from harness.results.record import OpRow, Record, column_names
from harness.spec.claims import Quantity
from harness.spec.reserved import ANALYSIS_COLUMNS, RECORD_COLUMNS, RESERVED, WORKLOAD_FIELDS
from harness.spec.workload import Decode, Prefill, Serve


def test_every_column_of_a_record_and_an_op_is_reserved() -> None:
    assert {*column_names(Record), *column_names(OpRow)} == RECORD_COLUMNS


def test_so_is_every_field_of_a_workload() -> None:
    assert {name for model in (Prefill, Decode, Serve) for name in model.model_fields} == WORKLOAD_FIELDS


def test_so_is_what_an_analysis_puts_beside_coordinates(tmp_path: Path) -> None:
    run = hand_run(tmp_path / "run")
    table, names = placed(STUDY, run.records)
    seen = observations(run, STUDY, Quantity(op="layer.attn.attention", measure="time_us"))
    assert names == ["G", "batch", "kvsl"]
    assert {*table.columns, *seen.columns} - {*names} <= RESERVED
    assert {*PLACE, *FACTS} <= RESERVED
    assert {*table.columns, *seen.columns} >= ANALYSIS_COLUMNS - RECORD_COLUMNS
