"""A cliff breaks from its neighbours along an axis and from its roofline; the edge lies between two cases."""

from __future__ import annotations

from typing import Any

import pytest
from answered import Frames, a_study, answered
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.cliffs import Cliff, cliffs, edges
from harness.spec.study import Study


def group(kernel: Any) -> int:
    return int(kernel.q_heads / kernel.kv_heads)


def found(study: Study, frames: Frames) -> list[Cliff]:
    return cliffs(study, *frames)


def along_g(times_us: dict[int, float | str], **changes: Any) -> list[Cliff]:
    study = a_study(axes={"G": list(times_us)}, **changes)
    return found(study, answered(study, lambda kernel: times_us[group(kernel)]))


def test_a_cliff_says_axis_edge_factor_op_and_place() -> None:
    [cliff] = along_g({1: 8000, 2: 4000, 4: 2000, 8: 1000, 16: 40000})
    assert (cliff.system, cliff.phase, cliff.axis, cliff.low, cliff.high) == ("b200_sxm", "decode", "G", 8, 16)
    assert (cliff.op, cliff.factor, cliff.where) == ("layer.attn.attention", pytest.approx(40), "b 8, KVSL 65536")
    assert (cliff.time_ms_low, cliff.time_ms_high) == (pytest.approx(1.0), pytest.approx(40.0))
    assert cliff.attempt_ids == ("s.0003", "s.0004")
    assert cliff.text == (
        "layer.attn.attention takes 40.0 times as long at G 16 as at 8 (b 8, KVSL 65536): 1000 → 40000 µs, "
        "where its work explains 1.00 times"
    )


def test_a_smooth_sweep_has_none() -> None:
    assert along_g({1: 8000, 2: 4000, 4: 2000, 8: 1000, 16: 1200}) == []


def test_less_than_twice_what_is_explained_is_none() -> None:
    assert along_g({4: 2000, 8: 2000, 16: 3900}) == []
    assert len(along_g({4: 2000, 8: 2000, 16: 4100})) == 1


def test_a_step_like_its_neighbours_is_none() -> None:
    """Ten times slower with every doubling is steep, but nothing breaks."""
    assert along_g({2: 1000, 4: 10_000, 8: 100_000, 16: 1_000_000}) == []


def test_growth_with_the_work_is_none() -> None:
    """Attention far above its roofline grows with the context by as much as its work: no cliff."""
    study = a_study(axes={"G": [16]}, workloads={"decode": {"batch": 1, "kvsl": [64, 512, 4096]}})
    assert found(study, answered(study, lambda kernel: 10.0 * kernel.kvsl)) == []
    frames = answered(study, lambda kernel: 10.0 * kernel.kvsl * (30 if kernel.kvsl == 4096 else 1))
    [cliff] = found(study, frames)
    assert (cliff.axis, cliff.low, cliff.high, cliff.factor) == ("kvsl", 512, 4096, pytest.approx(240))


def test_an_op_beneath_notice_makes_none() -> None:
    """Five GEMMs of 1 ms beside it: attention from 1 to 40 µs is less than 5 % of the layer."""
    tiny = {"workloads": {"decode": {"batch": 1, "kvsl": 64}}}
    assert along_g({4: 1, 8: 1, 16: 40}, **tiny) == []
    assert len(along_g({4: 1, 8: 1, 16: 4000}, **tiny)) == 1


def test_a_case_without_a_number_only_widens_the_edge() -> None:
    [cliff] = along_g({2: 1000, 4: 1000, 8: "no such slice", 16: 40_000})
    assert (cliff.low, cliff.high) == (4, 16)


def test_names_are_no_axis_to_fall_from() -> None:
    study = a_study(axes={"kv_format": ["bf16", "fp8"]})
    assert found(study, answered(study, lambda one: 9000 if one.kv_format == "bf16" else 90_000)) == []


def two_series() -> tuple[Study, Frames]:
    """32 → 64 with 64 query heads, 20 times slower; with 2 KV heads 48 lies between, and 30 times slower."""
    study = a_study(
        axes={},
        workloads={"decode": {"batch": [1, 8], "kvsl": 65536}},
        series=[
            {"name": "QH 64", "set": {"q_heads": 64}, "axes": {"G": [16, 32, 64]}},
            {"name": "KH 2", "set": {"kv_heads": 2}, "axes": {"G": [16, 32, 48, 64]}, "hold": {"G": "kv_heads"}},
        ],
    )
    return study, answered(study, beyond_32)


def beyond_32(kernel: Any) -> float:
    slower = 20 if kernel.q_heads == 64 else 30
    return 1000.0 * kernel.batch * (slower if group(kernel) > 32 else 1)


def test_cliffs_that_share_an_edge_are_told_once_and_kept() -> None:
    study, frames = two_series()
    single = found(study, frames)
    assert [(one.series, one.low, one.high) for one in single] == [
        ("KH 2", 32, 48), ("KH 2", 32, 48), ("QH 64", 32, 64), ("QH 64", 32, 64),
    ]  # fmt: skip
    [edge] = edges(single)
    assert (edge.axis, edge.low, edge.high, edge.op) == ("G", 32, 48, "layer.attn.attention")
    assert set(edge.cliffs) == set(single)
    assert edge.text.startswith(
        "decode: layer.attn.attention breaks at G within (32, 48], 20.0 to 30.0 times slower in 4 pairs of cases; "
    )
    assert edge.text.endswith("KVSL 65536: 1.000 → 30.00 ms from G 32 to 48")


def test_edges_apart_stay_apart() -> None:
    times = {1: 100.0, 2: 100.0, 4: 5000.0, 8: 5000.0, 16: 5000.0, 32: 5000.0, 64: 500_000.0}
    study = a_study(
        axes={"G": list(times)}, set={"q_heads": 64, "kv_heads": 64}, workloads={"decode": {"batch": 1, "kvsl": 64}}
    )
    single = found(study, answered(study, lambda kernel: times[group(kernel)]))
    assert [(edge.low, edge.high) for edge in edges(single)] == [(2, 4), (32, 64)]


def test_systems_have_edges_of_their_own() -> None:
    study, _ = two_series()
    study = study.model_copy(update={"systems": ("b200_sxm", "h200_sxm")})
    frames = answered(study, beyond_32)
    assert [(edge.system, edge.low, edge.high) for edge in edges(found(study, frames))] == [
        ("b200_sxm", 32, 48), ("h200_sxm", 32, 48),
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=8))
def test_an_edge_lies_in_every_cliff_of_it_and_none_is_lost(spans: list[tuple[int, int]]) -> None:
    single = [
        Cliff(
            "s", "", "b200_sxm", "decode", "G", float(low), float(low + width), 3.0, "op", "", 1.0, 3.0, (str(i),), ""
        )
        for i, (low, width) in enumerate(spans)
    ]
    merged = edges(single)
    assert sorted(one.attempt_ids for edge in merged for one in edge.cliffs) == sorted(
        one.attempt_ids for one in single
    )
    for edge in merged:
        assert edge.low < edge.high
        assert all(one.low <= edge.low and edge.high <= one.high for one in edge.cliffs)
