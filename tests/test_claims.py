"""Verdicts follow from rows, thresholds and the scatter allowed, and from nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from answered import ATTENTION, a_study, answered, priced
from command_line import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.claims import Verdict, judge
from harness.analysis.readings import within_bound
from harness.errors import UsageError
from harness.files import parse_yaml
from harness.spec.base import parse
from harness.spec.study import Study


def group(kernel: Any) -> int:
    return int(kernel.q_heads / kernel.kv_heads)


def verdict_of(claim: dict[str, Any], times_us: dict[int, float | str], **changes: Any) -> Verdict:
    """The one verdict of a claim about decode attention that takes `times_us[G]`."""
    study = a_study({"quantity": ATTENTION, "axis": "G", "scatter_pct": 10, **claim}, **changes)
    [verdict] = judge(study, *answered(study, lambda kernel: times_us[group(kernel)]))
    return verdict


HALVING = {1: 8000.0, 2: 4000.0, 4: 2000.0, 8: 1000.0}
EIGHT_OVER_ONE = {
    "kind": "ratio", "quantity": ATTENTION, "axis": "G", "value": 8, "over": 1, "at_most": 1, "scatter_pct": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("slowest", "verdict"),
    [(1049, "supports"), (1051, "cannot tell"), (1149, "cannot tell"), (1151, "contradicts")],
)
def test_a_spread_within_the_threshold_supports_and_beyond_threshold_and_scatter_contradicts(
    slowest: float, verdict: str
) -> None:
    found = verdict_of({"kind": "flat_within", "at_most_pct": 5}, {1: 1000, 2: slowest, 4: 1010, 8: 1000})
    assert found.verdict == verdict
    assert found.threshold == "spread over G at most 5 %; scatter allowed 10 %"


def test_a_finding_says_the_numbers_their_units_and_where_they_hold() -> None:
    found = verdict_of({"kind": "flat_within", "at_most_pct": 5}, {1: 1000, 2: 1020, 4: 1000, 8: 1000})
    assert found.finding == (
        "layer.attn.attention, b 8, KVSL 65536: spread over G 2.0 % "
        "(1000 µs at 1, 1020 µs at 2, 1000 µs at 4, 1000 µs at 8)."
    )
    [figure] = found.figures
    assert (figure.label, figure.unit, figure.where, figure.judged) == ("spread over G", "%", "b 8, KVSL 65536", True)
    assert figure.value == pytest.approx(2.0)
    assert found.attempt_ids == ("s.0000", "s.0001", "s.0002", "s.0003")


@pytest.mark.parametrize(
    ("gain", "verdict"),
    # 1.6 x 1.1 = 1.76 and 1.6 / 1.1 = 1.4545
    [(1.77, "supports"), (1.75, "cannot tell"), (1.46, "cannot tell"), (1.45, "contradicts")],
)
def test_a_gain_has_to_leave_the_scatter_around_its_bound(gain: float, verdict: str) -> None:
    times = {1: 8000.0, 2: 8000.0 / gain, 4: 8000.0 / gain / 2, 8: 8000.0 / gain / 4}
    found = verdict_of({"kind": "gain_per_doubling", "at_least": 1.6}, times)
    assert found.verdict == verdict
    assert f"gain per doubling of G 1 → 2 {gain:.2f}×, 2 → 4 2.00×, 4 → 8 2.00×" in found.finding


def test_a_gain_at_most_turns_the_bound_round() -> None:
    claim = {"kind": "gain_per_doubling", "at_most": 1.2, "where": {"G": [1, 2]}}
    assert verdict_of(claim, {**HALVING, 1: 4000}).verdict == "supports"
    assert verdict_of(claim, {**HALVING, 1: 4800}).verdict == "cannot tell"
    assert verdict_of(claim, HALVING).verdict == "contradicts"


def test_values_that_are_no_doubling_make_no_gain() -> None:
    found = verdict_of({"kind": "gain_per_doubling", "at_least": 1.5, "where": {"G": [1, 4]}}, HALVING)
    assert (found.verdict, found.figures) == ("cannot tell", ())
    assert found.finding == "the rows hold no two values to compare."


@pytest.mark.parametrize(
    ("times", "at_most", "verdict", "ends"),
    [
        # gains 2, 1, 1: they end at 2
        ({1: 2000, 2: 1000, 4: 1000, 8: 1000}, 2, "supports", "gains end at G 2"),
        ({1: 2000, 2: 1000, 4: 1000, 8: 1000}, 1, "contradicts", "gains end at G 2"),
        # 2 → 4 gains 1.15, between 1.10 and 1.21: they end at 2 or at 4
        ({1: 2300, 2: 1150, 4: 1000, 8: 1000}, 2, "cannot tell", "gains end at G between 2 and 4"),
        ({1: 2300, 2: 1150, 4: 1000, 8: 1000}, 4, "supports", "gains end at G between 2 and 4"),
        ({1: 2300, 2: 1150, 4: 1000, 8: 1000}, 1, "contradicts", "gains end at G between 2 and 4"),
        # a pause is no end
        ({1: 2000, 2: 2000, 4: 1000, 8: 1000}, 2, "contradicts", "gains end at G 4"),
        (HALVING, 4, "contradicts", "gains up to G 8, the last one looked at"),
    ],
)
def test_gains_end_where_no_further_doubling_gains(
    times: dict[int, float | str], at_most: int, verdict: str, ends: str
) -> None:
    found = verdict_of({"kind": "saturation", "gain_below_pct": 10, "at_most": at_most}, times)
    assert found.verdict == verdict
    assert f"KVSL 65536: {ends}: gain per doubling" in found.finding


def test_gains_that_last_long_enough() -> None:
    claim = {"kind": "saturation", "gain_below_pct": 10, "at_least": 4}
    assert verdict_of(claim, HALVING).verdict == "supports"
    assert verdict_of(claim, {1: 2000, 2: 1000, 4: 1000, 8: 1000}).verdict == "contradicts"
    assert verdict_of(claim, {1: 2300, 2: 1150, 4: 1000, 8: 1000}).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("other", "verdict"),
    [(1101, "supports"), (1099, "cannot tell"), (910, "cannot tell"), (909, "contradicts")],
)
def test_the_best_value_has_to_lead_by_the_scatter(other: float, verdict: str) -> None:
    times = {1: 3000, 2: 1000, 4: 1200, 8: other}
    found = verdict_of({"kind": "best_at", "values": [2, 4]}, times)
    assert found.verdict == verdict


def test_the_best_rate_is_the_highest() -> None:
    claim = {"kind": "best_at", "quantity": {"op": "layer.attn.attention", "measure": "gb_per_s"}, "values": 8}
    # G 8 moves an eighth of the bytes: in a fourth of the time at half the rate, in a twentieth at 2.5 times the rate
    assert verdict_of(claim, {1: 8000, 2: 4000, 4: 2000, 8: 2000}).verdict == "contradicts"
    assert verdict_of(claim, {1: 8000, 2: 4000, 4: 2000, 8: 400}).verdict == "supports"


def test_a_ratio_needs_its_two_values_only() -> None:
    claim = {"kind": "ratio", "value": 8, "over": 1, "at_most": 0.2}
    found = verdict_of(claim, {1: 8000, 2: "not in the tables", 4: "not in the tables", 8: 1000})
    assert found.verdict == "supports"
    assert found.finding == "layer.attn.attention, b 8, KVSL 65536: G 8 over 1 is 0.125× (1000 µs against 8000 µs)."
    assert found.attempt_ids == ("s.0000", "s.0003")


def test_an_exponent_is_uncertain_by_the_scatter() -> None:
    """From 32768 to 65536 a scatter of 10 % moves a slope by ln 1.1 / ln 2 = 0.1375."""
    claim = {
        "kind": "exponent", "quantity": ATTENTION, "axis": "kvsl", "expect": 1, "tolerance": 0.3, "scatter_pct": 10,
    }  # fmt: skip
    study = a_study(claim, axes={"G": [4]}, workloads={"decode": {"batch": 8, "kvsl": [32768, 65536]}})

    def with_slope(slope: float) -> Verdict:
        [verdict] = judge(study, *answered(study, lambda kernel: 1000 * (kernel.kvsl / 32768) ** slope))
        return verdict

    assert [with_slope(slope).verdict for slope in (1.16, 1.17, 1.43, 1.44)] == [
        "supports", "cannot tell", "cannot tell", "contradicts",
    ]  # fmt: skip
    assert "exponent in KVSL 0.90 from 32768 to 65536" in with_slope(0.9).finding


def test_the_median_is_taken_of_readings_not_of_times() -> None:
    """Spreads 1 %, 40 % and 2 % over batches: the median is 2 %, whatever the batches take."""
    spreads = {1: 1.01, 2: 1.40, 4: 1.02}
    claim = {
        "kind": "flat_within", "quantity": ATTENTION, "axis": "G", "at_most_pct": 5, "scatter_pct": 5,
        "median_over": "batch",
    }  # fmt: skip
    study = a_study(claim, axes={"G": [1, 2]}, workloads={"decode": {"batch": [1, 2, 4], "kvsl": 65536}})
    frames = answered(study, lambda one: 1000 * one.batch * (spreads[one.batch] if group(one) == 2 else 1))
    [verdict] = judge(study, *frames)
    assert verdict.verdict == "supports"
    assert "spread over G 2.0 % (median over b; single ones 1.0 % to 40.0 %)" in verdict.finding
    assert [(figure.judged, round(figure.value, 6)) for figure in verdict.figures] == [
        (True, 2.0), (False, 1.0), (False, 40.0), (False, 2.0),
    ]  # fmt: skip


def test_rows_that_do_not_decide_are_shown_beside() -> None:
    claim = {
        "kind": "flat_within", "quantity": ATTENTION, "axis": "G", "at_most_pct": 5, "scatter_pct": 5,
        "judge_at": {"kvsl": 65536}, "shown_note": "shorter contexts",
    }  # fmt: skip
    study = a_study(claim, axes={"G": [1, 2]}, workloads={"decode": {"batch": 8, "kvsl": [8192, 32768, 65536]}})
    slower = {8192: 1.5, 32768: 1.25, 65536: 1.01}
    [verdict] = judge(study, *answered(study, lambda one: 1000 * (slower[one.kvsl] if group(one) == 2 else 1)))
    assert verdict.verdict == "supports"
    assert verdict.finding.endswith(". Shown beside it, shorter contexts: 25.0 % to 50.0 %.")
    assert verdict.threshold == "spread over G at most 5 %; scatter allowed 5 %; judged at KVSL 65536"
    assert len(verdict.attempt_ids) == 2


def test_a_row_without_a_number_leaves_the_claim_open_and_is_named() -> None:
    times: dict[int, float | str] = {**HALVING, 8: "KVSL 65536 lies beyond the rows"}
    found = verdict_of({"kind": "gain_per_doubling", "at_least": 1.6}, times)
    assert found.verdict == "cannot tell"
    assert found.finding.startswith(
        "Cannot tell: no number at G 8, b 8, KVSL 65536 "
        "(refused: layer.attn.attention: KVSL 65536 lies beyond the rows). The rows there are read: "
    )
    assert "1 → 2 2.00×, 2 → 4 2.00×" in found.finding


def test_a_row_that_the_study_leaves_out_is_not_needed() -> None:
    times: dict[int, float | str] = {**HALVING, 8: 1e9}
    study = a_study(
        {"kind": "gain_per_doubling", "quantity": ATTENTION, "axis": "G", "at_least": 1.6, "scatter_pct": 10},
        exclude=[{"when": {"G": 8}, "reason": "known to be broken"}],
    )
    records, ops = answered(study, lambda kernel: times[group(kernel)])
    records.loc[records["coordinates"].str.contains('"G": 8'), "status"] = "skipped"
    assert judge(study, records, ops)[0].verdict == "supports"


def test_a_value_that_the_sweep_lost_is_named() -> None:
    claim = {"kind": "ratio", "value": 16, "over": 8, "at_most": 1.1, "where": {"batch": [8, 32]}}
    found = verdict_of(claim, HALVING)
    assert found.verdict == "cannot tell"
    assert "the sweep has no row at b 32; the sweep has no row at G 16" in found.finding


def test_a_confounder_decides_by_the_rows_not_by_their_numbers() -> None:
    claim = {
        "kind": "ratio", "quantity": ATTENTION, "axis": "G", "value": 8, "over": 1, "at_most": 0.5, "scatter_pct": 10,
        "confounders": [{"when": {"G": 8, "flags": "sinks"}, "reason": "sinks on one side only"}],
    }  # fmt: skip
    study = a_study(claim)
    clean = answered(study, lambda kernel: HALVING[group(kernel)])
    mixed = answered(study, lambda kernel: HALVING[group(kernel)], lambda one: ("sinks",) * (group(one) == 8))
    assert judge(study, *clean)[0].verdict == "supports"
    [confounded] = judge(study, *mixed)
    assert confounded.verdict == "cannot tell"
    assert confounded.finding.startswith("Cannot tell: confounded: sinks on one side only. The rows there are read: ")


def test_a_row_faster_than_its_roofline_cannot_decide() -> None:
    """8 sequences of 65536 tokens, 16 KV heads of 128 in bf16: 4.3e9 bytes, 537 µs and more on any B200."""
    found = verdict_of({"kind": "ratio", "value": 2, "over": 1, "at_most": 2}, {**HALVING, 1: 100.0, 2: 100.0})
    assert found.verdict == "cannot tell"
    assert "100 µs at G 1, b 8, KVSL 65536 is beyond its roofline, " in found.finding


@pytest.mark.parametrize(
    ("claim", "key", "what"),
    [
        ({"kind": "flat_within", "at_most_pct": 5}, "700.0 %", "spread over G"),
        ({"kind": "gain_per_doubling", "at_least": 1.6}, "2.00×, 2.00×, 2.00×", "gain, G 1 → 2, 2 → 4, 4 → 8"),
        ({"kind": "ratio", "value": 8, "over": 1, "at_most": 1}, "0.125×", "G 8 over 1"),
        ({"kind": "exponent", "expect": -1, "tolerance": 0.2}, "-1.00", "exponent in G, 1 → 2, 2 → 4, 4 → 8"),
        ({"kind": "best_at", "values": 8}, "8 best, next 2.00×", "times worse than the best G of 1, 2, 4, 8"),
        (
            {"kind": "saturation", "gain_below_pct": 10, "at_most": 4},
            "gains up to G 8",
            "gain per doubling, G 1 → 2, 2 → 4, 4 → 8",
        ),
    ],
)
def test_every_kind_has_one_number_to_remember(claim: dict[str, Any], key: str, what: str) -> None:
    found = verdict_of(claim, HALVING)
    assert (found.key, found.what, found.where) == (key, what, "b 8, KVSL 65536")


def test_the_number_of_several_groups_is_their_range() -> None:
    study = a_study(EIGHT_OVER_ONE, axes={"G": [1, 8]}, workloads={"decode": {"batch": [4, 8], "kvsl": 65536}})
    [verdict] = judge(study, *answered(study, lambda one: 8000 / (group(one) if one.batch == 8 else 1)))
    assert (verdict.key, verdict.where) == ("0.125× to 1.00×", "b 4/8, KVSL 65536")


@pytest.mark.parametrize(
    ("claim", "times", "reason"),
    [
        ({"kind": "ratio", "value": 8, "over": 1, "at_most": 0.13}, HALVING, "within the scatter of the threshold"),
        ({"kind": "ratio", "value": 16, "over": 32, "at_most": 1}, HALVING, "G 16, G 32 not in this sweep"),
        ({"kind": "ratio", "value": 8, "over": 1, "at_most": 1}, {**HALVING, 1: "no"}, "needed rows are refused"),
        (
            {"kind": "ratio", "value": 8, "over": 1, "at_most": 1},
            {**HALVING, 1: 1.0},
            "a row is faster than its roofline",
        ),
        ({"kind": "flat_within", "at_most_pct": 1, "where": {"G": 1}}, HALVING, "no two values to compare"),
        (EIGHT_OVER_ONE, HALVING, ""),
    ],
)
def test_why_rows_cannot_tell_fits_in_a_few_words(claim: dict[str, Any], times: Any, reason: str) -> None:
    found = verdict_of(claim, times)
    assert found.reason == reason
    assert (found.verdict == "cannot tell") == bool(reason)


def test_a_value_that_other_series_have_is_missing_where_the_claim_looks() -> None:
    claim = {
        "kind": "ratio", "quantity": ATTENTION, "axis": "G", "value": 8, "over": 1, "at_most": 1, "scatter_pct": 10,
        "where": {"series": "b"},
    }  # fmt: skip
    series = [{"name": "a", "axes": {"G": [1, 8]}}, {"name": "b", "axes": {"G": [1, 4]}}]
    study = a_study(claim, axes={}, series=series)
    [verdict] = judge(study, *answered(study, lambda kernel: HALVING[group(kernel)]))
    assert (verdict.verdict, verdict.reason) == ("cannot tell", "G 8 not in this sweep")


def test_flags_of_deciding_rows_are_counted() -> None:
    study = a_study(EIGHT_OVER_ONE)
    warm = {1: (), 2: (), 4: (), 8: ("l2_warm", "suspect")}
    [verdict] = judge(study, *answered(study, lambda one: HALVING[group(one)], lambda one: warm[group(one)]))
    assert verdict.verdict == "supports"
    assert verdict.caveats == (
        "1 of 2 deciding rows read its KV cache from L2 (l2_warm)",
        "1 of 2 deciding rows failed a check of its number (suspect)",
    )
    assert f". {verdict.caveats[0]}. {verdict.caveats[1]}." in verdict.finding
    [both] = judge(study, *answered(study, lambda one: HALVING[group(one)], lambda _: ("l2_warm", "of_tomorrow")))
    assert both.caveats == (
        "2 of 2 deciding rows read their KV cache from L2 (l2_warm)",
        "2 of 2 deciding rows carried a flag (of_tomorrow)",
    )


def test_a_part_from_the_roofline_is_a_caveat() -> None:
    """Attention is measured here, the norms are not."""
    for category, told in (
        ("norm", ("2 of 2 deciding rows took a part of their time from the roofline (modelled)",)),
        ("attention", ()),
    ):
        study = a_study({**EIGHT_OVER_ONE, "quantity": {"category": category}})
        [verdict] = judge(study, *answered(study, lambda one: HALVING[group(one)]))
        assert verdict.caveats == told


@pytest.mark.parametrize("at_most", [0.01, 0.5, 100])
def test_the_roofline_is_no_evidence_whatever_it_says(at_most: float) -> None:
    claim = {
        "kind": "ratio", "quantity": ATTENTION, "axis": "G", "value": 8, "over": 1, "at_most": at_most,
        "scatter_pct": 10, "shown_note": "smaller batches, run noise", "judge_at": {"batch": 8},
    }  # fmt: skip
    study = a_study(claim, workloads={"decode": {"batch": [4, 8], "kvsl": 65536}})
    [verdict] = judge(study, *priced(study))
    assert (verdict.verdict, verdict.reason) == ("cannot tell", "roofline only")
    # KV falls to an eighth: (537 + 2) µs against (67 + 2) µs, near enough
    assert verdict.finding.startswith("roofline only: layer.attn.attention, b 8, KVSL 65536: G 8 over 1 is 0.12")
    assert "run noise" not in verdict.finding
    assert verdict.key.startswith("0.12")


def test_a_value_that_a_roofline_sweep_lost_is_still_named() -> None:
    study = a_study({**EIGHT_OVER_ONE, "value": 16})
    [verdict] = judge(study, *priced(study))
    assert verdict.finding == "roofline only: the sweep has no row at G 16."


def test_one_contradiction_is_enough_and_each_system_is_judged_alone() -> None:
    claim = {"kind": "gain_per_doubling", "quantity": ATTENTION, "axis": "G", "at_least": 1.6, "scatter_pct": 10}
    study = a_study(claim, systems=["b200_sxm", "h200_sxm"], workloads={"decode": {"batch": [4, 8], "kvsl": 65536}})
    records, ops = answered(study, lambda one: 8000 / group(one) if one.batch == 4 else 8000)
    on_h200 = records[(records["system"] == "h200_sxm") & (records["batch"] == 8)]["attempt_id"]
    altered = ops["attempt_id"].isin(on_h200) & (ops["op"] == "layer.attn.attention")
    assert [one.verdict for one in judge(study, records, ops)] == ["contradicts", "contradicts"]
    for column in ("time_us", "total_us"):
        ops.loc[altered, column] = [
            8000.0 / records.set_index("attempt_id").loc[attempt, "group_size"]
            for attempt in ops.loc[altered, "attempt_id"]
        ]
    assert [one.verdict for one in judge(study, records, ops)] == ["contradicts", "supports"]


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0, 0.5))
def test_a_bound_read_from_the_other_side_gives_the_other_verdict(value: float, bound: float, scatter: float) -> None:
    opposite = {"supports": "contradicts", "contradicts": "supports", "cannot tell": "cannot tell"}
    at_least = within_bound(value, bound, None, scatter)
    if abs(value / bound - 1 - scatter) > 1e-9 and abs(bound / value - 1 - scatter) > 1e-9:  # on the edge both may hold
        assert within_bound(value, None, bound, scatter) == opposite[at_least]


def test_the_study_in_the_documentation_is_one() -> None:
    text = (REPOSITORY / "docs" / "claims.md").read_text()
    [block] = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    study = parse(Study, {"name": "documentation", **parse_yaml(block)}, "docs/claims.md")  # type: ignore[dict-item]
    [verdict] = judge(study, *priced(study))
    assert verdict.verdict in {"supports", "contradicts", "cannot tell"}
    assert len(verdict.attempt_ids) == 3


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"kind": "ratio", "value": 8, "over": 8, "at_most": 1}, "compares G 8 with itself"),
        ({"kind": "ratio", "value": 8, "over": 1}, "give exactly one of at_least and at_most"),
        ({"kind": "saturation", "at_most": 1, "at_least": 2}, "give exactly one of at_least and at_most"),
        ({"kind": "flat_within", "at_most_pct": 5, "at_least": 1}, "unknown key"),
        ({"kind": "flat_within", "at_most_pct": -1}, "greater than or equal to 0"),
        ({"kind": "best_at", "values": []}, "at least 1 item"),
        ({"kind": "steepest"}, "steepest"),
        ({"kind": "ratio", "value": 8, "over": 1, "at_most": 1, "confounders": [{"when": {}, "reason": "r"}]}, "when"),
        (
            {"kind": "flat_within", "at_most_pct": 5, "quantity": {"op": "lm_head", "category": "ffn"}},
            "names both op 'lm_head' and category 'ffn'",
        ),
        (
            {"kind": "flat_within", "at_most_pct": 5, "quantity": {"op": "lm_head", "measure": "tok_s_per_gpu"}},
            "tok_s_per_gpu is a measure of the whole phase",
        ),
    ],
)
def test_an_impossible_claim_is_refused(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        a_study({"axis": "G", "scatter_pct": 10, **claim})
