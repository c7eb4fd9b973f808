"""trtllm-serve: what it takes. It serves nothing yet."""

from __future__ import annotations

from typing import Any

import click

from tensorrt_llm._double.era import era
from tensorrt_llm.commands.options import FILE, FLAG, add, not_run

BACKENDS = ["pytorch", "_autodeploy", *(["tensorrt"] if era().engine_backend else [])]


class DefaultGroup(click.Group):
    """`trtllm-serve MODEL` is `trtllm-serve serve MODEL`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args.insert(0, "serve")
        return super().resolve_command(ctx, args)


@click.group(cls=DefaultGroup)
def main() -> None:
    """Serve a model over HTTP."""


@main.command()
@click.argument("model")
@add(
    [
        ("--tokenizer", str, None),
        ("--host", str, "localhost"),
        ("--port", int, 8000),
        ("--backend", click.Choice(BACKENDS), "pytorch"),
        ("--log_level", str, "info"),
        ("--max_beam_width", int, 1),
        ("--max_batch_size", int, 2048),
        ("--max_num_tokens", int, 8192),
        ("--max_seq_len", int, None),
        ("--tp_size", int, 1),
        ("--pp_size", int, 1),
        ("--ep_size", int, None),
        ("--gpus_per_node", int, None),
        ("--kv_cache_free_gpu_memory_fraction", float, 0.9),
        ("--num_postprocess_workers", int, 0),
        ("--trust_remote_code", FLAG, False),
        ("--config,--extra_llm_api_options", FILE, None),
        ("--reasoning_parser", str, None),
    ]
)
def serve(**_: Any) -> None:
    """Serve one model."""
    not_run("trtllm-serve")


if __name__ == "__main__":
    main(prog_name="trtllm-serve")
