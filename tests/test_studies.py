"""The shipped studies: what they ask, that every verdict can fall either way, and what the published kernels answer."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from answered import Frames, priced
from command_line import REPOSITORY

from harness.analysis.claims import Verdict, judge
from harness.analysis.cliffs import cliffs
from harness.analysis.edges import Edge, edges
from harness.analysis.effects import effects
from harness.analysis.falls import falls
from harness.analysis.frame import observations
from harness.cost.decompose import decompose
from harness.cost.kv_cache import kv_bytes_per_sequence
from harness.cost.parameters import parameter_count
from harness.files import dump_yaml, parse_yaml
from harness.pricing.base import KernelPricer
from harness.pricing.select import select_pricer
from harness.report import verdict_table
from harness.runner.plan import make_plan
from harness.runner.price_run import PriceOptions, run_priced
from harness.spec.base import parse
from harness.spec.claims import (
    HIGHER_IS_BETTER,
    BestAt,
    Claim,
    Exponent,
    FlatWithin,
    GainPerDoubling,
    Ratio,
    Saturation,
)
from harness.spec.expand import PlannedCase, expand, matches
from harness.spec.load import base_variant, load_suite, load_variant
from harness.spec.study import Study

STUDIES = {study.name: study for study in load_suite("demo")[1]}
CLAIMS = [(study.name, claim.id) for study in STUDIES.values() for claim in study.claims]
GUIDELINES = {"A1p", "A1d", "A1o", "A2", "A3", "M1", "M2", "M3", "M4"}

#: Time of a deciding row before a test gives it another; above any roofline.
LONG_US = 1e9


@cache
def on_roofline(name: str) -> Frames:
    return priced(STUDIES[name])


@cache
def tables_of(system: str) -> KernelPricer:
    return select_pricer("tables", system)[0]


@cache
def on_tables(name: str) -> Frames:
    return priced(STUDIES[name], tables_of)


def claim_of(name: str, claim_id: str) -> Claim:
    return next(claim for claim in STUDIES[name].claims if claim.id == claim_id)


def verdicts(name: str, claim: Claim, frames: Frames) -> list[Verdict]:
    return judge(STUDIES[name].model_copy(update={"claims": (claim,)}), *frames)


def test_the_demo_asks_every_guideline_on_both_gpus() -> None:
    assert {guideline for study in STUDIES.values() for guideline in study.guidelines} == GUIDELINES
    assert {study.systems for study in STUDIES.values()} == {("b200_sxm", "h200_sxm")}
    assert {base_variant(study).name for study in STUDIES.values()} == {"dense-8b", "dense-70b", "moe-235b"}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_reads_like_a_lab_note(name: str) -> None:
    study = STUDIES[name]
    assert study.title
    assert study.about
    assert study.limits
    assert study.claims
    assert study.plots
    assert len({claim.id for claim in study.claims}) == len(study.claims)
    assert {claim.guideline for claim in study.claims} <= set(study.guidelines)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_goes_through_yaml_unchanged(name: str) -> None:
    study = STUDIES[name]
    assert parse(Study, parse_yaml(dump_yaml(study.to_yaml_data())), name) == study


@pytest.mark.parametrize("name", STUDIES)
def test_every_claim_and_plot_finds_its_rows(name: str) -> None:
    """A misspelt coordinate would make a claim that is never judged."""
    study = STUDIES[name]
    places = [
        {**one.coordinates, "series": one.series, "phase": one.case.workload.phase, "system": one.case.system}
        for one in expand(study, base_variant(study))
    ]
    for claim in study.claims:
        for names in (claim.where, claim.judge_at):
            for coordinate, labels in names.items():
                for label in labels if isinstance(labels, list) else [labels]:
                    assert any(place.get(coordinate) == label for place in places), (claim.id, coordinate, label)
        assert any(place.get(claim.axis) is not None for place in places), claim.id
    for plot in study.plots:
        assert not observations(on_roofline(name), study, plot.y).empty, plot.title
        assert any(plot.x in place and matches(plot.where, place) for place in places), plot.title


def test_group_sizes_are_those_of_the_tables_and_a_few_beyond() -> None:
    study = STUDIES["a1d-group-size-decode"]
    heads: dict[str, set[tuple[int, int]]] = {}
    for one in expand(study, base_variant(study)):
        heads.setdefault(one.series, set()).add((one.case.variant.q_heads, one.case.variant.kv_heads))
    assert heads == {
        "QH 64": {(64, 8), (64, 4), (64, 2), (64, 1)},
        "QH 16": {(16, 16), (16, 8), (16, 4), (16, 2), (16, 1)},
        "KH 2": {(16, 2), (24, 2), (32, 2), (64, 2), (96, 2), (128, 2)},
        "outside the tables": {(64, 16), (64, 8)},
    }


def test_the_cpu_study_asks_four_variants_for_both_phases() -> None:
    """All KV caches exceed twice a last-level cache of 32 MiB; k and v make prefill of 16 heads 1.13 times the work."""
    suite, studies = load_suite("cpu-smoke")
    plan = make_plan(suite, studies)
    assert plan.summary()["to_run"] == 8
    cases = [step.planned.case for step in plan.steps]
    assert {(case.system, case.variant.q_heads) for case in cases} == {("cpu", 16)}
    flops = {}
    for phase in ("prefill", "decode"):
        asked = [case for case in cases if case.workload.phase == phase]
        assert [case.variant.kv_heads for case in asked] == [16, 4, 2, 1]
        flops[phase] = [sum(op.flops for op in decompose(case, "layer")) for case in asked]
    # In units of 2 · 4096 · 65,536: q 8, k and v 16 or 1, o 8, ffn 33, attention 64.
    assert flops["prefill"][0] / flops["prefill"][-1] == pytest.approx(129 / 114)
    cached = [kv_bytes_per_sequence(case.variant, 4096) * 40 for case in cases if case.workload.phase == "decode"]
    assert cached == [80 * 2**20 * heads for heads in (16, 4, 2, 1)]
    [study] = studies
    for claim in study.claims:
        rows = [one.coordinates for one in expand(study, base_variant(study)) if matches(claim.where, one_place(one))]
        assert [row["G"] for row in rows] == [1, 4, 8, 16], claim.id


def one_place(planned: PlannedCase) -> dict[str, Any]:
    return {**planned.coordinates, "phase": planned.case.workload.phase}


def test_wide_and_deep_have_the_same_parameters() -> None:
    study = STUDIES["m3-wider-or-deeper"]
    budget = parameter_count(load_variant("dense-8b"))
    shapes = {one.coordinates["shape"]: one.case.variant for one in expand(study, base_variant(study))}
    assert len(shapes) == 5
    for label, shape in shapes.items():
        assert abs(parameter_count(shape) / budget - 1) < 0.01, label
        assert label == f"H {shape.hidden} L {shape.layers}"
    assert any("ccuracy was not measured" in limit for limit in study.limits)
    assert all("accuracy was not measured" in claim.statement for claim in study.claims)


@pytest.mark.parametrize("name", ["m4-quantisation", "m4-quantisation-moe"])
def test_lint_keeps_nvfp4_off_h200(name: str) -> None:
    suite, studies = load_suite(name)
    rejected = {
        (step.planned.case.system, step.planned.coordinates["weights"])
        for step in make_plan(suite, studies).steps
        if "nvfp4-gpu" in step.rejection
    }
    assert rejected == {("h200_sxm", "nvfp4")}


# Every verdict can fall either way.


def shape_of(claim: Claim, labels: list[Any], *, support: bool) -> dict[Any, float]:
    """Axis label → a relative time that makes the claim hold, or fail, by more than the scatter."""
    room = 2 * (1 + claim.scatter_pct / 100)
    if isinstance(claim, FlatWithin):
        off = 1.0 if support else 1 + 2 * (claim.at_most_pct + claim.scatter_pct) / 100
        return {x: off**i for i, x in enumerate(labels)}
    if isinstance(claim, Exponent):
        return {x: x ** (claim.expect + (0 if support else 2 * claim.tolerance + 1)) for x in labels}
    if isinstance(claim, GainPerDoubling | Saturation):
        steep = (claim.at_least is not None) == support
        return {x: x ** (-2.0 if steep else 0.0) for x in labels}
    if isinstance(claim, BestAt):
        return {x: 1.0 if (x in claim.values) == support else 2.0 for x in labels}
    assert isinstance(claim, Ratio)
    bound = claim.at_least or claim.at_most or 1.0
    ratio = bound * room if (claim.at_least is not None) == support else bound / room
    time = 1 / ratio if claim.quantity.measure in HIGHER_IS_BETTER else ratio
    return {x: time if x == claim.value else 1.0 for x in labels}


def altered(claim: Claim, frames: Frames, *, support: bool) -> Frames:
    """The frames with the quantity of every row set by its place on the axis of the claim, as if from tables."""
    records, ops = (table.copy() for table in frames)
    records.loc[records["provenance"] == "modelled", "provenance"] = "composed"  # the roofline decides nothing
    places = [json.loads(text) for text in records["coordinates"]]
    labels = list(dict.fromkeys(place[claim.axis] for place in places if claim.axis in place))
    shape = shape_of(claim, labels, support=support)
    time_us = {
        attempt: LONG_US * shape[place[claim.axis]]
        for attempt, place in zip(records["attempt_id"], places, strict=True)
        if claim.axis in place
    }
    chosen = ops["attempt_id"].isin(time_us)
    if claim.quantity.op:
        chosen &= ops["op"] == claim.quantity.op
    elif claim.quantity.category:
        chosen &= ops["category"] == claim.quantity.category
    if claim.quantity.measure in HIGHER_IS_BETTER:  # equal times are no equal rates
        mine = ops[chosen].set_index("attempt_id")
        time_us = {attempt: time_us[attempt] / LONG_US * mine.at[attempt, "flops"] for attempt in time_us}
    at = records["attempt_id"].isin(time_us)
    records.loc[at, ["status", "reason"]] = ["ok", None]
    for phase, column in (("prefill", "prefill_compute_ms"), ("decode", "step_ms")):
        rows = at & (records["phase"] == phase)
        records.loc[rows, column] = [time_us[attempt] / 1000 for attempt in records.loc[rows, "attempt_id"]]
    several = ops[chosen].groupby("attempt_id")["op"].transform("size")
    total_us = [time_us[attempt] for attempt in ops.loc[chosen, "attempt_id"]] / several
    ops.loc[chosen, "total_us"] = total_us
    ops.loc[chosen, "time_us"] = total_us / ops.loc[chosen, "count"]
    return records, ops


@pytest.mark.parametrize(("name", "claim_id"), CLAIMS)
def test_altered_rows_flip_the_verdict(name: str, claim_id: str) -> None:
    """Rows that nothing confounds, with times that hold or fail by more than the scatter."""
    claim = claim_of(name, claim_id).model_copy(update={"confounders": ()})
    frames = on_roofline(name)
    holds = verdicts(name, claim, altered(claim, frames, support=True))
    fails = verdicts(name, claim, altered(claim, frames, support=False))
    assert [one.verdict for one in holds] == ["supports", "supports"], [one.finding for one in holds]
    assert [one.verdict for one in fails] == ["contradicts", "contradicts"], [one.finding for one in fails]


@pytest.mark.parametrize(("name", "claim_id"), CLAIMS)
def test_a_refused_row_leaves_the_claim_open(name: str, claim_id: str) -> None:
    claim = claim_of(name, claim_id)
    records, ops = altered(claim, on_roofline(name), support=True)
    on_b200 = verdicts(name, claim, (records, ops))[0]
    lost = on_b200.attempt_ids[0]
    records.loc[records["attempt_id"] == lost, ["status", "reason"]] = ["refused", "beyond the rows"]
    verdict = verdicts(name, claim, (records, ops))[0]
    assert verdict.verdict == "cannot tell"
    assert "(refused: beyond the rows)" in verdict.finding


CONFOUNDED = [(study.name, claim.id) for study in STUDIES.values() for claim in study.claims if claim.confounders]


def test_claims_that_the_data_cannot_decide_say_so() -> None:
    assert CONFOUNDED == [
        ("a2-head-size", "head-64-costs-like-128"),
        ("a2-head-size", "head-best"),
        ("m2-tile-alignment", "k-off-tile"),
        ("m4-quantisation", "nvfp4-weights-decode"),
        ("m4-quantisation-moe", "experts-nvfp4-decode"),
        ("m4-quantisation-moe", "experts-nvfp4-prefill"),
    ]


@pytest.mark.tables
@pytest.mark.parametrize(("name", "claim_id"), CONFOUNDED)
@pytest.mark.parametrize("support", [True, False])
def test_no_number_decides_a_confounded_claim(name: str, claim_id: str, support: bool) -> None:
    claim = claim_of(name, claim_id)
    on_b200 = verdicts(name, claim, altered(claim, on_tables(name), support=support))[0]
    assert on_b200.verdict == "cannot tell"
    assert on_b200.finding.startswith("Cannot tell: confounded: ")


# What the published kernels answer (aiconfigurator-core 0.12.0, trtllm 1.3.0rc20).

YES, NO, OPEN = "supports", "contradicts", "cannot tell"


@pytest.mark.tables
@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "a1p-group-size-prefill": {
            "prefill-flat": (YES, YES),
            "prefill-flat-few-heads": (YES, YES),
            "prefill-within-1-percent": (NO, OPEN),
            "prefill-8-to-16": (YES, OPEN),
        },
        "a1d-group-size-decode": {
            "decode-gain-32k": (NO, NO),
            "decode-gain-128k": (YES, YES),
            "decode-last-doubling-128k": (OPEN, OPEN),
            "decode-mqa-is-the-limit": (NO, NO),
            "decode-group-48": (OPEN, NO),
        },
        "a1o-overheads": {
            "overheads-32k-b1": (YES, YES),
            "overheads-32k-b8": (NO, YES),
            "overheads-16-heads-128k-b1": (YES, YES),
        },
        "a2-head-size": {
            "head-64-costs-like-128": (OPEN, OPEN),
            "head-best": (OPEN, OPEN),
            "head-192-costs-like-256": (OPEN, YES),
            "head-256-keeps-the-rate": (YES, YES),
            "head-size-leaves-decode-alone": (YES, YES),
        },
        "a3-kv-state": {
            "kv-fp8-halves-decode": (YES, YES),
            "prefill-is-quadratic": (OPEN, YES),
            "decode-is-linear": (YES, YES),
            "window-cuts-decode": (YES, YES),
            "window-cuts-prefill": (YES, OPEN),
        },
        "m1-near-square": {
            "short-k-fp8": (OPEN, OPEN),
            "short-k-fp8-block": (YES, YES),
            "short-k-bf16": (NO, NO),
            "short-n-fp8": (YES, YES),
        },
        "m2-tile-alignment": {
            "tokens-257-fp8-block": (NO, YES),
            "tokens-pad-fp8-block": (NO, YES),
            "tokens-513-bf16": (NO, NO),
            "tokens-4097-fp8-block": (YES, YES),
            "k-off-tile": (OPEN, OPEN),
        },
        "m3-wider-or-deeper": {
            "wider-prefill": (YES, YES),
            "wider-decode": (YES, YES),
            "widest-prefill": (YES, YES),
            "widest-decode": (YES, YES),
        },
        "m4-quantisation": {
            "fp8-weights-prefill": (YES, YES),
            "fp8-weights-decode": (OPEN, OPEN),
            "fp8-kv-decode": (YES, YES),
            "nvfp4-weights-prefill": (OPEN, OPEN),
            "nvfp4-weights-decode": (OPEN, OPEN),
        },
        "m4-quantisation-moe": {
            "experts-fp8-decode": (OPEN, YES),
            "experts-nvfp4-decode": (OPEN, OPEN),
            "experts-nvfp4-prefill": (OPEN, OPEN),
        },
    }.items(),
)
def test_verdicts_of_the_published_kernels(name: str, expected: dict[str, tuple[str, str]]) -> None:
    found: dict[str, list[str]] = {}
    for verdict in judge(STUDIES[name], *on_tables(name)):
        found.setdefault(verdict.claim_id, []).append(verdict.verdict)
    assert {claim: tuple(both) for claim, both in found.items()} == expected


def answers(name: str, claim_id: str) -> list[Verdict]:
    return verdicts(name, claim_of(name, claim_id), on_tables(name))


def figures(name: str, claim_id: str) -> dict[tuple[str, str, str], float]:
    """System, what and where → value."""
    return {
        (verdict.system, figure.label, figure.where): figure.value
        for verdict in answers(name, claim_id)
        for figure in verdict.figures
    }


@pytest.mark.tables
def test_the_decode_cliff_has_its_factors() -> None:
    found = figures("a1d-group-size-decode", "decode-mqa-is-the-limit")
    for system, at_b8, at_b1 in (("b200_sxm", 40.2, 9.8), ("h200_sxm", 22.6, 7.1)):
        assert found[system, "G 64 over 32", "QH 64, b 8, KVSL 32768"] == pytest.approx(at_b8, abs=0.05)
        assert found[system, "G 64 over 32", "QH 64, b 1, KVSL 32768"] == pytest.approx(at_b1, abs=0.05)


@pytest.mark.tables
def test_the_decode_cliff_has_its_edges() -> None:
    study = STUDIES["a1d-group-size-decode"]
    found: dict[str, list[Edge]] = {}
    for edge in edges(cliffs(study, *on_tables(study.name))):
        found.setdefault(edge.system, []).append(edge)
    [b200], [h200] = found["b200_sxm"], found["h200_sxm"]
    assert (b200.phase, b200.axis, b200.op, b200.low, b200.high) == ("decode", "G", "layer.attn.attention", 32, 64)
    assert (h200.phase, h200.axis, h200.op, h200.low, h200.high) == ("decode", "G", "layer.attn.attention", 32, 48)
    [step] = [one for one in h200.cliffs if (one.series, one.where) == ("KH 2", "b 8, KVSL 16384")]
    assert (step.low, step.high) == (32, 48)
    assert (round(step.time_ms_low, 4), round(step.time_ms_high, 3)) == (0.0515, 1.554)
    assert step.heads == ("64:2", "96:2")
    assert b200.short == (
        "layer.attn.attention ×40.2 from G 32 to 64 (64:2 → 64:1 heads) at QH 64, b 8, KVSL 32768 "
        "(0.0373 → 1.499 ms), ×9.80 at b 1"
    )
    assert h200.short == (
        "layer.attn.attention ×22.6 from G 32 to 64 (64:2 → 64:1 heads) at QH 64, b 8, KVSL 32768 "
        "(0.0824 → 1.865 ms), ×7.12 at b 1"
    )
    assert h200.text.endswith(
        "The edge is seen from G 32 to 48 (64:2 → 96:2 heads) at KH 2, b 8, KVSL 16384: 0.0515 → 1.554 ms, "
        "×20.1 beyond its work"
    )


@pytest.mark.tables
def test_one_token_too_many_is_told_as_a_median_over_shapes() -> None:
    on_b200, on_h200 = answers("m2-tile-alignment", "tokens-257-fp8-block")
    # K 2048 to 16384 on H200: 27.66/14.09, 48.96/21.43, 97.6/36.4 and 158.9/66.1 µs
    assert on_h200.key == "2.34×"
    assert "single ones 1.96× to 2.68×" in on_h200.finding
    assert on_b200.key == "1.07×"
    on_b200, on_h200 = answers("m2-tile-alignment", "tokens-pad-fp8-block")
    assert (on_b200.key, on_h200.key) == ("1.23×", "0.765×")


@pytest.mark.tables
def test_more_tokens_in_less_time_are_noted() -> None:
    study = STUDIES["m2-tile-alignment"]
    frames = on_tables(study.name)
    found = falls(study, *frames, cliffs(study, *frames))
    noted = {(one.system, one.op, one.less, one.more) for one in found if "fp8_block, H' 8192" in one.where}
    assert ("h200_sxm", "layer.ffn.down", 257, 512) in noted
    assert not any(system == "b200_sxm" for system, *_ in noted)


@pytest.mark.tables
def test_verdicts_say_how_many_of_their_rows_read_from_l2() -> None:
    told = {
        (verdict.system, verdict.claim_id): verdict.caveats
        for verdict in judge(STUDIES["a1o-overheads"], *on_tables("a1o-overheads"))
    }
    assert told["b200_sxm", "overheads-32k-b1"] == ("4 of 4 deciding rows read their KV cache from L2 (l2_warm)",)
    assert told["h200_sxm", "overheads-32k-b8"] == ()


@pytest.mark.tables
def test_the_tables_in_the_documentation_are_what_a_run_of_the_demo_says(tmp_path: Path) -> None:
    """To write them anew: make demo, then python -m harness.report.verdict_table reports/demo docs/studies.md."""
    suite, studies = load_suite("demo")
    run_priced(make_plan(suite, studies), tmp_path / "demo", PriceOptions(on="tables"))
    page = tmp_path / "studies.md"
    page.write_text((REPOSITORY / "docs" / "studies.md").read_text())
    verdict_table.main(tmp_path / "demo", page)
    assert page.read_text() == (REPOSITORY / "docs" / "studies.md").read_text()
    assert re.findall(r"<!-- verdicts: (\S+) -->\n\| Claim \|", page.read_text()) == list(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_a_claim_is_understood_alone(name: str) -> None:
    for claim in STUDIES[name].claims:
        assert not re.match(r"(So|It|They|This|That|The same)\b", claim.statement), claim.statement
        assert not re.search(r"\bso (do|does)\b", claim.statement), claim.statement
        assert claim.statement.endswith("."), claim.statement


@pytest.mark.parametrize("name", STUDIES)
def test_titles_say_nothing_about_where_numbers_come_from(name: str) -> None:
    suite, _ = load_suite("demo")
    study = STUDIES[name]
    for text in (suite.title, suite.about, study.title, study.about):
        assert not {"measured", "measurements", "tables", "published"} & set(text.lower().split()), text


@pytest.mark.parametrize("name", STUDIES)
def test_the_roofline_decides_nothing(name: str) -> None:
    for verdict in judge(STUDIES[name], *on_roofline(name)):
        assert (verdict.verdict, verdict.reason) == ("cannot tell", "roofline only")
        assert verdict.finding.startswith("roofline only: ")


@pytest.mark.tables
def test_the_gain_per_doubling_is_told_with_its_batch_and_context() -> None:
    found = figures("a1d-group-size-decode", "decode-gain-32k")
    place = "QH 64, b 8, KVSL 32768"
    told = {
        (system, step): found[system, f"gain, G {step}", place]
        for system in ("b200_sxm", "h200_sxm")
        for step in ("8 → 16", "16 → 32")
    }
    # 86.8, 52.0 and 37.3 µs on B200, 138.6, 89.8 and 82.4 µs on H200
    assert told == {
        ("b200_sxm", "8 → 16"): pytest.approx(1.67, abs=0.005),
        ("b200_sxm", "16 → 32"): pytest.approx(1.39, abs=0.005),
        ("h200_sxm", "8 → 16"): pytest.approx(1.54, abs=0.005),
        ("h200_sxm", "16 → 32"): pytest.approx(1.09, abs=0.005),
    }


@pytest.mark.tables
def test_prefill_spreads_are_medians_and_the_rest_is_shown() -> None:
    found = figures("a1p-group-size-prefill", "prefill-flat")
    median = "spread over G, median over b"
    assert found["b200_sxm", median, "QH 64, Hsz 128, ISL 16384"] == pytest.approx(1.87, abs=0.01)
    assert found["h200_sxm", median, "QH 64, Hsz 128, ISL 16384"] == pytest.approx(3.02, abs=0.01)
    single = {(system, where): value for (system, label, where), value in found.items() if label == "spread over G"}
    at_16384 = [value for (system, where), value in single.items() if system == "b200_sxm" and "ISL 16384" in where]
    shorter = [value for (system, where), value in single.items() if system == "b200_sxm" and "ISL 16384" not in where]
    assert round(max(at_16384), 1) == 9.4
    assert round(max(shorter), 1) == 34.4
    on_b200, _ = answers("a1p-group-size-prefill", "prefill-flat")
    assert on_b200.finding.endswith("Shown beside it, ISL 4096 and 8192, run noise in no order of G: 2.1 % to 34.4 %.")


@pytest.mark.tables
def test_a_short_reduction_halves_the_rate() -> None:
    on_b200, on_h200 = answers("m1-near-square", "short-k-fp8-block")
    assert "H' 512 over 8192 is 0.529× (1424 TFLOP/s against 2692 TFLOP/s)" in on_b200.finding
    assert "H' 512 over 8192 is 0.452× (515 TFLOP/s against 1140 TFLOP/s)" in on_h200.finding


@pytest.mark.tables
def test_cases_beyond_the_tables_are_kept_and_have_no_number() -> None:
    records, _ = on_tables("a1d-group-size-decode")
    beyond = records[records["series"] == "outside the tables"]
    assert set(beyond[beyond["group_size"] == 4]["status"]) == {"unsupported"}  # 64 query and 16 KV heads
    assert set(beyond[beyond["kvsl"] > 32768]["status"]) == {"refused", "unsupported"}
    assert set(beyond[(beyond["group_size"] == 8) & (beyond["kvsl"] == 32768)]["status"]) == {"ok"}


@pytest.mark.tables
def test_the_kv_part_and_the_weight_part_are_told_apart() -> None:
    study = STUDIES["m4-quantisation"]
    table = effects(study, *on_tables(study.name))
    decode = table[(table["phase"] == "decode") & (table["system"] == "b200_sxm")]
    decode = decode[decode["where"].str.contains("b 64")]
    weights = decode[(decode["axis"] == "weights") & (decode["value"] == "fp8")].groupby("part")["ratio"].mean()
    kv = decode[(decode["axis"] == "kv_format") & (decode["value"] == "fp8")].groupby("part")["ratio"].mean()
    assert weights["attention"] == pytest.approx(1)
    assert weights["ffn"] < 0.8
    assert kv["ffn"] == pytest.approx(1)
    assert kv["attention"] == pytest.approx(0.53, abs=0.01)
