"""What transformers makes of model folders, as JSON on stdout; run by whatever Python has the version that is asked.

    python transformers_read.py FOLDER…

Prints `{"version": …, "folders": {name: {"class": …, "parameters": …, "config": {…}, "tokenizer": {…}}}}`. Models are
built on the meta device, so that nothing is computed and no memory is taken.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FIELDS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "tie_word_embeddings", "max_position_embeddings", "rms_norm_eps", "hidden_act", "attention_bias",
    "sliding_window", "layer_types", "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
    "mlp_only_layers", "norm_topk_prob", "n_routed_experts", "n_shared_experts", "first_k_dense_replace", "n_group",
    "topk_group", "routed_scaling_factor", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
    "v_head_dim", "num_nextn_predict_layers", "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip

TEXT = "Héllo wörld, 你好 <x>\n\t!"


def read(folder: Path) -> dict[str, object]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_config(config)
    rope = getattr(config, "rope_theta", None)
    facts = {name: getattr(config, name) for name in FIELDS if hasattr(config, name)}
    return {
        "class": type(model).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "config": facts | {
            "rope_theta": config.rope_parameters["rope_theta"] if rope is None else rope,
            "dtype": str(config.dtype),
        },
        "tokenizer": tokenizer(folder) if (folder / "tokenizer.json").is_file() else None,
    }  # fmt: skip


def tokenizer(folder: Path) -> dict[str, object]:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    ids = loaded.encode(TEXT)
    return {
        "size": len(loaded),
        "vocab_size": loaded.vocab_size,
        "special": [loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id],
        "ids": ids,
        "text": loaded.decode(ids),
        "last": loaded.convert_ids_to_tokens(len(loaded) - 1),
    }


if __name__ == "__main__":
    import transformers

    folders = {Path(name).name: read(Path(name)) for name in sys.argv[1:]}
    sys.stdout.write(json.dumps({"version": transformers.__version__, "folders": folders}))
