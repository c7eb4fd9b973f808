from __future__ import annotations

from harness.engines.weights_layout import is_mla
from harness.engines.weights_modelopt import layer_config


def test_a_layer_alone_keeps_its_kind() -> None:
    whole = {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 4,
        "vocab_size": 1000,
        "tie_word_embeddings": True,
        "quantization_config": {},
        "layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"],
        "max_window_layers": 4,
    }
    assert layer_config(whole, 3) == {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 1,
        "vocab_size": 8,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention"],
        "max_window_layers": 1,
    }
    deepseek = {"first_k_dense_replace": 3, "kv_lora_rank": 512}
    assert is_mla(deepseek)
    assert [layer_config(deepseek, layer)["first_k_dense_replace"] for layer in (2, 3)] == [1, 0]
    qwen = {"mlp_only_layers": [0], "num_experts": 8}
    assert [layer_config(qwen, layer)["mlp_only_layers"] for layer in (0, 1)] == [[0], []]
