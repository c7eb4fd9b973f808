"""Tables: exact cells worked out from the times of the hand-made run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_run import LEFT_OUT, REFUSAL, STUDY_DATA, hand_run

from harness.analysis.sources import source_mix, sources_text
from harness.analysis.words import mix_text
from harness.report.content import Report, build_report, system_names
from harness.report.effects import ratio_tone
from harness.report.glossary import FLAGS, SOURCES, flag_meaning, glossary, measured_by
from harness.report.shares import shares_table
from harness.report.tables import Table, claims_table, cliffs_table, environment_table, flags_table, not_ok_table
from harness.spec.base import parse
from harness.spec.study import Study


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return build_report([hand_run(tmp_path_factory.mktemp("runs") / "hand")])


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def headings(table: Table) -> list[str]:
    return [column.heading for column in table.columns]


def test_effects_are_ratios_against_the_baseline_one_column_for_each_value(report: Report) -> None:
    (effect,) = report.sections[0].effects
    assert effect.title == "G in decode"
    whole, attention = effect.tables
    assert headings(attention) == ["GPU", "b", "KVSL", "G 8 (ms)", "16 (×)", "32 (×)", "64 (×)"]
    # ten layers: 10 x 0.080 ms at G 8; 50 / 80, 40 / 80, 1600 / 80
    assert texts(attention)[1] == ["B200", "8", "32768", "0.8000", "0.625", "0.500", "20.0"]
    assert texts(attention)[3] == ["H200", "8", "32768", "1.400", "0.643", "0.571", ""]
    assert [cell.tone for cell in attention.rows[1][4:]] == ["faster-2", "faster-3", "slower-3"]
    assert effect.unchanged == ("QKV and output projections", "FFN", "norms")
    assert whole.title == "all ops"


@pytest.mark.parametrize(
    ("ratio", "tone"),
    [
        (0.5, "faster-3"),
        (0.79, "faster-2"),
        (0.95, "faster-1"),
        (0.96, ""),
        (1.04, ""),
        (1.05, "slower-1"),
        (3, "slower-3"),
    ],
)
def test_a_shade_repeats_the_ratio(ratio: float, tone: str) -> None:
    assert ratio_tone(ratio) == tone


def test_a_study_of_one_op_is_not_split_into_categories(tmp_path: Path) -> None:
    data = {**STUDY_DATA, "level": "op", "ops": "layer.attn.attention"}
    run = hand_run(tmp_path / "run", study=parse(Study, data, "s"))
    # the hand-made run prices every op; keep what such a study would hold
    run = type(run)(run.path, run.suite, run.studies, run.records, run.ops[run.ops["category"] == "attention"])
    section = build_report([run]).sections[0]
    assert [len(effect.tables) for effect in section.effects] == [1]
    assert section.shares == ()


def test_shares_of_every_value_at_the_same_workload_on_each_gpu(report: Report) -> None:
    b200, h200 = report.sections[0].shares
    assert (b200.system, h200.system) == ("B200", "H200")
    assert b200.about == h200.about == "decode, b 8, KVSL 32768"
    assert [bar.label for bar in b200.bars] == ["G 8", "G 16", "G 32", "G 64"]
    assert [bar.label for bar in h200.bars] == ["G 8", "G 16", "G 32"]
    assert [bar.is_baseline for bar in b200.bars] == [True, False, False, False]
    for bar in (*b200.bars, *h200.bars):
        assert sum(segment.share for segment in bar.segments) == pytest.approx(1)
        assert sum(segment.time_ms for segment in bar.segments) == pytest.approx(bar.time_ms)
    first = {segment.category: segment.time_ms for segment in b200.bars[0].segments}
    # 10 x 80 µs of attention, 10 x 2 x 10 µs of projections
    assert first["attention"] == pytest.approx(0.8)
    assert first["projection"] == pytest.approx(0.2)


def test_shares_as_a_table(report: Report) -> None:
    table = shares_table(report.sections[0].shares)
    assert headings(table)[:5] == ["GPU", "At", "Case", "Time (ms)", "attention (ms, %)"]
    assert texts(table)[0][:3] == ["B200", "decode, b 8, KVSL 32768", "G 8 (baseline)"]
    # 10 x 80 µs of attention, 10 x 2 x 10 µs of projections and as much of FFN, and the norms
    assert texts(table)[0][4].startswith("0.800, 6")
    assert report.sections[0].shares[0].longest_ms == pytest.approx(report.sections[0].shares[0].bars[3].time_ms)


def test_claims_with_verdict_finding_and_threshold(report: Report) -> None:
    table = claims_table(report.sections[0].verdicts, report.systems)
    assert [row[:3] for row in texts(table)] == [
        ["A1d", "B200", "supports"],
        ["A1d", "H200", "supports"],
        ["A1d", "B200", "contradicts"],
        ["A1d", "H200", "cannot tell"],
    ]
    assert texts(table)[0][3] == "0.625×"
    assert "0.625" in texts(table)[0][4]
    assert "0.75" in texts(table)[0][5]


def test_cliffs_name_edge_factor_and_both_times(report: Report) -> None:
    table = cliffs_table(report.sections[0].cliffs, report.systems)
    assert headings(table) == [
        *("GPU", "Phase", "Edge", "At", "QH:KH heads", "Op", "Before (ms)", "After (ms)", "After / before (×)"),
        *("Its work explains (×)", "Size (×)"),
    ]
    assert texts(table)[0] == [
        *("B200", "decode", "G (32, 64]", "b 8, KVSL 32768", "64:2 → 64:1", "layer.attn.attention", "0.04000"),
        *("1.600", "40.0", "1.00", "40.0"),
    ]


def test_rows_without_a_number_are_listed_with_their_reasons(report: Report) -> None:
    assert report.counts == {"ok": 14, "refused": 1, "skipped": 1}
    assert texts(not_ok_table(report.records, report.systems)) == [
        ["skipped", "group-size", "H200", "1", "decode G 64, b 1, KVSL 32768", LEFT_OUT],
        ["refused", "group-size", "H200", "1", "decode G 64, b 8, KVSL 32768", f"layer.attn.attention: {REFUSAL}"],
    ]


def test_flags_are_counted_and_explained(report: Report) -> None:
    # batch 1: four values of G on B200, three on H200
    assert texts(flags_table(report.records)) == [["l2_warm", FLAGS["l2_warm"], "7", "7 in group-size"]]


def test_every_flag_and_source_has_a_meaning() -> None:
    from harness.pricing.base import SOURCES as KNOWN

    assert tuple(SOURCES) == KNOWN
    known = {"noisy", "suspect", "throttled", "shared_gpu", "extrapolated", "unmeasured", "l2_warm", "partial", "sinks"}
    assert known == set(FLAGS)
    assert flag_meaning("of_tomorrow") == "see the notes of its ops"


def test_the_badge_names_whose_kernels_were_measured(report: Report) -> None:
    assert report.badges == {
        "composed": "priced from published kernel measurements of TensorRT-LLM 1.3.0rc20, aiconfigurator-core 0.12.0; "
        "nothing ran here"
    }
    detailed = "aiconfigurator-core 0.12.0, tables_trtllm 1.3.0rc20, tables_device NVIDIA B200"
    assert measured_by([detailed, detailed]) == "TensorRT-LLM 1.3.0rc20, aiconfigurator-core 0.12.0"


def test_what_was_compared(report: Report) -> None:
    assert dict(report.facts()) == {
        "Variants": "hand (4 shapes)",
        "GPUs": "B200, H200",
        "Phases": "decode",
        "Cases": "14 ok, 1 refused, 1 skipped",
        "Sources, share of time": "exact 79 %, interpolated 18 %, modelled 3 %",
    }


def test_the_mix_of_sources_is_weighted_by_time(report: Report) -> None:
    """Attention is exact, four GEMMs of 10 µs in ten layers are interpolated, norms and activation are modelled."""
    (section,) = report.sections
    on_b200 = 3 * 0.020 + 0.200 + 0.080 + 0.050 + 0.040 + 1.600
    on_h200 = 3 * 0.030 + 0.140 + 0.090 + 0.080
    attention_ms = 10 * (on_b200 + on_h200)
    times = report.records["step_ms"].sum()
    assert section.sources["decode"]["exact"] == pytest.approx(attention_ms / times, rel=1e-4)
    assert section.sources["decode"]["interpolated"] == pytest.approx(14 * 0.4 / times, rel=1e-4)
    assert sum(section.sources["decode"].values()) == pytest.approx(1)


def test_phases_are_never_added(report: Report) -> None:
    rows = report.records.copy()
    rows.loc[rows["batch"] == 1, "phase"] = "prefill"
    rows["prefill_compute_ms"] = rows["step_ms"]
    mix = source_mix(rows)
    assert list(mix) == ["prefill", "decode"]
    assert sources_text(mix).startswith("prefill exact ")
    assert "; decode exact " in sources_text(mix)


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ({"exact": 0.891, "modelled": 0.035, "estimated": 0.074}, "exact 89 %, estimated 7 %, modelled 4 %"),
        ({"exact": 0.998, "modelled": 0.002, "formula": 0.0}, "exact 100 %, modelled under 1 %"),
        ({}, ""),
    ],
)
def test_a_mix_in_words(shares: dict[str, float], text: str) -> None:
    assert mix_text(shares) == text


def test_environments_are_flattened() -> None:
    facts = {"harness": "1", "packages": {"pandas": "2.2"}, "command": ["run", "x"], "driver": None}
    assert texts(environment_table(facts)) == [
        ["harness", "1"], ["packages.pandas", "2.2"], ["command", "run x"], ["driver", ""],
    ]  # fmt: skip


def test_a_sentence_wraps_and_a_number_does_not(report: Report) -> None:
    assert not_ok_table(report.records, report.systems).wide == (False, False, False, False, False, True)


def test_the_glossary_tells_prefill_compute_from_ttft() -> None:
    words = dict(glossary())
    assert "no time to first token" in words["Prefill compute (ms)"]
    assert {"TPOT (ms)", "Decode step (ms)", "roofline", "composed", "cliff"} <= set(words)


def test_systems_are_named_for_readers() -> None:
    names = system_names(["h200_sxm", "cpu", "h900", "cpu"])
    assert names == {"h200_sxm": "H200", "cpu": "CPU", "h900": "h900"}
