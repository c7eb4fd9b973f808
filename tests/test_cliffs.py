"""A cliff breaks from its neighbours along an axis and from its roofline; the edge lies between two cases."""

from __future__ import annotations

from typing import Any

import pytest
from answered import Frames, a_study, answered
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.cliffs import Cliff, cliffs
from harness.analysis.edges import edges
from harness.analysis.falls import falls, group_falls
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
    assert (cliff.same_work, cliff.size_text, cliff.heads) == (True, "×40.0", ("16:2", "16:1"))
    assert cliff.step == "from G 8 to 16 (16:2 → 16:1 heads)"
    assert (cliff.time_ms_low, cliff.time_ms_high) == (pytest.approx(1.0), pytest.approx(40.0))
    assert cliff.attempt_ids == ("s.0003", "s.0004")


def test_work_that_grows_too_is_taken_out_of_the_size() -> None:
    """With 2 KV heads, G 4 has twice the query heads of G 2: twice the FLOPs explain 2 of 60 times."""
    study = a_study(axes={"G": [1, 2, 4]}, set={"kv_heads": 2}, hold={"G": "kv_heads"})
    [cliff] = found(study, answered(study, lambda kernel: 60_000 if group(kernel) == 4 else 1000))
    assert (cliff.factor, cliff.explained, cliff.heads) == (pytest.approx(60), pytest.approx(2), ("4:2", "8:2"))
    assert (cliff.same_work, cliff.size) == (False, pytest.approx(30))
    assert cliff.size_text == "×30.0 beyond its work"


def test_every_op_that_breaks_is_told() -> None:
    study = a_study(axes={"G": [4, 8, 16]}, workloads={"decode": {"batch": 1, "kvsl": 64}})
    records, ops = answered(study, lambda kernel: 8000 if group(kernel) == 16 else 1000)
    last = records["attempt_id"].iloc[-1]
    slow = (ops["attempt_id"] == last) & ops["op"].isin(["layer.ffn.down", "layer.attn.o_proj"])
    ops.loc[slow, ["time_us", "total_us"]] *= 3
    [cliff] = found(study, (records, ops))
    assert [(op, round(size, 6)) for op, size in cliff.ops] == [
        ("layer.attn.attention", 8.0), ("layer.attn.o_proj", 3.0), ("layer.ffn.down", 3.0),
    ]  # fmt: skip
    [edge] = edges([cliff])
    assert edge.short.endswith("(1.000 → 8.000 ms); median ×3.00 of 3 ops")
    assert edge.text.endswith("What breaks there: layer.attn.attention, layer.attn.o_proj, layer.ffn.down")


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
    assert {(one.series, one.low, one.high) for one in single} == {("KH 2", 32, 48), ("QH 64", 32, 64)}
    assert len(single) == 4
    [edge] = edges(single)
    assert (edge.axis, edge.low, edge.high, edge.op) == ("G", 32, 48, "layer.attn.attention")
    assert set(edge.cliffs) == set(single)


def test_an_edge_is_as_high_as_at_equal_work_and_as_narrow_as_anywhere() -> None:
    """With 2 KV heads the step is 30 times, of which 1.5 times the query heads explain 1.5."""
    study, frames = two_series()
    [edge] = edges(found(study, frames))
    assert edge.worst.series == "QH 64"
    assert edge.short == (
        "layer.attn.attention ×20.0 from G 32 to 64 (64:2 → 64:1 heads) at QH 64, b 1, KVSL 65536 (1.000 → 20.00 ms)"
    )
    assert edge.text == (
        f"decode: G within (32, 48]: {edge.short}. ×20.0 in 2 pairs of cases of equal work. "
        "×20.0 in 2 pairs of cases whose work grows, beyond what that explains. "
        "The edge is seen from G 32 to 48 (64:2 → 96:2 heads) at KH 2, b 1, KVSL 65536: 1.000 → 30.00 ms, "
        "×20.0 beyond its work"
    )


