"""trtllm-build, as long as there is an engine backend: what it takes. It builds nothing yet."""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys

from tensorrt_llm._double.era import era

INTEGERS = (
    "max_batch_size", "max_input_len", "max_seq_len", "max_num_tokens", "opt_num_tokens", "max_beam_width", "workers",
    "max_draft_len",
)  # fmt: skip
PATHS = ("checkpoint_dir", "model_config", "build_config", "output_dir", "input_timing_cache", "output_timing_cache")
FLAGS = ("strip_plan", "dry_run", "monitor_memory", "gather_context_logits", "gather_generation_logits")
PLUGINS = ("gemm_plugin", "gpt_attention_plugin", "use_fp8_context_fmha", "use_paged_context_fmha", "moe_plugin")
MODES = ("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="trtllm-build")
    for name in PATHS:
        made.add_argument(f"--{name}", default="engine_outputs" if name == "output_dir" else None)
    for name in INTEGERS:
        made.add_argument(f"--{name}", type=int)
    for name in FLAGS:
        made.add_argument(f"--{name}", action="store_true")
    for name in PLUGINS:
        made.add_argument(f"--{name}")
    made.add_argument("--kv_cache_type", choices=["continuous", "paged", "disabled"])
    made.add_argument("--profiling_verbosity", choices=["layer_names_only", "detailed", "none"])
    made.add_argument("--speculative_decoding_mode", choices=MODES)
    made.add_argument("--log_level", default="info")
    return made


def main() -> None:
    if not era().engine_backend:
        print("trtllm-build: command not found", file=sys.stderr)
        sys.exit(127)
    parser().parse_args()
    sys.exit("the double of TensorRT-LLM does not run trtllm-build")


if __name__ == "__main__":
    main()
