"""From a study to its cases."""

from __future__ import annotations

from typing import Any

import pytest
from shapes import LLAMA_8B, variant

from harness.errors import UsageError
from harness.spec.base import parse
from harness.spec.expand import count_cases, expand, matches
from harness.spec.study import Study

STUDY: dict[str, Any] = {
    "name": "s",
    "title": "Group size",
    "variant": LLAMA_8B,
    "axes": {"G": [4, 8]},
    "workloads": {"decode": {"batch": [1, 8], "kvsl": 4096}},
    "systems": ["b200_sxm", "h200_sxm"],
}


def study(**changes: Any) -> Study:
    return parse(Study, {**STUDY, **changes}, "s.yaml")


def test_everything_is_crossed_in_a_stable_order() -> None:
    planned = expand(study(), variant())
    places = [(one.case.system, one.coordinates["G"], one.coordinates["batch"]) for one in planned]
    assert places == [(s, g, b) for s in ("b200_sxm", "h200_sxm") for g in (4, 8) for b in (1, 8)]
    assert [one.case.variant.kv_heads for one in planned[:4]] == [8, 8, 4, 4]
    assert planned[0].coordinates == {"G": 4, "batch": 1, "kvsl": 4096}
    assert count_cases(study()) == len(planned) == 8


def test_series_have_axes_shapes_and_workloads_of_their_own() -> None:
    planned = expand(
        study(
            axes={},
            systems=["b200_sxm"],
            series=[
                {
                    "name": "QH 16",
                    "set": {"q_heads": 16},
                    "axes": {"G": [16]},
                    "workloads": {"decode": {"batch": 1, "kvsl": 131072}},
                },
                {"name": "KH 2", "set": {"kv_heads": 2}, "axes": {"G": [8, 48]}, "hold": {"G": "kv_heads"}},
            ],
        ),
        variant(),
    )
    found = [
        (one.series, one.case.variant.q_heads, one.case.variant.kv_heads, one.coordinates["kvsl"]) for one in planned
    ]
    assert found == [
        ("QH 16", 16, 1, 131072),
        ("KH 2", 16, 2, 4096),
        ("KH 2", 16, 2, 4096),
        ("KH 2", 96, 2, 4096),
        ("KH 2", 96, 2, 4096),
    ]


def test_fields_move_together_and_parallelism_moves_too() -> None:
    shapes = {"wide": {"hidden": 8192, "layers": 8}, "deep": {"hidden": 2048, "layers": 128}}
    planned = expand(study(axes={"shape": shapes, "parallelism.tp": [1, 2]}), variant())
    assert {(one.case.variant.hidden, one.case.variant.layers) for one in planned} == {(8192, 8), (2048, 128)}
    assert {one.case.parallelism.tp for one in planned} == {1, 2}


def test_dotted_axes_reach_into_nested_fields() -> None:
    planned = expand(study(axes={"weights.ffn": ["bf16", "nvfp4"]}), variant())
    assert {(one.case.variant.weights.ffn, one.case.variant.weights.attention) for one in planned} == {
        ("bf16", "bf16"),
        ("nvfp4", "bf16"),
    }


def test_both_phases_of_one_study() -> None:
    planned = expand(
        study(workloads={"prefill": {"batch": 1, "isl": 2048}, "decode": {"batch": 1, "kvsl": 2048}}), variant()
    )
    assert {one.case.workload.phase for one in planned} == {"prefill", "decode"}


def test_exclusions_leave_a_skipped_case_with_its_reason() -> None:
    excluded = study(exclude=[{"when": {"G": [8, 16], "system": "h200_sxm"}, "reason": "not collected"}])
    planned = expand(excluded, variant())
    assert [one.skip_reason for one in planned if one.skip_reason] == ["not collected"] * 2
    assert {(one.case.system, one.coordinates["G"]) for one in planned if one.skip_reason} == {("h200_sxm", 8)}


def test_matching() -> None:
    assert matches({"G": 8}, {"G": 8, "batch": 1})
    assert matches({"G": [4, 8], "batch": 1}, {"G": 8, "batch": 1})
    assert not matches({"G": 8, "kvsl": 1}, {"G": 8})
    assert not matches({"G": "8"}, {"G": 8})


