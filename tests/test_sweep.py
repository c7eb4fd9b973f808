"""`benchmarks/sweep.py`: its models are valid and all different, both sides price the same ones, what it prints."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cost.memory import fits
from harness.hardware import load_system
from harness.lint import lint_case

pytestmark = pytest.mark.tables


@pytest.fixture(scope="module")
def sweep():
    """The benchmark; `benchmarks` is a plain folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
        yield importlib.import_module("sweep")


def test_ten_thousand_models_differ_in_shape(sweep):
    variants = sweep.draw_variants(10_000)
    shapes = {(v.hidden, v.q_heads, v.kv_heads, v.head_dim, v.ffn, v.layers) for v in variants}
    assert (len(variants), len(shapes)) == (10_000, 10_000)
    assert variants[:20] == sweep.draw_variants(20)


def test_lint_accepts_them_and_they_fit(sweep):
    for cases in sweep.cases_of(sweep.draw_variants(2_000)[::13]):
        for case in cases:
            assert [finding for finding in lint_case(case) if finding.severity == "error"] == []
            assert fits(case, load_system(case.system)).fits


@pytest.fixture(scope="module")
def measured(sweep):
    return sweep.measure(120, 8)


def test_both_sides_price_the_same_models(measured):
    assert (measured.cases, measured.sample) == (120, 8)
    assert abs(measured.decode_median_percent) < 4
    assert measured.decode_p90_percent < 6
    assert abs(measured.prefill_median_percent) < 6
    assert measured.prefill_p90_percent < 12


def test_it_stays_small(measured):
    assert 0.05 < measured.peak_rss_gb < 2  # of all tests so far


def test_records_have_a_row_for_every_op(sweep):
    ours, variants = sweep.Ours(), sweep.draw_variants(3)
    # norms, qkv, attention, o, gate and up, activation, down; embedding, final norm, lm_head: the same in both phases
    assert ours.record(variants) == 3 * 2 * 10


@pytest.mark.parametrize(
    ("rate", "engine_rate", "rss_gb", "met"),
    [(2000, 100, 0.9, [True, True]), (1999, 100, 0.9, [False, True]), (5000, 100, 1.0, [True, False])],
)
def test_verdicts(sweep, measured, rate, engine_rate, rss_gb, met):
    given = replace(measured, cases_per_s=rate, engine_cases_per_s=engine_rate, peak_rss_gb=rss_gb)
    assert [verdict for verdict, _ in given.bars] == met


def test_the_command(sweep, measured, capsys, monkeypatch):
    fast = replace(measured, cases_per_s=2100.0, engine_cases_per_s=70.0, peak_rss_gb=0.3)
    monkeypatch.setattr(sweep, "measure", lambda *_: fast)
    assert sweep.main(["--cases", "120", "--sample", "8", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["cases"], printed["sample"], printed["ratio"]) == (120, 8, 30.0)
    assert [bar["met"] for bar in printed["bars"]] == [True, True]


def test_a_missed_bar_is_exit_1(sweep, measured, capsys, monkeypatch):
    slow = replace(measured, cases_per_s=1000.0, engine_cases_per_s=100.0)
    monkeypatch.setattr(sweep, "measure", lambda *_: slow)
    assert sweep.main(["--cases", "120", "--sample", "8"]) == 1
    out = capsys.readouterr().out
    assert "MISSED  10.0 times the engine's rate: at least 20" in out
    assert "engine, compile and predict" in out


@pytest.mark.parametrize("wrong", [["--cases", "0"], ["--sample", "0"], ["--cases", "10", "--sample", "11"]])
def test_impossible_settings_are_refused(sweep, capsys, wrong):
    with pytest.raises(SystemExit) as caught:
        sweep.main(wrong)
    assert caught.value.code == 2
    assert "--cases" in capsys.readouterr().err
