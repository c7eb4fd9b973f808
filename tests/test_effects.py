"""What one axis value does against the baseline, everything else equal."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from answered import a_study, answered

from harness.analysis.effect_lines import EffectLine, effect_lines
from harness.analysis.effects import COLUMNS, effects
from harness.analysis.frame import observations
from harness.spec.claims import Quantity
from harness.spec.study import Study


def halving(kernel: Any) -> float:
    """Attention takes 8000 µs at G 1 and half of it with each doubling, for each sequence of a batch of 8."""
    return float(8000 * kernel.kv_heads / 16 * kernel.batch / 8)


def of(table: pd.DataFrame, **where: Any) -> pd.DataFrame:
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def test_each_value_is_compared_with_the_baseline_part_by_part() -> None:
    study = a_study(axes={"G": [1, 2, 4]}, baseline={"G": 2})
    table = effects(study, *answered(study, halving))
    assert tuple(table.columns) == COLUMNS
    attention = of(table, part="attention")
    assert attention["value"].tolist() == [1, 4]
    assert attention["ratio"].tolist() == pytest.approx([2.0, 0.5])
    assert attention["time_ms"].tolist() == pytest.approx([8.0, 2.0])
    assert attention["baseline_ms"].tolist() == pytest.approx([4.0, 4.0])
    assert set(attention["where"]) == {"b 8, KVSL 65536"}
    assert set(attention["baseline_attempt_id"]) == {"s.0001"}
    projections = of(table, part="projection")  # QKV and output, 1 ms each whatever G is
    assert projections["ratio"].tolist() == pytest.approx([1.0, 1.0])
    total = of(table, part="total")
    assert total["baseline_ms"].iloc[0] == pytest.approx(
        sum(of(table, part=part)["baseline_ms"].iloc[0] for part in set(table["part"]) - {"total"})
    )


def test_the_first_value_is_the_baseline_where_none_is_named() -> None:
    study = a_study(axes={"G": [4, 1]})
    table = effects(study, *answered(study, halving))
    assert of(table, part="attention")[["baseline", "value", "ratio"]].values.tolist() == [[4, 1, pytest.approx(4.0)]]


def test_workload_fields_hold_still_unless_the_baseline_names_them() -> None:
    moving = {"decode": {"batch": [4, 8], "kvsl": 65536}}
    study = a_study(axes={"G": [1, 2]}, workloads=moving)
    assert set(effects(study, *answered(study, halving))["axis"]) == {"G"}
    study = a_study(axes={"G": [1, 2]}, workloads=moving, baseline={"batch": 8})
    table = of(effects(study, *answered(study, halving)), axis="batch", part="attention")
    assert table["where"].tolist() == ["G 1, KVSL 65536", "G 2, KVSL 65536"]
    assert table["ratio"].tolist() == pytest.approx([0.5, 0.5])


def test_phases_are_never_compared_with_each_other() -> None:
    study = a_study(
        axes={"G": [1, 2]}, workloads={"decode": {"batch": 8, "kvsl": 65536}, "prefill": {"batch": 8, "isl": 1024}}
    )
    table = of(effects(study, *answered(study, halving)), part="total")
    assert table["phase"].tolist() == ["decode", "prefill"]
    assert table["where"].tolist() == ["b 8, KVSL 65536", "b 8, ISL 1024"]


def test_a_case_without_a_number_or_a_baseline_has_no_effect() -> None:
    study = a_study(axes={"G": [1, 2, 4]})
    refused_at_2 = answered(study, lambda one: "beyond the rows" if one.kv_heads == 8 else halving(one))
    assert set(effects(study, *refused_at_2)["value"]) == {4}
    refused_at_baseline = answered(study, lambda one: "beyond the rows" if one.kv_heads == 16 else halving(one))
    assert effects(study, *refused_at_baseline).empty


def test_series_have_axes_and_baselines_of_their_own() -> None:
    study = a_study(
        axes={},
        series=[
            {"name": "over G", "axes": {"G": [1, 2]}},
            {"name": "over KV", "axes": {"kv_format": ["bf16", "fp8"]}, "baseline": {"kv_format": "fp8"}},
        ],
    )
    table = of(effects(study, *answered(study, halving)), part="total")
    assert table[["series", "axis", "value", "baseline"]].values.tolist() == [
        ["over G", "G", 2, 1], ["over KV", "kv_format", "bf16", "fp8"],
    ]  # fmt: skip


class TestLines:
    """One line for each axis and GPU."""

    def lines(self, study: Study, attention_us: Any = halving) -> list[EffectLine]:
        return effect_lines(effects(study, *answered(study, attention_us)))

    def test_a_line_says_every_value_the_best_and_where(self) -> None:
        """Four GEMMs of 1 ms and norms beside attention of 8, 4, 2 and 1 ms."""
        study = a_study(axes={"G": [8, 1, 4, 2]}, baseline={"G": 4})
        [line] = self.lines(study)
        assert [value for value, _ in line.ratios] == [1, 2, 4, 8]
        whole_ms = line.baseline_ms
        assert dict(line.ratios) == {
            g: pytest.approx((whole_ms - 2 + ms) / whole_ms) for g, ms in {1: 8, 2: 4, 4: 2, 8: 1}.items()
        }
        assert (line.best, line.where, line.workloads) == (8, "b 8, KVSL 65536", 1)
        assert line.text == (
            "G 4 takes 6.007 ms; 2.00× at 1, 1.33× at 2, 0.83× at 8; best: G 8 (decode, b 8, KVSL 65536)"
        )

    def test_the_workload_is_the_one_with_most_values_then_the_longest(self) -> None:
        moving = {"decode": {"batch": [4, 8, 16], "kvsl": 65536}}
        study = a_study(axes={"G": [1, 2, 4]}, workloads=moving, systems=["b200_sxm", "h200_sxm"])
        lines = self.lines(study, lambda one: "beyond" if one.batch == 16 and one.kv_heads == 4 else halving(one))
        assert [(one.system, one.where, one.workloads) for one in lines] == [
            ("b200_sxm", "b 8, KVSL 65536", 3), ("h200_sxm", "b 8, KVSL 65536", 3),
        ]  # fmt: skip
        assert lines[0].text.endswith("(decode, b 8, KVSL 65536; one of 3 workloads)")

    def test_names_keep_their_order_and_equal_values_have_no_best(self) -> None:
        study = a_study(axes={"kv_format": ["fp8", "bf16"]})
        [line] = self.lines(study, lambda _: 1000.0)
        assert [value for value, _ in line.ratios] == ["fp8", "bf16"]
        assert line.best is None
        assert "; all within 1 % (decode" in line.text

    def test_a_study_without_effects_has_no_line(self) -> None:
        assert self.lines(a_study(axes={"G": [4]})) == []


class TestObservations:
    """One row per ok case, in the unit of the measure."""

    def study(self) -> Study:
        return a_study(variant={**a_study().variant.to_yaml_data(), "layers": 3}, axes={"G": [1, 2]})

    def values(self, **quantity: Any) -> list[float]:
        study = self.study()
        return list(observations(answered(study, halving), study, Quantity(**quantity))["value"])

    def test_a_time_is_of_one_execution_or_of_all(self) -> None:
        assert self.values(op="layer.attn.attention", measure="time_us") == pytest.approx([8000, 4000])
        assert self.values(op="layer.attn.attention", measure="time_ms") == pytest.approx([24, 12])
        # two projections of 1 ms in each of three layers
        assert self.values(category="projection", measure="time_us") == pytest.approx([2000, 2000])
        assert self.values(category="projection", measure="time_ms") == pytest.approx([6, 6])

    def test_a_rate_is_work_over_time(self) -> None:
        # 4 · 8 · 16 · 65536 · 128 FLOPs in 8 and 4 ms
        flops = 4 * 8 * 16 * 65536 * 128
        assert self.values(op="layer.attn.attention", measure="tflop_per_s") == pytest.approx(
            [flops / 8e-3 / 1e12, flops / 4e-3 / 1e12]
        )
        # K and V of 16 and 8 heads in bf16, and Q and O of 16 heads
        kv = 8 * 65536 * 16 * 128 * 2 * 2
        qo = 2 * 8 * 16 * 256
        assert self.values(op="layer.attn.attention", measure="gb_per_s") == pytest.approx(
            [(kv + qo) / 8e-3 / 1e9, (kv / 2 + qo) / 4e-3 / 1e9]
        )

    def test_columns_say_where_a_row_lies_and_where_its_number_comes_from(self) -> None:
        study = self.study()
        frames = answered(study, halving, lambda one: ("l2_warm",) if one.kv_heads == 8 else ())
        table = observations(frames, study, Quantity(op="layer.attn.attention", measure="time_us"))
        assert table.columns.tolist() == [
            "attempt_id", "case_id", "series", "system", "phase", "G", "batch", "kvsl", "value", "roofline", "source",
            "flags",
        ]  # fmt: skip
        assert table["source"].tolist() == ["exact", "exact"]
        assert table["flags"].tolist() == [[], ["l2_warm"]]
        # 16 KV heads: (kv + qo) bytes at 8 TB/s and 2.16 µs to launch
        moved_bytes = 8 * 65536 * 16 * 128 * 4 + 8 * 16 * 512
        assert table["roofline"].iloc[0] == pytest.approx(moved_bytes / 8e6 + 2.16, rel=0.05)

    def test_the_whole_phase_adds_everything_and_names_its_worst_source(self) -> None:
        study = self.study()
        records, ops = answered(study, halving)
        table = observations((records, ops), study, Quantity())
        assert table["value"].tolist() == pytest.approx(records["step_ms"].tolist())
        assert table["roofline"].tolist() == pytest.approx(records["roofline_ms"].tolist())
        assert self.values(measure="tok_s_per_gpu") == []  # a part of a model makes no tokens

    def test_an_op_that_a_case_does_not_have_leaves_no_row(self) -> None:
        assert self.values(op="layer.moe.experts") == []

    def test_refused_cases_have_no_row(self) -> None:
        study = self.study()
        frames = answered(study, lambda one: "beyond the rows" if one.kv_heads == 8 else halving(one))
        assert observations(frames, study, Quantity(category="projection"))["G"].tolist() == [1]
