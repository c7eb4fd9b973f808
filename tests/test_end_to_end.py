"""`benchmarks/end_to_end.py`: its rows, each correction on a row worked by hand, the simulation, the verdicts."""

from __future__ import annotations

import importlib
import json
import math
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cost.ops import Gemm
from harness.hardware import load_system
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode

pytestmark = pytest.mark.tables

B200_FP8 = ("Llama-3.1-70B", "b200_sxm", "fp8")
B200_FP4 = ("Llama-3.1-70B", "b200_sxm", "fp4")
H200_FP8 = ("Llama-3.1-70B", "h200_sxm", "fp8")
H100_32B = ("Qwen3-32B", "h100_sxm", "fp8")


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules; `benchmarks` is a plain folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
        parts = ("", "_rows", "_prices", "_serving", "_simulation", "_engine", "_results")
        modules = {f"end_to_end{part}": importlib.import_module(f"end_to_end{part}") for part in parts}
        yield SimpleNamespace(**{name.removeprefix("end_to_end_"): module for name, module in modules.items()})


@pytest.fixture(scope="module")
def rows(bench):
    return bench.rows.load_rows()


@pytest.fixture(scope="module")
def prices(bench):
    return bench.prices.Prices()


def row_of(rows, group, isl, osl, batch, tp):
    [found] = [
        row
        for row in rows
        if (row.group, row.isl, row.osl, row.batch, row.split and row.split.tp) == (group, isl, osl, batch, tp)
    ]
    return found


# Rows


def test_rows_by_group(bench, rows):
    counts = {group: len(members) for group, members in bench.rows.by_group(rows).items()}
    assert {group: counts[group] for group in bench.results.AIMS} == {
        B200_FP8: 72,
        B200_FP4: 72,
        H200_FP8: 72,
        H100_32B: 180,
    }
    others = {group: count for group, count in counts.items() if group not in bench.results.AIMS}
    assert others.pop(("Llama-3.1-8B", "h100_sxm", "bf16")) == 177
    assert others.pop(("Qwen3-235B-A22B", "h100_sxm", "fp8")) == 127
    by_model = Counter[str]()
    for (model, *_), count in others.items():
        by_model[model] += count
    assert by_model == {"DeepSeek-V3": 410, "gpt-oss-120b": 207, "Qwen3-32B": 21}
    assert len(rows) == 396 + 177 + 127 + 410 + 207 + 21


def test_a_row_as_published(rows):
    row = row_of(rows, H200_FP8, 1024, 8192, 64, 1)
    assert row.row_id == "2026_04_06_llama_3_1_70b_h200_sxm_trtllm_fp8_agg_1024x8192_c64_tp1_ep1_527"
    assert (row.ttft_ms, row.tpot_ms) == pytest.approx((79539.195, 30.485), abs=1e-3)
    assert row.inference_max
    assert not row_of(rows, H100_32B, 1024, 128, 8, 1).inference_max


def test_attention_dp_and_columns_that_cannot_be_right(rows):
    shared = next(row for row in rows if row.split and row.split.attention_dp and row.split.tp == 8)
    assert (shared.split.ep * shared.split.moe_tp, shared.batch % 8) == (8, 0)
    wrong = [row for row in rows if row.split is None]
    assert {row.problem for row in wrong} == {"its columns name more than 8 ranks: tp · ep, or several instances"}
    assert {row.model for row in wrong} <= {"DeepSeek-V3", "gpt-oss-120b"}


@pytest.mark.parametrize(
    ("group", "parameters"),  # in billions, as published
    [(H200_FP8, 70.6), (H100_32B, 32.8), (("Llama-3.1-8B", "h100_sxm", "bf16"), 8.03)],
)
def test_shapes_have_the_published_number_of_parameters(bench, rows, group, parameters):
    variant = bench.rows.variant_of(next(row for row in rows if row.group == group))
    heads = variant.q_heads + 2 * variant.kv_heads + variant.q_heads
    layer = variant.hidden * (heads * variant.head_dim + 3 * variant.ffn)
    assert (variant.layers * layer + 2 * variant.vocab * variant.hidden) / 1e9 == pytest.approx(parameters, rel=0.005)


# Corrections


