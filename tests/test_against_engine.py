"""`benchmarks/against_engine.py`: which cases it draws, that both sides are asked the same, what it prints."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.cost.memory import fits
from harness.hardware import load_system
from harness.lint import lint_case
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Experts, Variant
from harness.spec.workload import Decode

pytestmark = pytest.mark.tables

RELEASE = "1.3.0rc20"


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules; `benchmarks` is a plain folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
        names = {"against_engine": "main", "against_engine_cases": "cases", "against_engine_parts": "parts"}
        loaded = {ours: importlib.import_module(name) for name, ours in names.items()}
        yield SimpleNamespace(**loaded, models=importlib.import_module("whole_models"))


@pytest.fixture(scope="module")
def questions(bench):
    return list(islice(bench.cases.draw_questions(seed=3), 120))


def test_questions_are_valid_and_different(bench, questions):
    cases = [case for one in questions for case in (one.decode, one.prefill)]
    assert len({case.case_id for case in cases}) == len(cases)
    for case in cases:
        assert [finding for finding in lint_case(case) if finding.severity == "error"] == []
        assert fits(case, load_system(case.system)).fits
    assert questions == list(islice(bench.cases.draw_questions(seed=3), 120))


def test_questions_are_of_all_kinds(questions):
    assert Counter(one.kind for one in questions) == {"dense": 60, "moe": 60}
    assert {one.system for one in questions} == {"b200_sxm", "h200_sxm"}
    assert {one.splits for one in questions} == {
        (), ("tp",), ("tp", "pp"), ("tp", "ep"), ("adp",), ("ep", "adp"),
    }  # fmt: skip
    assert {one.variant.weights.attention for one in questions} == {"bf16", "fp8", "fp8_block", "nvfp4"}


def test_a_batch_is_that_of_one_rank(questions):
    one = next(one for one in questions if one.splits == ("ep", "adp"))
    assert one.parallelism.tp == one.parallelism.ep == 8
    assert one.decode.workload.batch == 8 * one.decode_batch
    assert one.prefill.workload.batch == 8 * one.prefill_batch
    assert one.routing == "power_law_1.2"


def small(**changed):
    shape = {"layers": 12, "hidden": 4096, "q_heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336, "vocab": 32000}
    formats = {"weights": "fp8_block", "kv_format": "fp8", "attn_format": "fp8"}
    return Variant.model_validate({**shape, **formats, **changed})


def test_the_two_ways_into_the_engine_agree(bench, tmp_path):
    folder = bench.models.write_config(small(), tmp_path / "a")
    facade = bench.models.compile_facade(folder, small(), "b200_sxm", RELEASE)
    parts = bench.models.compile_parts(folder, small(), Parallelism(), "b200_sxm", RELEASE, "balanced")
    assert facade.decode_ms(7, 3000) == parts.decode_ms(7, 3000)
    assert facade.prefill_ms(2, 3000) == parts.prefill_ms(2, 3000)
    assert sum(facade.decode_ops(7, 3000).values()) == pytest.approx(facade.decode_ms(7, 3000))
    assert sum(facade.prefill_ops(2, 3000).values()) == pytest.approx(facade.prefill_ms(2, 3000))


@pytest.fixture(scope="module")
def sides(bench, tmp_path_factory):
    return bench.main.Sides(tmp_path_factory.mktemp("models"))


def test_both_sides_see_the_same_kernels(bench, sides, tmp_path):
    """On measured rows both give the row: GEMMs, all-reduce, experts. The engine smooths decode attention over KVSL."""
    experts = small(ffn=0, experts=Experts(count=128, top_k=8, inter=1536))
    split, routing = Parallelism(tp=4, ep=4), "power_law_1.2"
    folder = bench.models.write_config(experts, tmp_path / "a")
    theirs = bench.models.compile_parts(folder, experts, split, "h200_sxm", RELEASE, routing).decode_ops(8, 8192)
    work = Decode(phase="decode", batch=8, kvsl=8192, routing=routing)
    case = Case(variant=experts, parallelism=split, workload=work, system="h200_sxm")
    ours = {one.op.name: one.total_ms for one in sides.price(case).ops}
    for name, engine in (
        ("layer.attn.qkv_proj", "qkv_gemm"),
        ("layer.attn.o_proj", "proj_gemm"),
        ("layer.attn.all_reduce", "moe_pre_dispatch"),
        ("layer.moe.router", "router_gemm"),
        ("layer.moe.experts", "moe"),
        ("layer.moe.all_reduce", "moe_post_dispatch"),
    ):
        assert ours[name] == pytest.approx(theirs[engine], rel=1e-6), name
    assert ours["layer.attn.attention"] == pytest.approx(theirs["attention"], rel=0.05)


def test_tokens_travel_through_deepep(bench, tmp_path):
    experts = small(hidden=7168, ffn=0, experts=Experts(count=256, top_k=8, inter=2048))
    split = Parallelism(tp=8, ep=8, attention_dp=True)
    assert bench.models.exchanges(experts, split)
    assert not bench.models.exchanges(experts, Parallelism(tp=8, ep=8))
    folder = bench.models.write_config(experts, tmp_path / "a")
    model = bench.models.compile_parts(folder, experts, split, "h200_sxm", RELEASE, "power_law_1.2")
    assert {"moe_dispatch", "moe_combine"} <= set(model.decode_ops(8, 4096))
    assert "moe_pre_dispatch" not in model.decode_ops(8, 4096)


@pytest.fixture(scope="module")
def compared(bench, sides):
    return bench.main.compare(sides, 24, seed=0)


def test_a_small_run_agrees(bench, compared):
    pairs, _ = compared
    assert len(pairs) == 24
    decode = bench.main.spreads(pairs, "decode")["all"]
    assert decode.median_percent < 5
    assert decode.p90_percent < 30  # of few cases, some of which dispatch
    assert bench.main.spreads(pairs, "prefill")["all"].median_percent < 10


def test_every_op_belongs_to_a_part(compared):
    for one in compared[0]:
        for phase in one.phases.values():
            assert sum(phase.ours.values()) == pytest.approx(phase.ours_ms)
            assert sum(phase.engine.values()) == pytest.approx(phase.engine_ms)
            assert sum(map(phase.part_percent, phase.parts)) == pytest.approx(phase.percent)


def test_the_engine_adds_a_constant_to_prefill_attention(bench, compared):
    part = bench.main.part_spreads(compared[0], "prefill")["attention"]
    assert part.median_us == pytest.approx(-13.2, abs=0.3)


def test_parts_by_hand(bench):
    phase = bench.parts.Phase(3.3, 3.0, {"a": 2.0, "b": 1.3}, {"a": 1.7, "b": 1.0, "c": 0.3}, layers=10)
    assert phase.percent == pytest.approx(10)
    assert [phase.part_percent(part) for part in "abc"] == pytest.approx([10, 10, -10])
    assert [phase.part_us(part) for part in "abc"] == pytest.approx([30, 30, -30])
    assert phase.parts == {"a", "b", "c"}


def test_a_spread_by_hand(bench):
    spread = bench.main.Spread.of([-1.0, 2.0, -3.0])
    assert (spread.n, spread.signed_percent, spread.median_percent) == (3, -1.0, 2.0)
    assert spread.p90_percent == pytest.approx(2.8)  # 0.8 of the way from 2 to 3
    assert np.isnan(bench.main.Spread.of([]).median_percent)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("lm_head", "lm_head"),
        ("lm_head.all_gather", "all-gather after lm_head"),
        ("layer.moe.all_gather", "all-gather, reduce-scatter"),
        ("embedding.all_reduce", "all-reduce"),
        ("embedding", "norms, activation, embedding"),
        ("layer.attn_sliding.attention", "attention"),
    ],
)
def test_parts_of_ops(bench, name, part):
    assert bench.parts.our_part(name) == part


def test_verdicts(bench, compared):
    pairs, _ = compared
    assert [met for met, _ in bench.main.judge(pairs, 24)] == [True, True, True]
    assert [met for met, _ in bench.main.judge(pairs, 25)] == [True, True, False]


def test_the_command(bench, compared, capsys, monkeypatch):
    monkeypatch.setattr(bench.main, "compare", lambda *_: compared)
    assert bench.main.main(["--cases", "24", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["cases"]) == printed["decode"]["by_group"]["all"]["n"] == 24
    assert [bar["met"] for bar in printed["bars"]] == [True, True, True]


def test_a_missed_bar_is_exit_1(bench, compared, capsys, monkeypatch):
    monkeypatch.setattr(bench.main, "compare", lambda *_: compared)
    monkeypatch.setattr(bench.main, "BARS", {"median": 0.0, "90th percentile": 15.0})
    assert bench.main.main(["--cases", "24"]) == 1
    out = capsys.readouterr().out
    assert "MISSED  decode step, median of the absolute difference" in out
    assert "By part, prefill" in out


def test_an_impossible_setting_is_refused(bench, capsys):
    with pytest.raises(SystemExit) as caught:
        bench.main.main(["--cases", "0"])
    assert caught.value.code == 2
    assert "--cases" in capsys.readouterr().err
