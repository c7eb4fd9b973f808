"""Stages of a pipeline: their ops, how even they are, and how long passes in flight take."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import decode, prefill

from harness.cost.collectives import PointToPoint
from harness.cost.decompose import decompose
from harness.cost.kv_cache import stage_sizes
from harness.cost.ops import Op, PrefillAttention
from harness.cost.pipeline import (
    bubble_share,
    decode_bubble_share,
    decode_period,
    imbalance,
    makespan,
    pipeline,
    stage_ops,
)
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism


def over(case: Case, **split: Any) -> Case:
    return case.model_copy(update={"parallelism": Parallelism(**split)})


def counted(ops: list[Op]) -> Counter[tuple[str, object]]:
    total: Counter[tuple[str, object]] = Counter()
    for op in ops:
        total[op.name, op.kernel] += op.count
    return total


def test_61_layers_on_eight_stages() -> None:
    """Five stages of 8 and three of 7; 8 / (61/8) = 1.049."""
    sizes = stage_sizes(61, 8)
    assert sizes == [8, 8, 8, 8, 8, 7, 7, 7]
    assert imbalance(sizes) == pytest.approx(8 / 7.625)
    assert imbalance(sizes) == pytest.approx(1.049, abs=5e-4)


def test_only_the_first_stage_embeds_and_only_the_last_has_a_head() -> None:
    first, second, last = pipeline(over(decode(layers=7), pp=3))
    assert [(stage.first_layer, stage.layers) for stage in (first, second, last)] == [(0, 3), (3, 2), (5, 2)]
    names = [{op.name for op in stage.ops} for stage in (first, second, last)]
    assert ["embedding" in one for one in names] == [True, False, False]
    assert ["lm_head" in one for one in names] == [False, False, True]
    assert ["pipeline.send" in one for one in names] == [True, True, False]


def test_what_a_stage_hands_over() -> None:
    """8 tokens of 4096 and their residual from every rank of tp 4; the two stages have 8 GPUs."""
    [send] = [op for op in stage_ops(over(decode(batch=8), tp=4, pp=2), 0) if op.name == "pipeline.send"]
    assert send == Op("pipeline.send", "communication", 1, PointToPoint(2 * 8 * 4096, gpus=8))


def test_a_partition_moves_layers_away_from_the_head() -> None:
    split = {"pp": 4, "pp_partition": (9, 9, 8, 6)}
    assert [stage.layers for stage in pipeline(over(decode(), **split))] == [9, 9, 8, 6]
    assert Parallelism(**split).label == "pp 4 · stages 9+9+8+6"
    with pytest.raises(ValueError, match="pp_partition names 4 stages, but pp is 2"):
        Parallelism(pp=2, pp_partition=(9, 9, 8, 6))


def test_a_pattern_does_not_stop_at_a_stage() -> None:
    """Three sliding layers to one full one over 10 layers in 3 stages of 4, 3, 3: s s s f | s s s | f s s."""
    shape = {"layers": 10, "attention": ["sliding", "sliding", "sliding", "full"], "window": 1024}
    counts = [
        {op.name: op.count for op in stage.ops if op.category == "attention"}
        for stage in pipeline(over(decode(**shape), pp=3))
    ]
    assert counts == [
        {"layer.attn_sliding.attention": 3, "layer.attn.attention": 1},
        {"layer.attn_sliding.attention": 3},
        {"layer.attn_sliding.attention": 2, "layer.attn.attention": 1},
    ]


def test_an_irregular_model_has_its_attention_where_it_is() -> None:
    shape = {"layers": 6, "attention": ["full", "none", "none", "none", "full", "full"]}
    counts = [
        sum(op.count for op in stage.ops if op.category == "attention")
        for stage in pipeline(over(decode(**shape), pp=2))
    ]
    assert counts == [1, 2]


def test_leading_dense_layers_are_in_the_first_stage() -> None:
    experts = {"count": 8, "top_k": 2, "inter": 1024, "dense_layers": 3}
    stages = pipeline(over(decode(layers=8, experts=experts), pp=4))
    found = [
        {op.name: op.count for op in stage.ops if op.name in {"layer.ffn.down", "layer.moe.experts"}}
        for stage in stages
    ]
    assert found == [
        {"layer.ffn.down": 2},
        {"layer.ffn.down": 1, "layer.moe.experts": 1},
        {"layer.moe.experts": 2},
        {"layer.moe.experts": 2},
    ]


def test_every_chunk_passes_every_stage() -> None:
    stages = pipeline(over(prefill(isl=2500, workload={"chunk": 1024}), pp=2))
    for stage in stages:
        seen = [op.kernel for one in stage.passes for op in one if op.name == "layer.attn.attention"]
        assert [(one.chunk, one.past) for one in seen if isinstance(one, PrefillAttention)] == [
            (1024, 0),
            (1024, 1024),
            (452, 2048),
        ]
    assert ["lm_head" in {op.name for op in one} for one in stages[-1].passes] == [False, False, True]


@given(
    st.integers(1, 40),
    st.integers(1, 8),
    st.sampled_from([["full"], ["sliding", "full"], ["none", "sliding", "full"]]),
    st.sampled_from(["layer", "model"]),
)
def test_stages_add_up_to_the_pass_through_all_of_them(layers: int, pp: int, pattern: list[str], level: Any) -> None:
    case = over(decode(layers=max(layers, pp, 3), attention=pattern, window=64), tp=2, pp=pp)
    stages = [op for stage in pipeline(case, level) for op in stage.ops]
    assert counted(stages) == counted(decompose(case, level))


def test_bubbles_of_equal_passes() -> None:
    """(p − 1) / (m + p − 1): 3/11 for 8 passes through 4 stages, 3/4 for one."""
    assert bubble_share([[1.0] * 4] * 8) == pytest.approx(3 / 11)
    assert bubble_share([[1.0] * 4]) == pytest.approx(3 / 4)
    assert bubble_share([[2.5]] * 3) == 0


def test_chunks_that_grow_wait_for_each_other() -> None:
    """Two stages, chunks of 1, 2 and 3: 1+1, then the second ends at 1+2+2, the third at 1+2+3+3 = 9 of 2·9."""
    times = [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert makespan(times) == 9
    assert bubble_share(times) == pytest.approx(1 - 12 / 18)


def test_a_slow_stage_holds_all_others() -> None:
    """Stages of 1 and 3, two passes: 1+3+3."""
    assert makespan([[1.0, 3.0], [1.0, 3.0]]) == 7


def test_tokens_of_one_group_cannot_overlap() -> None:
    """Four stages of 1: one group has a token every 4, and every stage waits 3/4 of it; four groups fill them."""
    assert decode_period([1.0] * 4, 1) == 4
    assert decode_bubble_share([1.0] * 4, 1) == pytest.approx(3 / 4)
    assert decode_period([1.0] * 4, 4) == 4
    assert decode_bubble_share([1.0] * 4, 4) == 0
    assert decode_period([1.0, 1.0, 1.0, 2.0], 4) == 8
    assert decode_bubble_share([1.0, 1.0, 1.0, 2.0], 4) == pytest.approx(1 - 4 * 5 / 32)


@given(st.lists(st.lists(st.floats(0.01, 10), min_size=3, max_size=3), min_size=1, max_size=6))
def test_a_makespan_lies_between_its_bounds(times: list[list[float]]) -> None:
    by_stage = [sum(one[stage] for one in times) for stage in range(3)]
    assert max([*by_stage, *map(sum, times)]) <= makespan(times) * (1 + 1e-12)
    assert makespan(times) <= sum(by_stage) * (1 + 1e-12)
    assert -1e-12 <= bubble_share(times) < 1