def test_everything_impossible_is_said_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        expand(study(axes={"G": [3, 5]}, workloads={"decode": {"batch": 0, "kvs": 1}}), variant())
    text = str(caught.value)
    assert "groups of 3" in text
    assert "groups of 5" in text
    assert "workloads.decode.kvsl is missing" in text
    assert "workloads.decode.kvs: unknown key; did you mean 'kvsl'?" in text
    assert "workloads.decode.batch: Input should be greater than 0 (found 0)" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workloads": {}}, "has no cases: it names no workloads"),
        ({"systems": []}, "has no cases: it names no systems"),
        ({"axes": {"G": []}}, "axis G has no values"),
        ({"workloads": {"prefil": {"batch": 1}}}, "'prefil' is no phase; call it prefill, decode or serve"),
        ({"axes": {"hiden": [1]}}, "axis hiden: there is no field 'hiden'; did you mean 'hidden'?"),
        ({"axes": {"tp": [1, 2]}}, "axis tp: there is no field 'tp'; did you mean 'parallelism.tp'?"),
        ({"axes": {"kvsl": [1, 2]}}, "sweep the workload with a list: workloads: {decode: {kvsl: [1, 2]}}"),
        ({"axes": {"shape": {"a": {"hiden": 1}}}}, "axis shape: there is no field 'hiden'; did you mean 'hidden'?"),
        ({"baseline": {"G": 2}}, "baseline G: 2 is not on the axis, which has 4, 8"),
    ],
)
def test_an_empty_or_misspelt_sweep_is_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(study(**change), variant())
    assert message in str(caught.value)


def test_a_large_sweep_is_counted_without_being_built() -> None:
    wide = study(axes={"ffn": "1..100000"}, workloads={"decode": {"batch": "1..1000", "kvsl": 1}})
    assert count_cases(wide) == 2 * 100_000 * 1000


def test_symbols_move_after_the_fields_they_are_ratios_of() -> None:
    """G 8 is eight query heads per KV head whatever the order of the axes."""
    for axes in ({"G": [8], "q_heads": [32, 64]}, {"q_heads": [32, 64], "G": [8]}):
        planned = expand(study(axes=axes, systems=["b200_sxm"]), variant())
        assert {(one.case.variant.q_heads, one.case.variant.kv_heads) for one in planned} == {(32, 4), (64, 8)}
        assert {one.coordinates["G"] for one in planned} == {8}


def test_g_and_hsz_go_together() -> None:
    planned = expand(study(axes={"G": [4, 8], "Hsz": [64, 256]}, hold={"Hsz": "width"}), variant())
    assert {(one.case.variant.group_size, one.case.variant.head_dim) for one in planned} == {
        (4, 64), (4, 256), (8, 64), (8, 256),
    }  # fmt: skip


def test_an_axis_of_one_group_keeps_the_format_of_the_others() -> None:
    planned = expand(study(set={"weights": "fp8"}, axes={"weights.ffn": ["nvfp4"]}), variant())
    assert {(one.case.variant.weights.attention, one.case.variant.weights.ffn) for one in planned} == {("fp8", "nvfp4")}


def test_a_label_longer_than_a_name_is_cut() -> None:
    [first, *_] = expand(study(axes={"shape": {"x" * 150: {"ffn": 8}}, "a longer axis": {"y" * 150: {}}}), variant())
    assert len(first.case.variant.name) == 200
    assert first.coordinates["a longer axis"] == "y" * 150


def test_hold_must_make_sense() -> None:
    with pytest.raises(UsageError, match="hold names axis 'ffn'; only G, Hsz"):
        study(hold={"ffn": "q_heads"})
    with pytest.raises(UsageError, match="'width' is not one of q_heads, kv_heads"):
        study(hold={"G": "width"})


def test_a_study_round_trips_through_yaml() -> None:
    whole = study(
        exclude=[{"when": {"G": 8}, "reason": "r"}], series=[{"name": "a"}, {"name": "b", "axes": {"G": "2^1..2^3"}}]
    )
    assert parse(Study, whole.to_yaml_data(), "again") == whole
