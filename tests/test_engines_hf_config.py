"""Configurations mean the variant to both versions of transformers, and to the reader of foreign model folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers_pythons
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import variant

from harness.cost.parameters import parameter_count
from harness.engines.hf_config import MAX_POSITIONS, HfConfig, common_architecture, hf_config
from harness.engines.quantization import quant_files
from harness.errors import UsageError
from harness.spec.base import parse
from harness.spec.hf_config import fields_from_hf
from harness.spec.load import load_variant
from harness.spec.variant import Variant

SMALL: dict[str, Any] = {
    "name": "small", "layers": 3, "hidden": 256, "q_heads": 4, "kv_heads": 2, "head_dim": 64, "ffn": 512, "vocab": 1000,
}  # fmt: skip
EXPERTS = {"count": 8, "top_k": 2, "inter": 128}
LATENT = {
    "attention": "mla", "kv_heads": 4, "head_dim": 32,
    "mla": {"kv_lora_rank": 64, "rope_head_dim": 16, "nope_head_dim": 32, "value_head_dim": 32, "q_lora_rank": 96},
}  # fmt: skip


def small(**changes: Any) -> Variant:
    return Variant(**{**SMALL, **changes})


#: Name → variant, the architecture that is named, the one that comes of it.
MODELS: dict[str, tuple[Variant, str | None, str]] = {
    "dense": (small(), None, "LlamaForCausalLM"),
    "heads-of-their-own": (small(head_dim=128, tie_embeddings=True), None, "LlamaForCausalLM"),
    "uneven": (small(q_heads=12, kv_heads=3), None, "Qwen3ForCausalLM"),
    "windows": (small(attention=("sliding", "full"), window=128), None, "Qwen3ForCausalLM"),
    "dense-qwen": (small(), "Qwen3ForCausalLM", "Qwen3ForCausalLM"),
    "experts": (small(ffn=0, experts=EXPERTS), None, "Qwen3MoeForCausalLM"),
    "uneven-experts": (small(ffn=0, q_heads=12, kv_heads=3, experts=EXPERTS), None, "Qwen3MoeForCausalLM"),
    "some-experts": (small(experts={**EXPERTS, "dense_layers": 1}), None, "Qwen3MoeForCausalLM"),
    "mixtral": (small(ffn=0, experts=EXPERTS), "MixtralForCausalLM", "MixtralForCausalLM"),
    "latent": (
        small(**LATENT, experts={**EXPERTS, "shared_inter": 256, "dense_layers": 1}), None, "DeepseekV3ForCausalLM",
    ),
    "latent-plain": (
        small(**{**LATENT, "mla": {"q_lora_rank": None}, "head_dim": 128}, ffn=0, experts=EXPERTS),
        None, "DeepseekV3ForCausalLM",
    ),
    "latent-dense": (small(**LATENT), None, "DeepseekV3ForCausalLM"),
    "8b": (load_variant("dense-8b"), None, "LlamaForCausalLM"),
    "70b": (load_variant("dense-70b", ["layers=4"]), None, "LlamaForCausalLM"),
    "235b": (load_variant("moe-235b", ["layers=2"]), None, "Qwen3MoeForCausalLM"),
}  # fmt: skip


def config_of(name: str) -> HfConfig:
    shape, architecture, _ = MODELS[name]
    return hf_config(shape, architecture)


def write(folder: Path, shape: Variant, model: HfConfig) -> Path:
    """A model folder as an engine has it, with its formats, without a tokenizer."""
    quant = quant_files(shape, model.architecture)
    config = {
        **model.config,
        **({"quantization_config": quant.quantization_config} if quant.quantization_config else {}),
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    root = tmp_path_factory.mktemp("models")
    return tuple(write(root / name, MODELS[name][0], config_of(name)) for name in MODELS)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_architecture_is_what_the_variant_needs(name: str) -> None:
    model = config_of(name)
    assert model.architecture == MODELS[name][2]
    assert model.config["architectures"] == [model.architecture]


def test_a_dense_model_in_both_spellings() -> None:
    assert hf_config(small(tie_embeddings=True)).config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 1000,
        "hidden_size": 256,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "intermediate_size": 512,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "mlp_bias": False,
        "pretraining_tp": 1,
        "rope_theta": 1e6,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "tie_word_embeddings": True,
        "use_cache": True,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def test_longer_sequences_can_be_asked_for() -> None:
    assert hf_config(small(), max_positions=1 << 20).config["max_position_embeddings"] == 1 << 20


def test_norms_of_q_and_k_are_counted_apart() -> None:
    """3 layers with 2 norms of 64 each."""
    plain, normed = config_of("dense"), config_of("dense-qwen")
    assert plain.parameters == parameter_count(small())
    assert not plain.added_parameters
    assert dict(normed.added_parameters) == {"q_norm and k_norm": 3 * 2 * 64}
    assert normed.parameters == plain.parameters + 384
    assert any("norms Q and K" in note and "no price has" in note for note in normed.notes)


def test_what_transformers_5_refuses_takes_another_architecture_and_says_so() -> None:
    notes = " ".join(config_of("uneven").notes)
    assert "not LlamaForCausalLM, because hidden 256 is no multiple of q_heads 12" in notes
    assert not config_of("dense").notes


def test_router_biases_and_draft_layers_are_said_not_to_be_counted() -> None:
    notes = " ".join(config_of("latent").notes)
    assert "16 router biases (a buffer, no parameters) are in no count" in notes  # 2 layers with 8 experts
    assert "a layer for draft tokens, which no count has" in notes
    assert "without a shared expert is not established" not in notes
    assert "without a shared expert is not established" in " ".join(config_of("latent-plain").notes)


def test_deepseek_v3_itself() -> None:
    """671,026,419,200 parameters without its MTP layer, of them 58 · 256 router biases."""
    deepseek = variant(
        layers=61, hidden=7168, q_heads=128, kv_heads=128, ffn=18432, vocab=129280, attention="mla", mla={},
        experts={"count": 256, "top_k": 8, "inter": 2048, "shared_inter": 2048, "dense_layers": 3},
    )  # fmt: skip
    model = hf_config(deepseek)
    assert model.parameters == 671_026_419_200 - 58 * 256
    assert (model.config["n_routed_experts"], model.config["n_shared_experts"]) == (256, 1)


@pytest.mark.parametrize(
    ("changes", "architecture", "reason"),
    [
        (
            {"q_heads": 12, "kv_heads": 3},
            "LlamaForCausalLM",
            "which transformers 5 refuses; Qwen3ForCausalLM can be it",
        ),
        ({}, "MixtralForCausalLM", "no experts, and here every layer has some; LlamaForCausalLM or Qwen3ForCausalLM"),
        (
            {"experts": EXPERTS},
            "LlamaForCausalLM",
            "has experts, and here there are none; Qwen3MoeForCausalLM or Mixtral",
        ),
        ({"experts": {**EXPERTS, "dense_layers": 1}}, "MixtralForCausalLM", "dense_layers is 1, and here every layer"),
        ({"attention": ("sliding",), "window": 64}, "LlamaForCausalLM", "sliding layers, and here there is no window"),
        (LATENT, "Qwen3ForCausalLM", "attention is mla, and here none of it is mla; DeepseekV3ForCausalLM can be it"),
        ({}, "DeepseekV3ForCausalLM", "attention is full, and here all of it is mla"),
        ({"attention": ("full", "none")}, "LlamaForCausalLM", "without attention.*no architecture here can be it"),
        ({}, "GPT2LMHeadModel", "no architecture is called 'GPT2LMHeadModel' here; known: LlamaForCausalLM"),
    ],
)
def test_an_architecture_that_cannot_be_the_variant_is_refused(
    changes: dict[str, Any], architecture: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        hf_config(small(**changes), architecture)


def test_every_reason_is_given_where_no_architecture_can_be_the_variant() -> None:
    """One that is the same everywhere is said once."""
    with pytest.raises(UsageError) as everywhere:
        hf_config(small(gated_ffn=False))
    [reason] = everywhere.value.findings
    assert reason.startswith("small: no architecture can be it: gated_ffn is false, and every FFN of these classes has")
    assert reason.endswith("can be priced, not built; gated_ffn: true makes it one that can")
    with pytest.raises(UsageError) as each:
        hf_config(small(experts={**EXPERTS, "shared_inter": 128}))
    assert each.value.findings == (
        "small: LlamaForCausalLM: the variant has experts, and here there are none",
        "small: Qwen3ForCausalLM: the variant has experts, and here there are none",
        "small: Qwen3MoeForCausalLM: experts.shared_inter is 128, and here there is no shared expert",
        "small: MixtralForCausalLM: experts.shared_inter is 128, and here there is no shared expert",
        "small: DeepseekV3ForCausalLM: attention is full, and here all of it is mla",
    )
    with pytest.raises(UsageError, match=r"shared_inter 64 is no multiple of experts\.inter 128"):
        hf_config(small(**LATENT, experts={**EXPERTS, "shared_inter": 64}))
    with pytest.raises(UsageError, match="vocab 2 has no room for special tokens; at least 3"):
        hf_config(small(vocab=2))


def test_a_sweep_can_take_one_architecture() -> None:
    assert common_architecture([small(), small(head_dim=32)]) == "LlamaForCausalLM"
    assert common_architecture([small(), small(q_heads=12, kv_heads=3)]) == "Qwen3ForCausalLM"
    assert (
        common_architecture([small(experts=EXPERTS), small(experts={**EXPERTS, "count": 4})]) == "Qwen3MoeForCausalLM"
    )
    assert common_architecture([small(), small(experts=EXPERTS)]) is None
    assert common_architecture([small(), small(**LATENT)]) is None


@pytest.mark.parametrize("name", list(MODELS))
def test_a_foreign_reader_finds_the_variant_again(name: str, folders: tuple[Path, ...]) -> None:
    """All but what the model does not have: the head size of a latent, the FFN of a model without dense layers."""
    shape = MODELS[name][0]
    [folder] = [one for one in folders if one.name == name]
    found = parse(Variant, fields_from_hf(folder), name)
    if name == "latent-dense":  # its one expert is in no layer
        assert found.experts
        assert found.experts.dense_layers == 3
        found = found.model_copy(update={"experts": None})
    weights = {group: getattr(found.weights, group) for group in ("attention", "ffn", "experts")}
    expected = shape.model_copy(update={"name": name, "weights": shape.weights.model_copy(update=weights)})
    assert found == expected
    assert found.weights.attention == shape.weights.attention


@settings(max_examples=100, deadline=None)
@given(
    layers=st.integers(1, 6),
    hidden=st.integers(1, 64).map(lambda n: 32 * n),
    kv_heads=st.integers(1, 8),
    group=st.integers(1, 8),
    head_dim=st.sampled_from([32, 64, 128, 256]),
    inter=st.integers(1, 2048),
    experts=st.none() | st.integers(1, 64),
    tied=st.booleans(),
)
def test_no_spelling_disagrees_with_another(
    layers: int, hidden: int, kv_heads: int, group: int, head_dim: int, inter: int, experts: int | None, tied: bool
) -> None:
    shape = small(
        layers=layers, hidden=hidden, kv_heads=kv_heads, q_heads=kv_heads * group, head_dim=head_dim, ffn=inter,
        tie_embeddings=tied, experts=experts and {"count": experts, "top_k": 1, "inter": inter},
    )  # fmt: skip
    config = hf_config(shape).config
    assert config["rope_parameters"]["rope_theta"] == config["rope_theta"]
    assert config["dtype"] == config["torch_dtype"]
    assert config.get("num_experts") == config.get("num_local_experts") == experts
    assert config["max_position_embeddings"] == MAX_POSITIONS
    assert (config["model_type"] == "llama") == (experts is None and hidden % shape.q_heads == 0)


# Both versions of transformers.


@pytest.mark.parametrize("version", transformers_pythons.VERSIONS)
@pytest.mark.parametrize("name", list(MODELS))
def test_transformers_loads_it_with_every_parameter(version: str, name: str, folders: tuple[Path, ...]) -> None:
    read = transformers_pythons.read(version, *folders)[name]
    assert read["class"] == MODELS[name][2]
    assert read["parameters"] == config_of(name).parameters


@pytest.mark.parametrize("version", transformers_pythons.VERSIONS)
@pytest.mark.parametrize("name", list(MODELS))
def test_transformers_reads_the_values_that_were_written(version: str, name: str, folders: tuple[Path, ...]) -> None:
    """Every field that a version has, under its own name, with the value of the file and no default in its place."""
    read, written = transformers_pythons.read(version, *folders)[name]["config"], config_of(name).config
    # A latent's class sets head_dim itself, and Llama has neither windows nor layer types.
    wanted = {field: value for field, value in written.items() if field in read and field != "dtype"}
    assert {field: read[field] for field in wanted} == wanted
    assert read["dtype"] == "torch.bfloat16"
    assert read["rope_theta"] == 1e6
    experts = MODELS[name][0].experts
    if experts:
        counts = {read.get(field) for field in ("num_experts", "num_local_experts", "n_routed_experts")} - {None}
        assert counts == {experts.count}