def test_the_smallest_batch_is_told_beside_the_worst() -> None:
    study = a_study(axes={"G": [4, 8, 16]}, workloads={"decode": {"batch": [1, 4, 8], "kvsl": 65536}})
    slower = {1: 5, 4: 20, 8: 40}
    frames = answered(study, lambda one: 1000.0 * (slower[one.batch] if group(one) == 16 else 1))
    [edge] = edges(found(study, frames))
    assert edge.short.endswith("at b 8, KVSL 65536 (1.000 → 40.00 ms), ×5.00 at b 1")


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


def test_more_work_in_less_time_is_noted_in_either_direction() -> None:
    """G 2 has twice the KV of G 4 and takes a third less; KVSL 4096 is twice 2048 and takes a fifth less."""
    times = {1: 8000, 2: 2000, 4: 3000, 8: 2900}
    study = a_study()
    frames = answered(study, lambda kernel: times[group(kernel)])
    [fall] = falls(study, *frames, cliffs(study, *frames))
    assert (fall.axis, fall.less, fall.more, fall.op) == ("G", 4, 2, "layer.attn.attention")
    assert fall.share == pytest.approx(1 / 3)
    assert fall.text == (
        "layer.attn.attention takes 33 % less time at G 2 than at 4 (3000 → 2000 µs), with 2.00 times the work, "
        "at b 8, KVSL 65536"
    )
    study = a_study(axes={"G": [16]}, workloads={"decode": {"batch": 1, "kvsl": [1024, 2048, 4096]}})
    frames = answered(study, lambda kernel: 8000.0 if kernel.kvsl == 4096 else 10_000.0)
    [fall] = falls(study, *frames, [])
    assert (fall.less, fall.more, fall.share) == (2048, 4096, pytest.approx(0.2))


@pytest.mark.parametrize(("at_2", "noted"), [(2690, True), (2710, False)])
def test_a_fall_within_the_scatter_is_none(at_2: float, noted: bool) -> None:
    times = {1: 8000, 2: at_2, 4: 3000, 8: 2900}
    study = a_study()
    frames = answered(study, lambda kernel: times[group(kernel)])
    assert bool(falls(study, *frames, [])) == noted


def test_a_cliff_is_no_fall() -> None:
    study = a_study(axes={"G": [2, 4, 8, 16]})
    frames = answered(study, lambda kernel: 40_000 if group(kernel) == 16 else 1000)
    assert falls(study, *frames, []) != []
    assert falls(study, *frames, cliffs(study, *frames)) == []


def test_falls_are_grouped_by_gpu_and_axis_the_largest_first() -> None:
    study = a_study(workloads={"decode": {"batch": [4, 8], "kvsl": 65536}})
    times = {1: 8000.0, 2: 2000.0, 4: 3000.0, 8: 2900.0}
    frames = answered(study, lambda one: times[group(one)] * (1.0 if one.batch == 8 or group(one) != 4 else 1.5))
    groups = group_falls(falls(study, *frames, []))
    # at b 4 from 4500 to 2000, at b 8 from 3000 to 2000; at G 4 from 4500 at b 4 to 3000 at b 8
    assert [(one.axis, [round(fall.share, 3) for fall in one.falls]) for one in groups] == [
        ("G", [0.556, 0.333]), ("batch", [0.333]),
    ]  # fmt: skip
    assert groups[0].text.startswith("decode: 2 times along G, most: layer.attn.attention takes 56 % less time")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=8))
def test_an_edge_lies_in_every_cliff_of_it_and_none_is_lost(spans: list[tuple[int, int]]) -> None:
    single = [
        Cliff(
            study="s", series="", system="b200_sxm", phase="decode", axis="G", low=float(low), high=float(low + width),
            factor=3.0, explained=1.0, op="op", ops=(("op", 3.0),), heads=("8:1", "8:1"), place=(), time_ms_low=1.0,
            time_ms_high=3.0, attempt_ids=(str(i),),
        )
        for i, (low, width) in enumerate(spans)
    ]  # fmt: skip
    merged = edges(single)
    assert sorted(one.attempt_ids for edge in merged for one in edge.cliffs) == sorted(
        one.attempt_ids for one in single
    )
    for edge in merged:
        assert edge.low < edge.high
        assert all(one.low <= edge.low and edge.high <= one.high for one in edge.cliffs)
