"""Reading config.json: the spellings there are, what is missing, and what no variant can say."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_folders import ABSENT, CONFIGS, NAMES, SETTLED, Folders, problems, published

from harness.errors import UsageError
from harness.files import read_yaml
from harness.spec.hf_config.architectures import ARCHITECTURES_FILE
from harness.spec.load import load_variant

#: Fields to put anything into.
WORDS = [
    "config_groups", "decoder_sparse_step", "dtype", "exclude_modules", "first_k_dense_replace", "group_0",
    "head_dim", "hidden_size", "ignore", "input_activations", "kv_cache_quant_algo", "kv_cache_scheme",
    "layer_types", "mlp_only_layers", "model_type", "moe_layer_freq", "n_shared_experts", "num_experts",
    "num_hidden_layers", "num_key_value_heads", "quant_algo", "quant_method", "quantization",
    "quantization_config", "quantized_layers", "sliding_window", "sliding_window_pattern", "targets",
    "text_config", "tie_word_embeddings", "use_sliding_window", "weight_block_size", "weights",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_transformers_4_and_5_say_the_same(folder: Folders) -> None:
    """5.24 writes num_local_experts, rope_parameters, dtype; 4.57 writes num_experts, rope_theta, torch_dtype."""
    newer = folder(
        "qwen3-235b-a22b",
        num_experts=ABSENT,
        num_local_experts=128,
        torch_dtype=ABSENT,
        dtype="bfloat16",
        rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
    )
    assert load_variant(newer) == published("qwen3-235b-a22b")


def test_layers_spelt_out_are_those_of_the_rule(folder: Folders) -> None:
    kinds = ["full_attention" if (layer + 1) % 6 == 0 else "sliding_attention" for layer in range(62)]
    spelt = folder("gemma-3-27b", text={"layer_types": kinds, "vocab_size": 262208, "tie_word_embeddings": True})
    assert load_variant(spelt) == published("gemma-3-27b")


def test_spellings_that_disagree_are_told(folder: Folders) -> None:
    path = folder("mixtral-8x7b", num_experts=16)
    assert problems(path) == ["config.json: num_experts is 16, num_local_experts is 8; they are spellings of one thing"]


def test_a_head_size_that_is_left_out_is_that_of_the_hidden_size(folder: Folders) -> None:
    assert published("llama-3-8b").head_dim == 4096 // 32
    assert load_variant(folder("qwen3-8b", head_dim=ABSENT, num_attention_heads=16)).head_dim == 128  # its class
    assert problems(folder("phi-4", hidden_size=5000, num_attention_heads=48)) == [
        "config.json: head_dim is missing, and hidden_size 5000 is no multiple of num_attention_heads 48"
    ]
    assert load_variant(folder("phi-4", hidden_size=5000, num_attention_heads=48), ["head_dim=128"]).head_dim == 128


def test_kv_heads_that_are_left_out_are_as_many_as_query_heads_or_those_of_the_class(folder: Folders) -> None:
    assert load_variant(folder("llama-3-8b", num_key_value_heads=ABSENT)).kv_heads == 32
    assert load_variant(folder("llama-3-8b", num_key_value_heads=None)).kv_heads == 32
    assert load_variant(folder("mixtral-8x7b", num_key_value_heads=ABSENT)).kv_heads == 8


def test_windows_of_each_rule(folder: Folders) -> None:
    every = load_variant(folder("llama-3-8b", model_type="mistral", sliding_window=4096))
    assert (every.attention, every.window) == (("sliding",), 4096)
    late = folder("qwen3-8b", sliding_window=4096, use_sliding_window=True, max_window_layers=30)
    assert load_variant(late).attention == ("full",) * 30 + ("sliding",) * 6
    alternating = load_variant(folder("llama-3-8b", model_type="gemma2", sliding_window=1024))
    assert (alternating.attention, alternating.window) == (("sliding", "full"), 1024)
    assert load_variant(folder("llama-3-8b", sliding_window=4096)).attention == ("full",)  # Llama does not read it
    unused = folder("qwen3-8b", sliding_window=4096, use_sliding_window=False)
    assert load_variant(unused).attention == ("full",)
    endless = load_variant(folder("phi-4", sliding_window=16384))  # max_position_embeddings
    assert (endless.attention, endless.window) == (("full",), 0)


def test_dense_layers_and_shared_experts_of_each_spelling(folder: Folders) -> None:
    listed = load_variant(folder("qwen3-235b-a22b", mlp_only_layers=[0, 1])).experts
    assert listed
    assert listed.dense_layers == 2
    freq = load_variant(folder("deepseek-v3", moe_layer_freq=[0] * 5 + [1] * 56, n_shared_experts=2)).experts
    assert freq
    assert (freq.dense_layers, freq.shared_inter) == (5, 2 * 2048)
    shared = folder("qwen3-235b-a22b", model_type="qwen2_moe", shared_expert_intermediate_size=5632)
    experts = load_variant(shared).experts
    assert experts
    assert experts.shared_inter == 5632
    none = load_variant(folder("deepseek-v3", n_shared_experts=0)).experts
    assert none
    assert none.shared_inter == 0
    assert "n_shared_experts is null" in problems(folder("deepseek-v3", n_shared_experts=None))[0]


def test_every_known_model_type_is_read(tmp_path: Path) -> None:
    sizes = {
        "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 1024,
        "vocab_size": 256, "tie_word_embeddings": False,
        "moe_intermediate_size": 128, "num_experts": 16, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
        "n_shared_experts": 1, "shared_expert_intermediate_size": 128,
        "kv_lora_rank": 64, "q_lora_rank": 96, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32,
    }  # fmt: skip
    experts = {"moe_intermediate_size", "num_experts", "num_experts_per_tok"}
    known = read_yaml(ARCHITECTURES_FILE)
    assert isinstance(known, dict)
    for model_type, facts in known["architectures"].items():
        fields = sizes if "expert_size" in facts else {name: sizes[name] for name in sizes.keys() - experts}
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **fields}))
        if "refused" in facts:
            assert facts["refused"] in problems(tmp_path)[0]
            continue
        shape = load_variant(tmp_path)
        assert (shape.gated_ffn, shape.experts is not None) == (facts["gated"], "expert_size" in facts), model_type
        assert (shape.attention == ("mla",)) == facts.get("mla", False), model_type


def test_queries_that_are_not_compressed(folder: Folders) -> None:
    mla = load_variant(folder("deepseek-v3", q_lora_rank=None)).mla
    assert mla
    assert mla.q_lora_rank is None


@pytest.mark.parametrize(
    ("base", "field", "left_open"),
    [
        ("llama-3-8b", "num_hidden_layers", None),
        ("llama-3-8b", "hidden_size", "hidden=4096"),
        ("llama-3-8b", "vocab_size", "vocab=128256"),
        ("llama-3-8b", "intermediate_size", "ffn=14336"),
        ("qwen3-235b-a22b", "num_experts", "experts.count=128"),
        ("qwen3-235b-a22b", "num_experts_per_tok", "experts.top_k=8"),
        ("qwen3-235b-a22b", "moe_intermediate_size", "experts.inter=1536"),
        ("deepseek-v3", "kv_lora_rank", None),
        ("deepseek-v3", "q_lora_rank", None),
        ("deepseek-v3", "first_k_dense_replace", None),
        ("deepseek-v3", "n_shared_experts", None),
        ("llama-3-8b", "model_type", None),
    ],
)
def test_a_missing_field_is_named_and_no_default_taken(
    folder: Folders, base: str, field: str, left_open: str | None
) -> None:
    path = folder(base, **{field: ABSENT})
    assert f"config.json: {field} is missing" in problems(path)[0]
    if left_open:
        sets = [left_open, "q_heads=32", "head_dim=128"]
        assert load_variant(path, sets) == load_variant(CONFIGS / base, sets)


def test_shared_experts_are_not_taken_for_none_where_their_size_is_left_open(folder: Folders) -> None:
    path = folder("deepseek-v3", moe_intermediate_size=ABSENT)
    assert "experts.shared_inter" in problems(path, "experts.inter=2048")[0]
    sets = ["experts.inter=2048", "experts.shared_inter=2048"]
    assert load_variant(path, sets) == published("deepseek-v3")


def test_all_that_is_wrong_is_told_at_once(folder: Folders) -> None:
    path = folder("llama-3-8b", hidden_size="wide", vocab_size=0, intermediate_size=[1, 2], tie_word_embeddings="no")
    assert problems(path) == [
        "config.json: hidden_size is 'wide'; it has to be a whole number of at least 1",
        "config.json: intermediate_size is a list: layers differ in it, and a variant has one number for all of them",
        "config.json: vocab_size is 0; it has to be a whole number of at least 1",
        "config.json: tie_word_embeddings is 'no'; it has to be true or false",
    ]


@pytest.mark.parametrize(
    ("base", "changes", "reason"),
    [
        ("llama-3-8b", {"model_type": "nemotron_h"}, "most layers are state-space layers (Mamba)"),
        ("llama-3-8b", {"model_type": "bamba", "attn_layer_indices": [9, 18]}, "the others are state-space layers"),
        ("llama-3-8b", {"model_type": "nemotron-nas"}, "each layer an FFN and KV heads of its own"),
        ("llama-3-8b", {"block_configs": [{}]}, "each layer has an FFN and KV heads of its own"),
        ("llama-3-8b", {"num_key_value_heads": [8, 4]}, "num_key_value_heads is a list: layers differ in it"),
        ("llama-3-8b", {"model_type": "llama4_text"}, "experts in every second layer only"),
        ("qwen3-8b", {"model_type": "qwen3_next"}, "three of four layers have linear attention"),
        ("deepseek-v3", {"index_topk": 2048}, "attention reads what an indexer chose"),
        ("qwen3-235b-a22b", {"decoder_sparse_step": 2}, "layers 0, 2, 4, 6, 8, 10, 12, 14, … are dense"),
        ("qwen3-235b-a22b", {"mlp_only_layers": [93]}, "layers 93 are dense, and the others have experts"),
        ("deepseek-v3", {"moe_layer_freq": [1, 1]}, "moe_layer_freq has 2 entries for 61 layers"),
        ("gpt-oss-120b", {"layer_types": ["full_attention"] * 35 + ["linear_attention"]}, "has linear_attention"),
        ("gpt-oss-120b", {"layer_types": ["full_attention"]}, "layer_types has 1 entries for num_hidden_layers 36"),
        ("gpt-oss-120b", {"sliding_window": None}, "layer_types has sliding_attention, and sliding_window is null"),
        ("llama-3-8b", {"num_local_experts": 8}, "it has 8 experts, and model_type llama is known without any"),
        ("llama-3-8b", {"model_type": "invented"}, "how the layers of model_type 'invented' are built is not known"),
        ("gemma-3-27b", {"tie_word_embeddings": False, "text": {"tie_word_embeddings": True}}, "False outside"),
    ],
)
def test_what_no_variant_has_is_refused_with_the_reason(
    folder: Folders, base: str, changes: dict[str, Any], reason: str
) -> None:
    found = [text for text in problems(folder(base, **changes), *SETTLED.get(base, [])) if reason in text]
    assert len(found) == 1
    assert found[0].startswith("config.json: ")


def test_files_that_are_no_json(tmp_path: Path) -> None:
    for content, message in (
        ("{", "config.json:1:2: not JSON"),
        ("[]", "config.json: expected an object of fields, found list"),
        ('{"hidden_size": 1, "hidden_size": 2}', "the key 'hidden_size' is there twice"),
    ):
        (tmp_path / "config.json").write_text(content)
        assert message in problems(tmp_path)[0]
    with pytest.raises(UsageError, match=r"a folder without config\.json is no model folder"):
        load_variant(CONFIGS)


def test_the_file_and_its_folder_are_the_same() -> None:
    assert load_variant(CONFIGS / "phi-4" / "config.json") == load_variant(CONFIGS / "phi-4")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats(0, 4) | st.sampled_from(["", "fp8", "Linear", "full"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(NAMES), st.dictionaries(st.sampled_from(WORDS), JSON, max_size=3), st.none() | JSON)
def test_whatever_a_folder_holds_is_a_variant_or_told(base: str, changes: dict[str, Any], quant: Any) -> None:
    with tempfile.TemporaryDirectory() as root, contextlib.suppress(UsageError):
        assert load_variant(Folders(Path(root))(base, quant, changes, **changes)).layers > 0