class FakePrices:
    """Times that can be added up by hand, in place of the tables: it has the two calls that a serving makes."""

    def __init__(self, times):
        self.times = times

    def time_ms(self, *asks):
        return sum(self.times[ask.part, ask.prompts, ask.batch, ask.tokens] for ask in asks)


def formula(bench, rows, off):
    """A row of 1000 in and 100 out, 4 at a time, in times of hand: body 10 for 4 tokens, 50 for 1000, 51 for 1004."""
    row = replace(row_of(rows, H100_32B, 1024, 128, 8, 1), isl=1000, osl=100, batch=4)
    times = {
        ("body", True, 1, 4): 10.0,
        ("body", True, 1, 1000): 50.0,
        ("body", True, 1, 1004): 51.0,
        ("attention", True, 1, 1000): 7.0,
        ("attention", False, 4, 1050): 3.0,
        ("head", False, 4, 1): 2.0,
        ("head", False, 1, 1): 1.0,
    }
    return bench.serving.serve(row, off).tpot_ms(FakePrices(times))


def test_formula_f_by_hand(bench, rows):
    # Decode step 10 + 3 + 2; prefill 50 + 7 + 1, four times in 100 tokens.
    assert formula(bench, rows, ["mixed-step"]) == pytest.approx(15 + 4 * 58 / 100)


def test_mixed_step_by_hand(bench, rows):
    # Three other prompts in 100 tokens; a step with one in it is 51 - 10 + 7 longer.
    assert formula(bench, rows, []) == pytest.approx(15 + 3 / 100 * 48)


