"""trtllm-bench: group options, subcommands and their options as each version has them. It runs nothing yet."""

from __future__ import annotations

from typing import Any

import click

from tensorrt_llm._double.era import era
from tensorrt_llm.commands.options import FILE, FLAG, Option, add, not_run

BACKENDS = ["pytorch", "_autodeploy", *(["tensorrt"] if era().engine_backend else [])]

BOTH: list[Option] = [
    ("--backend", click.Choice(BACKENDS), "pytorch"),
    ("--extra_llm_api_options", FILE, None),
    ("--sampler_options", FILE, None),
    ("--max_seq_len", int, None),
    ("--beam_width", int, 1),
    ("--kv_cache_free_gpu_mem_fraction", float, 0.90),
    ("--dataset", FILE, None),
    ("--num_requests", int, 0),
    ("--warmup", int, 2),
    ("--tp", int, 1),
    ("--pp", int, 1),
    ("--ep", int, None),
    ("--report_json", FILE, None),
    ("--iteration_log", FILE, None),
    *([("--engine_dir", click.Path(file_okay=False), None)] if era().engine_backend else []),
]
THROUGHPUT: list[Option] = [
    *BOTH,
    ("--custom_module_dirs", click.Path(), None),
    ("--max_batch_size", int, None),
    ("--max_num_tokens", int, None),
    ("--eos_id", int, -1),
    ("--concurrency", int, -1),
    ("--streaming", FLAG, False),
    ("--cluster_size", int, None),
    ("--target_input_len", int, None),
    ("--target_output_len", int, None),
    ("--output_json", FILE, None),
    ("--request_json", FILE, None),
    ("--enable_chunked_context/--disable_chunked_context", FLAG, True),
    ("--scheduler_policy", click.Choice(["guaranteed_no_evict", "max_utilization"]), "guaranteed_no_evict"),
    ("--no_skip_tokenizer_init", FLAG, False),
]
LATENCY: list[Option] = [
    *BOTH,
    ("--concurrency", int, 1),
    *([("--medusa_choices", FILE, None)] if era().engine_backend else []),
]
DATASET: list[Option] = [
    ("--output", str, "preprocessed_dataset.json"),
    ("--random-seed", int, 420),
    ("--task-id", int, -1),
    ("--rand-task-id", (int, int), None),
    ("--lora-dir", str, None),
    ("--log-level", str, "info"),
    ("--trust-remote-code", FLAG, False),
]


@click.group(context_settings={"show_default": True})
@add(
    [
        ("-m,--model", str, ...),
        ("--model_path", click.Path(), None),
        ("-w,--workspace", click.Path(), "/tmp"),
        ("--log_level", str, "info"),
        ("--revision", str, None),
    ]
)
def main(**_: Any) -> None:
    """Benchmarks of TensorRT-LLM."""


@main.command()
@add(THROUGHPUT)
def throughput(**_: Any) -> None:
    """Run a throughput test."""
    not_run("trtllm-bench throughput")


@main.command()
@add(LATENCY)
def latency(**_: Any) -> None:
    """Run a latency test, one request at a time."""
    not_run("trtllm-bench latency")


@main.group(name=era().dataset_command)
@add(DATASET)
def dataset(**_: Any) -> None:
    """Write a data set."""


@dataset.command(name="token-norm-dist")
@add([(f"--{name}", int, ...) for name in ("num-requests", "input-mean", "input-stdev", "output-mean", "output-stdev")])
def token_norm_dist(**_: Any) -> None:
    """Lengths from a normal distribution."""
    not_run("trtllm-bench prepare-dataset")


@dataset.command(name="token-unif-dist")
@add([(f"--{name}", int, ...) for name in ("num-requests", "input-min", "input-max", "output-min", "output-max")])
def token_unif_dist(**_: Any) -> None:
    """Lengths from a uniform distribution."""
    not_run("trtllm-bench prepare-dataset")


if era().engine_backend:

    @main.command()
    @add(
        [
            ("--max_seq_len", int, None),
            ("--max_batch_size", int, None),
            ("--max_num_tokens", int, None),
            ("--tp_size", int, 1),
            ("--pp_size", int, 1),
            ("--quantization", str, None),
            ("--dataset", FILE, None),
        ]
    )
    def build(**_: Any) -> None:
        """Build an engine."""
        not_run("trtllm-bench build")


if __name__ == "__main__":
    main(prog_name="trtllm-bench")
