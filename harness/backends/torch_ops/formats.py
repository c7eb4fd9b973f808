"""Which cases PyTorch can run on a device as they are asked; nothing is emulated in another format."""

from __future__ import annotations

from collections.abc import Iterable

from harness.backends.base import CannotAnswer
from harness.cost.kernels import DecodeAttention, Gemm, Moe, PrefillAttention
from harness.cost.ops import Op
from harness.spec.case import Case
from harness.spec.workload import Serve

#: First compute capability whose tensor cores multiply FP8 (PyTorch docs of `torch._scaled_mm`; Ada and later).
FP8_CAPABILITY = (8, 9)

#: `torch._scaled_mm` wants both sizes of a weight in multiples of this.
FP8_ALIGNMENT = 16

FP32_REMEDY = "--set weights=fp32 --set kv_format=fp32 --set attn_format=fp32"

_WHY_NOT = {
    "fp8_block": "PyTorch has no GEMM with FP32 scales per 128 x 128 block on every GPU that has FP8",
    "nvfp4": "this backend runs no NVFP4 GEMM",
    "fp8": "an FP8 GEMM whose input is quantised inside the kernel is no part of PyTorch",
}


def check_kind(case: Case, level: str) -> None:
    """Raise CannotAnswer for what this backend never runs, whatever the device."""
    if level != "layer":
        raise CannotAnswer(f"torch runs decoder layers: level {level} is not answered; --level layer is")
    if isinstance(case.workload, Serve):
        raise CannotAnswer("torch runs prefill and decode, one phase at a time; it serves no requests")
    if case.parallelism.world_size > 1:
        raise CannotAnswer(f"torch runs on one GPU, and this needs {case.parallelism.world_size}")
    if case.parallelism.slots:
        raise CannotAnswer("torch runs experts as they are; slots (EPLB) are not supported")
    if "mla" in case.variant.attention:
        raise CannotAnswer("multi-head latent attention (mla) is not supported by torch here")
    if case.variant.head_dim % 2 and set(case.variant.attention) != {"none"}:
        raise CannotAnswer(f"rotary embedding turns pairs of values, and head_dim {case.variant.head_dim} is odd")


def check_formats(ops: Iterable[Op], capability: tuple[int, int] | None) -> str:
    """Return the dtype between modules, `bfloat16` or `float32`; raise CannotAnswer for what the device cannot do.

    `capability` is the GPU's compute capability, None for a processor.
    """
    formats = {name: stored for op in ops for name, stored in _formats(op)}
    if capability is None:
        _check_cpu(formats)
        return "float32"
    plain = {"bf16", "fp32"}.intersection(formats.values())
    if len(plain) > 1:
        raise CannotAnswer(f"fp32 and bf16 in one model are not run: {_listed(formats)}; {FP32_REMEDY} makes all fp32")
    if plain == {"fp32"} and len(set(formats.values())) > 1:
        raise CannotAnswer(
            f"fp32 beside a quantised format is not run: {_listed(formats)}; {FP32_REMEDY} makes all fp32"
        )
    for name, stored in formats.items():
        _check_gpu(name, stored, capability)
    return "float32" if plain == {"fp32"} else "bfloat16"


def check_alignment(ops: Iterable[Op]) -> None:
    """Raise CannotAnswer for FP8 weights whose sizes no FP8 GEMM takes."""
    for op in ops:
        kernel = op.kernel
        if isinstance(kernel, Gemm) and kernel.format == "fp8_static":
            _check_sizes(op.name, kernel.n, kernel.k)
        elif isinstance(kernel, Moe) and kernel.format == "fp8_static":
            _check_sizes(op.name, kernel.hidden, kernel.inter)


def _check_sizes(name: str, *sizes: int) -> None:
    odd = [str(size) for size in sizes if size % FP8_ALIGNMENT]
    if odd:
        raise CannotAnswer(f"{name}: an FP8 GEMM takes multiples of {FP8_ALIGNMENT}, not {' and '.join(odd)}")


def _formats(op: Op) -> list[tuple[str, str]]:
    kernel = op.kernel
    if isinstance(kernel, Gemm | Moe):
        return [(op.name, kernel.format)]
    if isinstance(kernel, DecodeAttention):
        return [("KV cache", kernel.kv_format)]
    if isinstance(kernel, PrefillAttention):
        return [("KV cache", kernel.kv_format), ("prefill attention", kernel.attn_format)]
    return []


def _check_cpu(formats: dict[str, str]) -> None:
    other = {name: stored for name, stored in formats.items() if stored != "fp32"}
    if other:
        raise CannotAnswer(f"torch on a processor runs fp32 only, and the case has {_listed(other)}; {FP32_REMEDY}")


def _check_gpu(name: str, format: str, capability: tuple[int, int]) -> None:
    if format in {"bf16", "fp32"}:
        return
    if name in {"KV cache", "prefill attention"}:
        raise CannotAnswer(
            f"{name} in {format}: PyTorch's attention kernels take bf16 and fp32; "
            "--set kv_format=bf16 --set attn_format=bf16 runs"
        )
    if format != "fp8_static":
        raise CannotAnswer(f"{name} in {format}: {_WHY_NOT[format]}; --set weights=bf16 or fp8 runs")
    if capability < FP8_CAPABILITY:
        raise CannotAnswer(f"{name} in FP8: this GPU's compute capability {capability[0]}.{capability[1]} has no FP8")


def _listed(formats: dict[str, str]) -> str:
    by_format: dict[str, list[str]] = {}
    for name, stored in formats.items():
        by_format.setdefault(stored, []).append(name)
    return "; ".join(f"{stored} ({', '.join(names)})" for stored, names in by_format.items())