def test_capacity_by_hand(bench, rows):
    """H200, one GPU: 143,771 MiB of which CUDA reports 99.34 %; the rest is added up from the shapes."""
    serving = bench.serving.serve(row_of(rows, H200_FP8, 1024, 8192, 64, 1))
    layer = 8192 * (8192 + 2 * 1024) + 8192 * 8192 + 3 * 8192 * 28672
    weights = 80 * layer + 2 * (2 * 128256 * 8192) + 2 * (161 * 8192)
    free = 143771 * 2**20 * 0.9934 - weights - 2 * 16384 * 8192 * 11 - 3.5 * 2**30
    assert serving.server.capacity == math.floor(0.9 * free / (80 * 2 * 8 * 128)) == 386677
    assert (serving.isl, serving.osl, serving.batch) == (922, 7373, 386677 // 8295)
    off = bench.serving.serve(serving.row, ["capacity"])
    assert (off.batch, off.server.capacity) == (64, 64 * (1024 + 8192))


def test_lengths(bench, rows):
    row = row_of(rows, H200_FP8, 1024, 8192, 64, 8)
    serving, off = bench.serving.serve(row), bench.serving.serve(row, ["lengths"])
    assert (serving.isl, serving.osl, serving.context) == (922, 7373, 922 + 3686)
    assert (off.isl, off.osl, off.context) == (1024, 8192, 1024 + 4096)
    drawn = serving.requests()
    assert len(drawn) == 640
    assert (min(one.isl for one in drawn), max(one.isl for one in drawn)) == (819, 1024)
    assert 6553 <= min(one.osl for one in drawn) < 6600
    assert 8150 < max(one.osl for one in drawn) <= 8192
    assert set(off.requests()) == {(1024, 8192)}
    unknown = row_of(rows, H100_32B, 1024, 128, 8, 1)
    assert bench.serving.serve(unknown).requests() == [(1024, 128)] * 80


def test_block_fp8(bench, rows):
    row = row_of(rows, H100_32B, 1024, 128, 8, 1)
    on, off = (bench.serving.serve(row, without).model.variant for without in ([], ["block-fp8"]))
    assert (on.weights.ffn, on.weights.attention, on.weights.lm_head) == ("fp8_block", "fp8_block", "bf16")
    assert (off.weights.ffn, off.weights.attention, off.weights.lm_head) == ("fp8", "fp8", "bf16")
    assert on.kv_format == off.kv_format == "fp8"
    same = row_of(rows, H200_FP8, 1024, 1024, 4, 1)
    assert bench.serving.serve(same).model == bench.serving.serve(same, ["block-fp8"]).model


def test_nvfp4_min(bench, rows, prices):
    """The body of a decode step of four tokens, from the prices of its GEMMs one by one."""
    on, off = (bench.serving.serve(row_of(rows, B200_FP4, 1024, 1024, 4, 1), w).model for w in ([], ["nvfp4-min"]))
    gemms = [(8192 + 2048, 8192), (8192, 8192), (2 * 28672, 8192), (8192, 28672)]
    static, row = (
        TablesPricer("b200_sxm", as_is=True).price([Gemm(4, n, k, fmt) for n, k in gemms])
        for fmt in ("fp8_static", "nvfp4")
    )
    saved = 80 * sum(max(0.0, b.time_ms - a.time_ms) for a, b in zip(static, row, strict=True))
    assert saved > 1
    body = bench.prices.body
    assert prices.time_ms(body(off, 4)) - prices.time_ms(body(on, 4)) == pytest.approx(saved)


def test_routing(bench, rows):
    row = next(row for row in rows if row.model == "Qwen3-235B-A22B")
    assert bench.serving.serve(row).model.routing == "power_law_1.2"
    assert bench.serving.serve(row, ["routing"]).model.routing == "balanced"


@pytest.mark.parametrize(
    ("shape", "tp", "waits"),
    [((1024, 1024), 4, True), ((1024, 1024), 8, False), ((1024, 8192), 4, False), ((8192, 1024), 4, False)],
)
def test_which_rows_wait(bench, rows, shape, tp, waits):
    row = row_of(rows, H200_FP8, *shape, 4, tp)
    assert (bench.serving.serve(row).server.wait_steps, bench.serving.serve(row).server.wait_ratio) == (
        (20, 0.9) if waits else (0, 0.0)
    )
    assert bench.serving.serve(row, ["batch-wait"]).server.wait_steps == 0


def test_ttft_with_and_without_waiting(bench, rows, prices):
    """Four at a time on one H200: about twenty steps of 20 ms apart; measured are 562 ms."""
    row = row_of(rows, H200_FP8, 1024, 1024, 4, 1)
    ttft = {name: bench.serving.serve(row, [name]).ttft_ms(prices) for name in ("batch-wait", "queue", "mixed-step")}
    whole = bench.serving.serve(row)
    step = prices.time_ms(*bench.prices.decode(whole.model, 3, whole.context))
    # 36 of 40 requests come while others decode, three as a rule.
    assert whole.ttft_ms(prices) - ttft["batch-wait"] == pytest.approx(0.9 * 20 * step, rel=0.05)
    assert ttft["queue"] == prices.time_ms(*bench.prices.prefill(whole.model, 922))
    assert ttft["mixed-step"] == whole.ttft_ms(prices)
    assert whole.ttft_ms(prices) == pytest.approx(row.ttft_ms, rel=0.1)


# Prices


def test_parts_of_a_step_are_the_step(bench, rows, prices):
    model = bench.serving.serve(row_of(rows, H200_FP8, 1024, 1024, 4, 2)).model
    case = Case(
        variant=model.variant,
        parallelism=Parallelism(tp=2),
        workload=Decode(phase="decode", batch=16, kvsl=4096),
        system="h200_sxm",
    )
    system = load_system("h200_sxm")
    pricer = TablesPricer("h200_sxm", l2_bytes=system.l2_bytes)
    [whole] = price_cases([case], "model", pricer, RooflinePricer(system))
    assert prices.time_ms(*bench.prices.decode(model, 16, 4096)) == pytest.approx(whole.time_ms)


def test_what_has_no_price_says_why_and_what_is_beyond_the_rows_is_marked(bench, rows, prices):
    model = bench.serving.serve(row_of(rows, H200_FP8, 1024, 1024, 4, 1)).model
    far, near = bench.prices.decode_attention(model, 64, 100_000), bench.prices.decode_attention(model, 64, 5000)
    with pytest.raises(bench.prices.Unpriced, match="beyond the last row"):
        prices.time_ms(far)
    inside = bench.prices.decode_attention(model, 4, 5000)
    prices.answer([near, inside])
    assert prices.extrapolated(inside, near)
    assert not prices.extrapolated(inside)


def test_times_between_those_priced(bench):
    line = bench.prices.polyline([10, 20, 40], [1.0, 3.0, 4.0])
    assert [line(x) for x in (5, 10, 15, 20, 30, 40, 50)] == [1.0, 1.0, 2.0, 3.0, 3.5, 4.0, 4.0]


# Simulation


class Times:
    """A token through the body takes 1 ms; attention so much a token of prompt or cache, the head a sequence."""

    def __init__(self, per_cached=0.0, per_prompt=0.0, per_head=0.0):
        self.per_cached, self.per_prompt, self.per_head = per_cached, per_prompt, per_head

    def body_ms(self, tokens):
        return tokens

    def prompt_attention_ms(self, isl):
        return self.per_prompt * isl

    def decode_attention_ms(self, batch, kvsl):
        return self.per_cached * batch * kvsl

    def head_ms(self, sequences):
        return self.per_head * sequences


def served(bench, server, requests, concurrency, times=None):
    made = [bench.simulation.Request(*one) for one in requests]
    server = bench.simulation.Server(*server)
    return [tuple(one) for one in bench.simulation.simulate(times or Times(), server, made, concurrency)]


def test_a_burst(bench):
    """Prompts of 10 where a step takes 25 tokens: two in 20 ms; the third rides with them in 12; then 3 ms and 1 ms."""
    assert served(bench, (25, 1000), [(10, 3)] * 3, 3) == [(20, 7.5), (20, 7.5), (32, 2.0)]


def test_a_prompt_waits_for_company(bench):
    """12 tokens are fewer than 0.9 x 25, so the third waits: two steps of 2 ms; then nothing decodes, it goes alone."""
    assert served(bench, (25, 1000, 5, 0.9), [(10, 3)] * 3, 3) == [(20, 2.0), (20, 2.0), (34, 1.0)]
    # No more than one step: 2 ms, then 12 with the third in it.
    assert served(bench, (25, 1000, 1, 0.9), [(10, 3)] * 3, 3) == [(20, 7.0), (20, 7.0), (34, 1.0)]
    # 12 are enough for 0.4 x 25.
    assert served(bench, (25, 1000, 5, 0.4), [(10, 3)] * 3, 3) == served(bench, (25, 1000), [(10, 3)] * 3, 3)


def test_a_cache_for_one_at_a_time(bench):
    """13 tokens to the end of each: 10 ms and two steps of 1 ms, three times."""
    assert served(bench, (25, 25), [(10, 3)] * 3, 3) == [(10, 1.0), (22, 1.0), (34, 1.0)]


def test_a_closed_loop(bench):
    """One at a time: the next arrives when the last is done, and waits for its own prompt alone."""
    assert served(bench, (25, 1000), [(10, 3), (20, 2), (5, 1)], 1) == [(10, 1.0), (20, 1.0), (5, 0.0)]


def test_the_cache_grows_by_a_token_a_step(bench):
    """After a prompt of 10 three steps see 11, 12 and 13 tokens: 36 ms and 3 of the body."""
    assert served(bench, (25, 1000), [(10, 4)], 1, Times(per_cached=1.0)) == [(10, 13.0)]


def test_a_step_has_all_its_parts(bench):
    """20 tokens, 2 x 10 of prompts and 2 heads; then 12 tokens, a prompt of 10, 3 heads; 3 and 3; 1 and 1."""
    times = Times(per_prompt=0.5, per_head=0.1)
    burst = served(bench, (25, 1000), [(10, 3)] * 3, 3, times)
    first, second, third = 20 + 10 + 0.2, 12 + 5 + 0.3, 3 + 0.3
    assert burst[0] == burst[1] == pytest.approx((first, (second + third) / 2))
    assert burst[2] == pytest.approx((first + second, (third + 1 + 0.1) / 2))


def test_a_request_that_never_fits(bench):
    with pytest.raises(ValueError, match="20 \\+ 10 tokens never fits"):
        served(bench, (25, 29), [(20, 10)], 1)
    with pytest.raises(ValueError, match="never fits"):
        served(bench, (19, 100), [(20, 10)], 1)


# Verdicts


def test_errors_by_hand(bench):
    errors = bench.results.Errors.of([1.1, 0.8, 1.05], [1.0, 1.0, 1.0])
    assert (errors.mape_percent, errors.bias_percent) == pytest.approx((35 / 3, 5))
    assert str(errors) == "11.7/+5.0"


@pytest.mark.parametrize(
    ("ours", "engine", "ttft", "missing", "met"),
    [
        (1.05, 1.07, 1.20, 0, [True, True]),
        (1.07, 1.08, 1.20, 0, [False, True]),
        (1.05, 1.04, 1.20, 0, [False, True]),
        (1.05, 1.07, 1.26, 0, [True, False]),
        (1.05, 1.07, 1.20, 1, [False, False]),
    ],
)
def test_aims(bench, rows, ours, engine, ttft, missing, met):
    row = replace(row_of(rows, H200_FP8, 1024, 1024, 4, 1), tpot_ms=1.0, ttft_ms=1.0)
    priced = bench.results.PricedRow(row, ours, ttft, False, bench.engine.EngineTimes(engine, 0.3))
    result = bench.results.GroupResult(H200_FP8, 1 + missing, (priced,), Counter())
    assert [aim.met for aim in bench.results.judge([result])] == met
    assert bench.results.judge([replace(result, group=("Llama-3.1-8B", "h100_sxm", "bf16"))]) == []


def test_the_engine_with_formula_f(bench, rows):
    from aiconfigurator_core.sdk import EngineHandle

    row = row_of(rows, H200_FP8, 1024, 1024, 4, 1)
    with closing(bench.engine.WholeModelEngine()) as engine:
        times = engine.times(row)
        folder = engine._folder(bench.rows.variant_of(row))
        formats = {"gemm_quant_mode": "fp8_static", "kvcache_quant_mode": "fp8", "fmha_quant_mode": "fp8"}
        handle = EngineHandle.compile(str(folder), "h200_sxm", "trtllm", backend_version="1.3.0rc20", **formats)
        prefill = handle.predict_prefill_latency(1, 1024)
        assert times.ttft_ms == pytest.approx(prefill)
        assert times.tpot_ms == pytest.approx(handle.predict_decode_latency(4, 1536, osl=2) + 4 * prefill / 1024)
        assert engine.times(next(row for row in rows if row.model == "gpt-oss-120b")) is None
    assert not folder.exists()


# The command


@pytest.fixture
def few(bench, rows, monkeypatch):
    """Two rows with an aim and one that has no price."""
    kept = [row_of(rows, H200_FP8, 8192, 1024, batch, 1) for batch in (4, 8)]
    kept.append(next(row for row in rows if row.model == "gpt-oss-120b" and row.split))
    monkeypatch.setattr(bench.end_to_end, "load_rows", lambda: kept)
    return kept


def test_the_command(bench, few, capsys):
    assert bench.end_to_end.main(["--json", "--each", "--without", "batch-wait"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["rows"], printed["without"]) == (3, ["batch-wait"])
    first, last = printed["groups"]
    assert (first["rows"], first["n"], first["priced"][0]["id"]) == (2, 2, few[0].row_id)
    assert last["not_priced"] == {"its experts are MXFP4, which no variant has": 1}
    assert set(printed["without_one"]) == set(bench.serving.CORRECTIONS) - {"batch-wait"}
    assert [aim["met"] for aim in printed["aims"]] == [True, True]


def test_a_missed_aim_is_exit_1(bench, few, capsys):
    assert bench.end_to_end.main(["--without", "queue"]) == 1
    out = capsys.readouterr().out
    assert "without queue" in out
    assert "MISSED  Llama-3.1-70B   h200_sxm  fp8   TTFT" in out
    assert "   1 rows: gpt-oss-120b: its experts are MXFP4" in out


def test_an_unknown_correction_is_refused(bench, capsys):
    with pytest.raises(SystemExit) as caught:
        bench.end_to_end.main(["--without", "magic"])
    assert caught.value.code == 2
    assert "magic" in capsys.readouterr().err


def test_every_correction_is_documented(bench):
    text = (Path(__file__).parent.parent / "docs" / "cost-model.md").read_text(encoding="utf-8")
    section = text.partition("## Corrections for served rows")[2].partition("\n## ")[0]
    assert [name for name in bench.serving.CORRECTIONS if f"`{name}`" not in section] == []
