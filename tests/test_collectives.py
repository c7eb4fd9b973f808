"""Bytes that ranks send to each other, worked out by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cost.collectives import (
    COLLECTIVES,
    AllGather,
    AllReduce,
    Collective,
    ExpertCombine,
    ExpertDispatch,
    HelixAllToAll,
    PointToPoint,
    ReduceScatter,
    ranks_visited,
)
from harness.cost.ops import hbm_bytes

REDUCE = AllReduce(elements=8 * 8192, gpus=8)
DISPATCH = ExpertDispatch(64, 7168, 8, 256, 8, "nvfp4")

EXCHANGES: list[Collective] = [
    REDUCE,
    AllGather(8 * 8192, 8),
    ReduceScatter(8 * 8192, 8),
    DISPATCH,
    ExpertCombine(64, 7168, 8, 256, 8, "nvfp4"),
    HelixAllToAll(1, 64, 128, 8),
]


@pytest.mark.parametrize(("tp", "cp", "sent"), [(4, 2, 2112), (1, 8, 14_784)])
def test_helix_of_64_heads_of_128(tp: int, cp: int, sent: int) -> None:
    """(QH/tp)·(2·128 + 8)·(cp−1)/cp for one token."""
    assert HelixAllToAll(1, 64 // tp, 128, cp).link_bytes == sent


def test_helix_of_latent_attention_sends_latents() -> None:
    """DeepSeek-V3: 128 heads of 512 values; 4 tokens; half of them stay."""
    assert HelixAllToAll(4, 128, 512, 2).link_bytes == 4 * 128 * (2 * 512 + 8) / 2


def test_an_all_reduce_of_eight_rows() -> None:
    """128 KiB, of which each of 8 ranks sends 7/8 twice."""
    assert REDUCE.link_bytes == 2 * 131_072 * 7 / 8
    assert hbm_bytes(REDUCE) == 2 * 131_072


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    scatter, gather = ReduceScatter(REDUCE.elements, 8), AllGather(REDUCE.elements, 8)
    assert REDUCE.link_bytes == scatter.link_bytes + gather.link_bytes
    assert REDUCE.beyond(4) == scatter.beyond(4) + gather.beyond(4)


def test_between_two_nodes_of_eight() -> None:
    """Inside, each rank sends 2·7/8 of the message; between, 1/8 of it each way over two nodes: 2·(1/2)/8."""
    wide, message = replace(REDUCE, gpus=16), 131_072
    assert wide.beyond(8) == message / 8
    assert wide.link_bytes - wide.beyond(8) == 2 * 7 / 8 * message


def test_an_all_to_all_over_two_nodes_sends_half_and_a_bit_out() -> None:
    """8 of 15 others are in the other node."""
    wide = HelixAllToAll(1, 64, 128, 16)
    assert wide.beyond(8) == pytest.approx(wide.link_bytes * 8 / 15)


def test_a_stage_that_fills_its_node_sends_through_the_network() -> None:
    assert PointToPoint(4096, gpus=8).beyond(8) == 0
    assert PointToPoint(4096, gpus=16).beyond(8) == 2 * 4096


@pytest.mark.parametrize(("top_k", "slots", "gpus"), [(1, 4, 4), (2, 4, 2), (2, 6, 3), (3, 8, 4), (8, 8, 2)])
def test_ranks_visited_is_the_mean_over_all_choices(top_k: int, slots: int, gpus: int) -> None:
    """Count them: every choice of k of S slots, seen from the first rank."""
    on_rank = slots // gpus
    choices = list(itertools.combinations(range(slots), top_k))
    visited = sum(len({slot // on_rank for slot in choice} - {0}) for choice in choices) / len(choices)
    assert ranks_visited(top_k, slots, gpus) == pytest.approx(visited)


def test_a_token_goes_out_in_fp4_and_comes_back_in_bf16() -> None:
    back = ExpertCombine(64, 7168, 8, 256, 8, "nvfp4")
    assert DISPATCH.link_bytes / back.link_bytes == 0.5625 / 2
    # 8 of 256 experts over 8 ranks: 7·(1 − C(224, 8)/C(256, 8)) other ranks, 4.65 on average
    assert back.link_bytes / (64 * 7168 * 2) == pytest.approx(7 * (1 - math.comb(224, 8) / math.comb(256, 8)))


def test_more_slots_than_experts_are_chosen_among() -> None:
    assert replace(DISPATCH, slots=288).link_bytes == pytest.approx(replace(DISPATCH, experts=288).link_bytes)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: type(one).__name__)
@given(domain=st.sampled_from([1, 2, 4, 8, 16, 72]))
def test_no_more_leaves_a_domain_than_is_sent(exchange: Collective, domain: int) -> None:
    assert 0 <= exchange.beyond(domain) <= exchange.link_bytes * (1 + 1e-12)
    assert (exchange.beyond(domain) == 0) == (domain >= 8)


def test_exchanges_compute_nothing_and_hold_no_weights() -> None:
    for exchange in [*EXCHANGES, PointToPoint(1, 2)]:
        assert isinstance(exchange, COLLECTIVES)
        assert (exchange.flops, exchange.weight_bytes, exchange.kv_bytes) == (0, 0, 0)
        assert exchange.activation_bytes > 0
