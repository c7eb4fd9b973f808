"""KV-cache bytes: the sizing problems in `cases/09-kv-cache-bytes`, and what always holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import variant

from harness.cost.kv_cache import kv_bytes_per_sequence, kv_bytes_per_token, stage_sizes, tokens_that_fit
from harness.cost.ops import DecodeAttention
from harness.errors import UsageError
from harness.files import read_yaml
from harness.spec.base import parse
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

CASE = Path(__file__).parent / "cases" / "09-kv-cache-bytes" / "models.yaml"


def models() -> dict[str, dict[str, Any]]:
    data: Any = read_yaml(CASE)
    return {model["id"]: {**data["defaults"], **model} for model in data["models"]}


def as_variant(model: dict[str, Any]) -> Variant:
    """The file's words → ours. Sizes that the KV cache does not depend on are any."""
    fields: dict[str, Any] = {"ffn": 1, "vocab": 1, "hidden": model["hidden"], "q_heads": model["q_heads"]}
    fields["kv_format"] = model["kv_dtype"]
    kind = model["kind"]
    if kind == "mla":
        mla = {"kv_lora_rank": model["kv_lora_rank"], "rope_head_dim": model["rope_head_size"]}
        return parse(
            Variant,
            {**fields, "layers": model["layers"], "kv_heads": 1, "head_dim": 192, "attention": "mla", "mla": mla},
            model["id"],
        )
    if kind == "hybrid":
        heads = model["kv_heads"]
        fields |= {
            "layers": len(heads),
            "kv_heads": max(heads),
            "attention": ["full" if count else "none" for count in heads],
        }
    elif kind == "sliding":
        assert model["full_layers"] == model["window_layers"]
        fields |= {
            "layers": model["layers"],
            "kv_heads": model["kv_heads"],
            "attention": ["full", "sliding"],
            "window": model["window"],
        }
    else:
        fields |= {name: model[name] for name in ("layers", "kv_heads") if name in model}
    if "head_size" in model:
        fields["head_dim"] = model["head_size"]
    return parse(Variant, fields, model["id"])


def split(model: dict[str, Any]) -> Parallelism:
    return Parallelism(tp=model["tp"], cp=model["kvp"])


@pytest.mark.parametrize(
    ("name", "per_token", "per_sequence"),
    [
        ("m1", 131_072, 536_870_912),
        ("m2a", 65_536, 268_435_456),
        ("m2b", 36_864, 150_994_944),
        ("m3", 147_456, 603_979_776),
        ("m4", 70_272, 287_834_112),
        ("m5", 12_288, 12_288_000_000),
        ("m6", 6_144, 6_144_000_000),
        ("m7", 8_192, 33_554_432),
    ],
)
def test_bytes_a_token_and_a_sequence(name: str, per_token: int, per_sequence: int) -> None:
    model = models()[name]
    shape, parallelism = as_variant(model), split(model)
    block = {"tokens_per_block": model["tokens_per_block"]} if "tokens_per_block" in model else {}
    assert kv_bytes_per_token(shape, parallelism) == per_token
    assert kv_bytes_per_sequence(shape, model["context"], parallelism, **block) == per_sequence


def test_sliding_layers_stop_growing() -> None:
    shape = as_variant(models()["m8"])
    assert kv_bytes_per_sequence(shape, 4096) == 103_809_024
    assert kv_bytes_per_sequence(shape, 64) == 3_145_728
    assert kv_bytes_per_token(shape, context=64) == 24 * 2048
    assert kv_bytes_per_token(shape, context=4096) == 12 * 2048


def test_eight_gpus_hold_twice_the_unique_bytes_of_four_heads() -> None:
    shape = as_variant(models()["m5"])
    assert 8 * kv_bytes_per_token(shape, Parallelism(tp=8)) == 98_304
    assert kv_bytes_per_token(shape) == 49_152


@pytest.mark.parametrize(("name", "flop_per_byte"), [("m1", 4.0), ("m2a", 8.0), ("m2b", 14.22)])
def test_decode_attention_of_the_same_models(name: str, flop_per_byte: float) -> None:
    model = models()[name]
    kernel = DecodeAttention(1, model["context"], model["q_heads"], model["kv_heads"], 128, model["kv_dtype"])
    assert model["layers"] * kernel.flops == 2_147_483_648
    assert model["layers"] * kernel.kv_bytes == kv_bytes_per_sequence(as_variant(model), 4096)
    assert kernel.flops / kernel.kv_bytes == pytest.approx(flop_per_byte, abs=5e-3)


def test_tokens_that_fit_agrees_with_bytes_a_token() -> None:
    shape = as_variant(models()["m1"])
    assert tokens_that_fit(10 * 131_072 - 1, shape) == 9
    assert tokens_that_fit(10 * 131_072, shape) == 10


@pytest.mark.parametrize(("field", "ours"), [("layers", "layers"), ("kv_heads", "kv_heads"), ("head_size", "head_dim")])
def test_a_missing_field_is_named_not_zero(field: str, ours: str) -> None:
    model = models()["m1"]
    del model[field]
    with pytest.raises(UsageError, match=f"m1: '{ours}' is missing"):
        as_variant(model)


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from(["bf16", "fp8", "nvfp4"]), st.integers(1, 100_000))
def test_kv_bytes_fall_exactly_with_g(group_size: int, kv_format: Any, context: int) -> None:
    mha = variant(kv_heads=32, kv_format=kv_format)
    grouped = variant(kv_heads=32 // group_size, kv_format=kv_format)
    assert kv_bytes_per_sequence(grouped, context) * group_size == kv_bytes_per_sequence(mha, context)


@given(st.integers(1, 200_000), st.sampled_from([1, 2, 4, 8]), st.sampled_from([16, 32, 64]))
def test_helix_ranks_hold_the_sequence_between_them(context: int, cp: int, tokens_per_block: int) -> None:
    shape = variant(kv_heads=4)
    whole = kv_bytes_per_sequence(shape, context)
    most = kv_bytes_per_sequence(shape, context, Parallelism(cp=cp), tokens_per_block)
    assert whole / cp <= most <= whole / cp + tokens_per_block * kv_bytes_per_token(shape)


def test_attention_dp_keeps_every_head() -> None:
    shape = variant()
    assert kv_bytes_per_token(shape, Parallelism(tp=8, ep=8, attention_dp=True)) == kv_bytes_per_token(shape)


def test_the_first_stages_take_the_odd_layers() -> None:
    assert stage_sizes(61, 8) == [8, 8, 8, 8, 8, 7, 7, 7]
    hybrid = variant(layers=4, attention=["none", "none", "full", "full"])
    assert kv_bytes_per_token(hybrid, Parallelism(pp=2)) == kv_bytes_per_token(hybrid)
