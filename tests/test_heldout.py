"""`benchmarks/heldout.py`: which rows it holds out, that they are gone for both pricers, and what it prints."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from table_rows import published

from harness.cost.ops import DecodeAttention, PrefillAttention
from harness.pricing.base import KernelPrice
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.assumptions import load_assumptions
from harness.pricing.tables.availability import systems_root

pytestmark = pytest.mark.tables

RELEASE = "1.3.0rc20"


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules; `benchmarks` is a plain folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
        names = ("heldout", "heldout_rows", "heldout_engine")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})


@pytest.fixture(scope="module")
def b200(bench):
    return bench.heldout_rows.load_phases("b200_sxm", load_assumptions("b200_sxm"))


def test_rows_inside_the_grid_and_at_its_frontier(bench, b200):
    h200 = bench.heldout_rows.load_phases("h200_sxm", load_assumptions("h200_sxm"))
    assert [len(phase.interior()) for phase in (*b200, *h200)] == [4603, 7736, 4521, 8632]
    assert [len(phase.frontier()) for phase in (*b200, *h200)] == [669, 1265, 649, 1410]
    for phase in (*b200, *h200):
        assert not set(phase.interior()) & set(phase.frontier())


def test_a_cell_is_the_row_that_was_published(b200):
    decode, prefill = b200
    for row in published("b200_sxm", "attention", "generation_attention")[::997]:
        shape = (row["num_heads"], row["num_key_value_heads"], row["head_dim"], row["batch_size"])
        cell = (*shape, row["isl"] + row["step"])
        if row["kv_cache_dtype"] == "fp8" and not row["window_size"]:
            assert decode.measured_ms(cell) == row["latency"]
    for row in published("b200_sxm", "attention", "context_attention")[::997]:
        cell = (row["num_heads"], row["num_key_value_heads"], row["head_dim"], row["batch_size"], row["isl"])
        if row["kv_cache_dtype"] == row["attn_dtype"] == "fp8" and not row["window_size"]:
            assert prefill.measured_ms(cell) == row["latency"]


def test_with_nothing_removed_it_is_the_pricer_that_everybody_uses(bench, b200):
    decode, prefill = b200
    cells = [bench.heldout_rows.Cell(64, 8, 128, 6, length) for length in (700, 1024, 6000, 12000)]
    usual = TablesPricer("b200_sxm")
    assert decode.prices(cells, removed=()) == usual.price(
        [DecodeAttention(6, c.length, 64, 8, 128, "fp8") for c in cells]
    )
    kernels = [PrefillAttention(6, c.length, 0, 64, 8, 128, "fp8", "fp8") for c in cells]
    assert prefill.prices(cells, removed=()) == usual.price(kernels)


@pytest.fixture(scope="module")
def removed(bench, b200):
    """300 rows of each phase, by table."""
    return {phase.table: bench.heldout._pick(phase.interior(), 300, seed=7) for phase in b200}


def test_removed_rows_are_gone_for_this_projects_pricer(b200, removed):
    for phase in b200:
        cells = removed[phase.table]
        assert {price.source for price in phase.prices(cells, removed=())} == {"exact"}
        prices = phase.prices(cells, removed=cells)
        assert {price.source for price in prices} <= {"interpolated", None}
        answers = [(p.time_ms, phase.measured_ms(c)) for p, c in zip(prices, cells, strict=True) if p.time_ms]
        assert len(answers) >= 297
        assert sum(time == row for time, row in answers) <= 1  # one is clipped to its neighbour, whose time is the same


def test_the_engines_tables_lack_the_removed_rows_and_no_others(bench, tmp_path, removed):
    package = systems_root()
    files = bench.heldout_engine.write_tables(tmp_path, "b200_sxm", RELEASE, removed)
    assert [file.name for file in files] == ["generation_attention_perf.parquet", "context_attention_perf.parquet"]
    for file, cells in zip(files, removed.values(), strict=True):
        rows, kept = (pq.ParquetFile(path).read() for path in (package / file.relative_to(tmp_path), file))
        gone = set(rows_of(rows)) - set(rows_of(kept))
        assert (rows.num_rows - kept.num_rows, len(gone)) == (300, 300)
        assert {(*heads, isl + step) for *heads, isl, step, _, _, _ in gone} == set(cells)
        assert {(window, kv_format) for *_, window, kv_format, _ in gone} == {(0, "fp8")}


def rows_of(table):
    shape = ("num_heads", "num_key_value_heads", "head_dim", "batch_size", "isl", "step")
    columns = (*shape, "window_size", "kv_cache_dtype", "latency")
    return list(zip(*(table[name].to_numpy().tolist() for name in columns), strict=True))


def test_a_row_that_is_not_there_cannot_be_removed(bench, tmp_path):
    missing = {"generation_attention": [bench.heldout_rows.Cell(64, 8, 128, 6, 1024)]}
    with pytest.raises(ValueError, match="1 rows to remove from generation_attention, 0 found"):
        bench.heldout_engine.write_tables(tmp_path, "b200_sxm", RELEASE, missing)


def test_removed_rows_are_gone_for_the_engine(bench, b200, removed):
    """It never repeats a row (decode is smoothed, 13.2 us are added to a prefill), so its two answers are compared."""
    rows = {phase.name: np.array([phase.measured_ms(cell) for cell in removed[phase.table]]) for phase in b200}
    answers = []
    for tables in ({}, removed):
        with bench.heldout_engine.engine_without("b200_sxm", RELEASE, tables) as engine:
            asked = ((phase, [phase.kernel(cell) for cell in removed[phase.table]]) for phase in b200)
            answers.append({phase.name: np.array(engine.times_ms(kernels)) for phase, kernels in asked})
    shown, without = answers
    assert np.abs(shown["decode"] / rows["decode"] - 1).max() < 0.05
    assert (shown["prefill"] - rows["prefill"]) * 1e3 == pytest.approx(13.2, abs=0.1)
    for phase in b200:
        assert (shown[phase.name] != without[phase.name]).mean() > 0.98
    assert np.median(np.abs(without["decode"] / rows["decode"] - 1)) > 0.03
    assert np.median(np.abs((without["prefill"] - 0.0132) / rows["prefill"] - 1)) > 0.01


@pytest.mark.parametrize("gpu", ["b200_sxm", "h200_sxm"])
def test_one_draw_errs_by_less_than_twice_the_bar(bench, gpu):
    for result in bench.heldout.hold_out(gpu, draws=1, rows=300):
        median, p90 = bench.heldout.BARS[gpu, result.phase]
        assert (result.asked, result.engine_fails) == (300, 0)
        assert result.refused <= 3
        assert result.ours.median_percent < min(2 * median, result.engine.median_percent)
        assert result.ours.p90_percent < min(2 * p90, result.engine.p90_percent)


def test_errors_by_hand(bench):
    result = bench.heldout.HeldOut("b200_sxm", "decode", candidates=10, engine_adds_us=10.0)
    prices = [KernelPrice(time, "interpolated", (), "") for time in (1.01, 1.02, 0.97, 1.00)]
    prices.append(KernelPrice.refuse("refused", "beyond the last row"))
    result.add(prices, [1.10, 1.01, 1.01, None, 1.01], [1.0] * 5)
    assert (result.asked, result.refused, result.engine_fails, len(result.ours_ms)) == (5, 1, 1, 3)
    assert result.ours.median_percent == pytest.approx(2.0)
    assert result.ours.p90_percent == pytest.approx(2.8)  # 0.8 of the way from 2 to 3
    assert result.engine.median_percent == pytest.approx(1.0)
    assert result.engine_less_constant.median_percent == pytest.approx(0.0)


def held_out(bench, ours_percent, engine_percent, refused=0):
    result = bench.heldout.HeldOut("b200_sxm", "decode", candidates=10, asked=100, refused=refused)
    result.measured_ms, result.ours_ms = [1.0], [1 + ours_percent / 100]
    result.engine_ms = [1 + engine_percent / 100]
    return result


@pytest.mark.parametrize(
    ("ours", "engine", "refused", "marked", "met"),
    [
        (1.9, 5.0, 0, 7, [True, True, True, True]),
        (2.1, 5.0, 0, 7, [False, True, True, True]),
        (9.1, 20.0, 1, 7, [False, False, True, True]),
        (1.9, 1.8, 2, 6, [False, False, False, False]),
    ],
)
def test_verdicts(bench, ours, engine, refused, marked, met):
    edge = bench.heldout.Frontier("b200_sxm", "decode", 9, 7, marked, bench.heldout.Errors(1.0, 2.0))
    bars = bench.heldout.judge([held_out(bench, ours, engine, refused)], [edge])
    assert [bar.met for bar in bars] == met


def test_a_gpu_without_a_bar_is_not_judged_by_one(bench):
    result = held_out(bench, 50.0, 1.0)
    result.gpu = "gb300"
    assert all(bar.met for bar in bench.heldout.judge([result], []))


def test_the_command(bench, capsys):
    done = bench.heldout.main(["--draws", "1", "--rows", "40", "--gpu", "gb300", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert (done, printed["draws"], printed["rows"]) == (0, 1, 40)
    assert [(part["phase"], part["asked"]) for part in printed["inside"]] == [("decode", 40), ("prefill", 40)]
    assert [edge["answered"] + edge["refused"] for edge in printed["frontier"]] == [669, 1265]
    assert [edge["marked"] == edge["answered"] > 0 for edge in printed["frontier"]] == [True, True]


def test_a_missed_bar_is_exit_1(bench, capsys, monkeypatch):
    monkeypatch.setitem(bench.heldout.BARS, ("gb300", "decode"), (0.0, 0.0))
    assert bench.heldout.main(["--draws", "1", "--rows", "40", "--gpu", "gb300"]) == 1
    out = capsys.readouterr().out
    assert "MISSED  gb300     decode   median" in out
    assert "Frontier, left out one by one" in out


@pytest.mark.parametrize("wrong", [["--draws", "0"], ["--rows", "0"], ["--rows", "5000"], ["--gpu", "a100_sxm"]])
def test_impossible_settings_are_refused(bench, capsys, wrong):
    with pytest.raises(SystemExit) as caught:
        bench.heldout.main(wrong)
    assert caught.value.code == 2
    assert wrong[0] in capsys.readouterr().err
