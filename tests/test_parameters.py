"""Parameter counts are those that the models' cards give."""

from __future__ import annotations

import pytest
from shapes import variant

from harness.cost.parameters import parameter_count, parameter_groups
from harness.spec.load import load_variant
from harness.spec.variant import Variant


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("dense-8b", 8_030_261_248),  # meta-llama/Meta-Llama-3-8B
        ("dense-70b", 70_553_706_496),  # meta-llama/Meta-Llama-3-70B
        # Qwen/Qwen3-235B-A22B has 235,093,634,560, of them 94 · 2 · 128 in the norms of Q and K
        ("moe-235b", 235_093_634_560 - 94 * 2 * 128),
    ],
)
def test_the_shipped_variants_are_of_their_class(name: str, count: int) -> None:
    assert parameter_count(load_variant(name)) == count


def test_groups_of_the_moe_class() -> None:
    groups = parameter_groups(load_variant("moe-235b"))
    assert groups["experts"] == 94 * (128 * 3 * 4096 * 1536 + 4096 * 128)
    assert groups["ffn"] == 0
    assert groups["attention"] == 94 * 4096 * (2 * 64 + 2 * 4) * 128


def test_deepseek_v3_with_latent_attention_and_a_shared_expert() -> None:
    """deepseek-ai/DeepSeek-V3 has 671,026,419,200 without its MTP layer, of them 58 · 256 router biases."""
    deepseek = Variant(
        layers=61, hidden=7168, q_heads=128, kv_heads=128, head_dim=128, ffn=18432, vocab=129280,
        attention=("mla",), mla={},
        experts={"count": 256, "top_k": 8, "inter": 2048, "shared_inter": 2048, "dense_layers": 3},
    )  # fmt: skip
    assert parameter_count(deepseek) == 671_026_419_200 - 58 * 256


def test_tied_embeddings_count_once_and_a_plain_ffn_has_two_matrices() -> None:
    untied, tied = variant(), variant(tie_embeddings=True)
    assert parameter_count(untied) - parameter_count(tied) == 128256 * 4096
    assert parameter_groups(variant(gated_ffn=False))["ffn"] == 32 * 2 * 4096 * 14336


def test_sliding_layers_weigh_what_full_ones_do_and_none_weighs_nothing() -> None:
    full = parameter_groups(variant())["attention"]
    assert parameter_groups(variant(attention=("sliding",), window=128))["attention"] == full
    assert parameter_groups(variant(attention=("full", "none")))["attention"] == full // 2
