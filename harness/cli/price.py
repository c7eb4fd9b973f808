"""`trtllm-harness price`: one operation or one case, the everyday question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from harness.cli.options import HEADS, SIZE, SIZE_OR_ZERO, WAYS, Gpu, echo_json, json_option, pricing_options
from harness.cli.price_case import case
from harness.cost.intensity import decode_attention_intensity_kv_only, decode_attention_intensity_with_qo
from harness.cost.ops import (
    BYTES_PER_VALUE,
    AllReduce,
    DecodeAttention,
    Gemm,
    Kernel,
    Moe,
    PrefillAttention,
    hbm_bytes,
)
from harness.errors import UsageError
from harness.hardware import System, load_system
from harness.pricing.base import KernelPrice
from harness.pricing.compose import price_kernels
from harness.pricing.roofline import RooflinePricer
from harness.pricing.select import select_pricer
from harness.results.record import PROVENANCE_OF
from harness.spec.bounds import MAX_WAYS

F = TypeVar("F", bound=Callable[..., None])


@click.group("price")
def command() -> None:
    """Price one operation, or one case, on one GPU.

    \b
    trtllm-harness price decode-attention --gpu b200_sxm --batch 8 --kvsl 32768 \\
        --q-heads 64 --kv-heads 8 --head-dim 128 --kv fp8
    """


def _kernel_options(function: F) -> F:
    gpu = click.option("--gpu", required=True, type=Gpu(), help="GPU, for example b200_sxm.")
    return gpu(pricing_options(json_option(function)))


def _heads(function: F) -> F:
    for name, text in (
        ("--head-dim", "Head size."),
        ("--kv-heads", "KV heads on one rank."),
        ("--q-heads", "Query heads on one rank."),
    ):
        function = click.option(name, type=HEADS, required=True, help=text)(function)
    window = click.option("--window", type=SIZE_OR_ZERO, default=0, help="Sliding window in tokens, 0 for none.")
    return window(function)


_batch = click.option("--batch", type=SIZE, required=True, help="Sequences.")
_kv = click.option(
    "--kv",
    "kv_format",
    type=click.Choice(["bf16", "fp8", "nvfp4"]),
    default="bf16",
    show_default=True,
    help="Format of the KV cache.",
)
_routing = click.option(
    "--routing",
    type=click.Choice(["balanced", "power_law_1.01", "power_law_1.2"]),
    default="balanced",
    show_default=True,
    help="How tokens spread over experts.",
)


@command.command("decode-attention")
@_batch
@click.option("--kvsl", type=SIZE, required=True, help="Tokens in the KV cache per sequence.")
@_heads
@_kv
@_kernel_options
def decode_attention(
    batch: int, kvsl: int, q_heads: int, kv_heads: int, head_dim: int, window: int, kv_format: Any, **ask: Any
) -> None:
    """Attention of one decode step in one layer."""
    _check_heads(q_heads, kv_heads)
    _answer(DecodeAttention(batch, kvsl, q_heads, kv_heads, head_dim, kv_format, window=window), **ask)


@command.command("prefill-attention")
@_batch
@click.option("--isl", type=SIZE, required=True, help="Prompt tokens per sequence.")
@click.option("--past", type=SIZE_OR_ZERO, default=0, help="Tokens already in the cache.")
@_heads
@click.option(
    "--attn",
    "attn_format",
    type=click.Choice(["bf16", "fp8"]),
    default="bf16",
    show_default=True,
    help="Format of the attention arithmetic.",
)
@_kv
@_kernel_options
def prefill_attention(
    batch: int,
    isl: int,
    past: int,
    q_heads: int,
    kv_heads: int,
    head_dim: int,
    window: int,
    attn_format: Any,
    kv_format: Any,
    **ask: Any,
) -> None:
    """Causal attention of prompts in one layer."""
    _check_heads(q_heads, kv_heads)
    kernel = PrefillAttention(batch, isl, past, q_heads, kv_heads, head_dim, attn_format, kv_format, window)
    _answer(kernel, **ask)


@command.command("gemm")
@click.option("--m", type=SIZE, required=True, help="Rows: tokens.")
@click.option("--n", type=SIZE, required=True, help="Columns of the output.")
@click.option("--k", type=SIZE, required=True, help="Reduction dimension.")
@click.option(
    "--format",
    "gemm_format",
    type=click.Choice(["bf16", "fp8", "fp8_static", "fp8_block", "nvfp4"]),
    required=True,
    help="fp8 quantises its input inside (dynamic); fp8_static is a checkpoint with fixed scales.",
)
@_kernel_options
def gemm(m: int, n: int, k: int, gemm_format: Any, **ask: Any) -> None:
    """A matrix product (m, k) x (k, n)."""
    _answer(Gemm(m, n, k, gemm_format), **ask)


@command.command("moe")
@click.option("--tokens", type=SIZE, required=True, help="Tokens of the whole EP group.")
@click.option("--hidden", type=SIZE, required=True)
@click.option("--inter", type=SIZE, required=True, help="Intermediate size of one expert.")
@click.option("--topk", type=HEADS, required=True)
@click.option("--experts", type=HEADS, required=True)
@click.option("--ep", type=WAYS, default=1, show_default=True)
@click.option("--tp", type=WAYS, default=1, show_default=True)
@click.option("--format", "gemm_format", type=click.Choice(["bf16", "fp8", "fp8_block", "nvfp4"]), required=True)
@_routing
@_kernel_options
def moe(
    tokens: int,
    hidden: int,
    inter: int,
    topk: int,
    experts: int,
    ep: int,
    tp: int,
    gemm_format: Any,
    routing: str,
    **ask: Any,
) -> None:
    """The expert FFN of one layer on one rank."""
    if topk > experts:
        raise click.BadParameter(f"{topk} is more than the {experts} experts there are", param_hint="--topk")
    _answer(Moe(tokens, hidden, inter, topk, experts, gemm_format, ep, tp, routing), **ask)


@command.command("all-reduce")
@click.option("--elements", type=SIZE, required=True, help="bf16 values: tokens x hidden size.")
@click.option("--gpus", type=click.IntRange(2, MAX_WAYS), required=True, help="Ranks that add up.")
@_kernel_options
def all_reduce(elements: int, gpus: int, **ask: Any) -> None:
    """The sum of a tensor over ranks, the whole of it on each."""
    _answer(AllReduce(elements, gpus), **ask)


command.add_command(case)


def _check_heads(q_heads: int, kv_heads: int) -> None:
    if q_heads % kv_heads:
        works = [n for n in range(1, q_heads + 1) if q_heads % n == 0]
        raise UsageError(
            f"{q_heads} query heads cannot share {kv_heads} KV heads evenly; --kv-heads that work: "
            f"{', '.join(map(str, works))}"
        )


def _answer(kernel: Kernel, gpu: str, on: Any, allow_extrapolation: bool, tables_as_is: bool, as_json: bool) -> None:
    system = load_system(gpu)
    pricer, why = select_pricer(on, gpu, allow_extrapolation=allow_extrapolation, as_is=tables_as_is)
    roofline = RooflinePricer(system)
    price = price_kernels([kernel], pricer, roofline)[0]
    data = {
        "gpu": gpu,
        **_price_data(kernel, price, roofline),
        "provenance": PROVENANCE_OF[pricer.name],
        "answered_by": pricer.versions(),
        "intensities_flop_per_byte": _intensities(kernel),
    }
    if as_json:
        echo_json(data)
    else:
        _print_kernel(data, system, why)


def _price_data(kernel: Kernel, price: KernelPrice, roofline: RooflinePricer) -> dict[str, Any]:
    limit, moved = roofline.time(kernel), hbm_bytes(kernel)
    seconds = price.time_ms / 1000 if price.time_ms else None
    return {
        "value_ms": price.time_ms,
        "status": price.refusal or "ok",
        "reason": price.note if price.refusal else None,
        "source": price.source,
        "flags": list(price.flags),
        "note": None if price.refusal else price.note or None,
        "roofline_ms": limit.time_ms if limit else None,
        "bound": limit.bound if limit else None,
        "intensity_flop_per_byte": kernel.flops / moved,
        "flops": kernel.flops,
        "hbm_bytes": moved,
        "link_bytes": kernel.link_bytes,
        "tflop_per_s": kernel.flops / seconds / 1e12 if seconds else None,
        "gb_per_s": moved / seconds / 1e9 if seconds else None,
        "link_gb_per_s": kernel.link_bytes / seconds / 1e9 if seconds and kernel.link_bytes else None,
    }


def _intensities(kernel: Kernel) -> dict[str, float]:
    """Decode attention has two intensities, both named (design section 4)."""
    if not isinstance(kernel, DecodeAttention):
        return {}
    stored = BYTES_PER_VALUE[kernel.kv_format]
    group_size, seen = kernel.group_size, kernel.seen
    return {
        "kv_only": decode_attention_intensity_kv_only(group_size, stored),
        "with_qo": decode_attention_intensity_with_qo(group_size, seen, stored),
    }


def _achieved(data: dict[str, Any]) -> str:
    if data["link_gb_per_s"] is not None:
        return f"{data['link_gb_per_s']:.4g} GB/s to other GPUs"
    return f"{data['tflop_per_s']:.4g} TFLOP/s, {data['gb_per_s']:.4g} GB/s"


def _print_kernel(data: dict[str, Any], system: System, why: str) -> None:
    if data["value_ms"] is None:
        click.echo(f"{data['status']}: {data['reason']}")
    else:
        click.echo(f"time       {data['value_ms']:.6g} ms  (source {data['source']}, {data['provenance']}; {why})")
        click.echo(f"achieved   {_achieved(data)}")
    if data["roofline_ms"] is not None:
        click.echo(f"roofline   {data['roofline_ms']:.6g} ms on {system.gpu_name}, {data['bound']} bound")
    named = ", ".join(f"{name} {value:.4g}" for name, value in data["intensities_flop_per_byte"].items())
    click.echo(f"intensity  {data['intensity_flop_per_byte']:.4g} FLOP/byte" + (f" ({named})" if named else ""))
    if data["flags"]:
        click.echo(f"flags      {', '.join(data['flags'])}")
    if data["note"]:
        click.echo(f"note       {data['note']}")
