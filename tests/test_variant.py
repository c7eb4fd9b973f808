"""What a variant accepts, and what it says of what it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import LLAMA_8B, variant

from harness.errors import UsageError
from harness.files import dump_yaml, parse_yaml
from harness.spec.base import parse
from harness.spec.variant import Variant, WeightFormats


def test_head_dim_is_independent_of_hidden_over_heads() -> None:
    assert variant(hidden=2560).head_dim == 128


def test_one_word_sets_the_format_of_every_group_but_the_head() -> None:
    assert variant(weights="nvfp4").weights == WeightFormats(
        attention="nvfp4", ffn="nvfp4", experts="nvfp4", lm_head="bf16"
    )
    assert variant(weights={"ffn": "nvfp4"}).weights.attention == "bf16"


def test_fp32_is_the_number_format_of_a_whole_model() -> None:
    weights = variant(weights="fp32").weights
    assert weights == WeightFormats(attention="fp32", ffn="fp32", experts="fp32", lm_head="fp32")
    assert (weights.unquantised, variant(weights="fp8").weights.unquantised) == ("fp32", "bf16")


def test_layer_kinds_repeat_over_the_layers() -> None:
    pattern = variant(layers=7, attention=["sliding", "sliding", "full"], window=128)
    assert [pattern.attention_of(layer) for layer in range(7)].count("sliding") == pattern.count_layers("sliding") == 5
    assert pattern.count_layers("full") == 2
    assert pattern.count_layers("mla") == 0


def test_every_finding_comes_at_once() -> None:
    wrong = {**LLAMA_8B, "kv_head": 8, "hidden": -1, "weights": {"atention": "fp8"}, "kv_format": "fp4"}
    del wrong["layers"]
    with pytest.raises(UsageError) as caught:
        parse(Variant, wrong, "v.yaml")
    assert set(caught.value.findings) == {
        "v.yaml: 'layers' is missing",
        "v.yaml: unknown key 'kv_head'; did you mean 'kv_heads'?",
        "v.yaml: unknown key 'weights.atention'; did you mean 'attention'?",
        "v.yaml: hidden: Input should be greater than 0 (found -1)",
        "v.yaml: kv_format: Input should be 'bf16', 'fp8', 'nvfp4' or 'fp32' (found 'fp4')",
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention": "sliding"}, "window must be more than 0"),
        ({"attention": "mla"}, "mla must be given"),
        ({"attention": ["full"] * 33}, "names 33 layers but the variant has 32"),
        ({"ffn": 0}, "ffn is 0 but 32 layers have a dense FFN"),
        ({"experts": {"count": 4, "top_k": 8, "inter": 1}}, "top_k 8 is more than the 4 experts there are"),
        ({"experts": {"count": 8, "top_k": 1, "inter": 1, "dense_layers": 40}}, "dense_layers 40 is more than"),
        ({"hidden": 2**40 + 1}, r"hidden: .* less than or equal to 1099511627776 \(found 1099511627777\)"),
        ({"q_heads": 65_537}, r"q_heads: .* less than or equal to 65536 \(found 65537\)"),
        ({"layers": 10_001}, r"layers: .* less than or equal to 10000 \(found 10001\)"),
        ({"layers": "8"}, r"layers: Input should be a valid integer \(found '8'\)"),
        ({"layers": True}, r"layers: Input should be a valid integer \(found True\)"),
        ({"layers": 8.0}, r"layers: Input should be a valid integer \(found 8.0\)"),
        ({"gated_ffn": 1}, r"gated_ffn: Input should be a valid boolean \(found 1\)"),
        ({"weights": {"ffn": "fp32"}}, "whole model, and here is attention bf16, experts bf16, lm_head bf16; "),
        ({"name": "two\nlines"}, "name: a name has no line breaks and no control characters"),
        ({"name": " "}, "name: a name has to be there"),
        ({"name": "x" * 201}, "name: 201 characters are too many for a name; 200 are the limit"),
    ],
)
def test_what_contradicts_itself_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(Variant, {**LLAMA_8B, **change}, "v.yaml")


shapes = st.fixed_dictionaries(
    {
        **{name: st.integers(1, 65536) for name in ("hidden", "q_heads", "kv_heads", "head_dim", "ffn", "vocab")},
        "layers": st.integers(1, 10_000),
        "name": st.text(min_size=1, max_size=200).filter(lambda text: text.strip() and text.isprintable()),
        "window": st.integers(1, 8192),
        "attention": st.just(("full",)) | st.just(("sliding",)),
        "kv_format": st.sampled_from(["bf16", "fp8", "nvfp4", "fp32"]),
        "weights": st.sampled_from(["bf16", "fp8", "fp8_block", "nvfp4", "fp32"]) | st.just({"experts": "nvfp4"}),
        "gated_ffn": st.booleans(),
        "experts": st.none() | st.just({"count": 128, "top_k": 8, "inter": 1536}),
    }
)


@given(shapes)
def test_a_variant_round_trips_through_yaml(fields: dict[str, object]) -> None:
    model = Variant.model_validate(fields)
    assert parse(Variant, parse_yaml(dump_yaml(model.to_yaml_data())), "again") == model
