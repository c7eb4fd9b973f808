"""Number formats: how many bytes a stored value takes, and which tensor-core rate computes on it."""

from __future__ import annotations

from typing import Literal

#: How the two operands of a GEMM are stored. `fp8` quantises its bf16 input inside the timed kernel (dynamic scales),
#: `fp8_static` reads an input that is FP8 already (a Model Optimizer checkpoint with fixed scales).
GemmFormat = Literal["bf16", "fp8", "fp8_static", "fp8_block", "nvfp4", "fp32"]
KvFormat = Literal["bf16", "fp8", "nvfp4", "fp32"]
AttnFormat = Literal["bf16", "fp8", "fp32"]

#: Bytes per stored value. NVFP4 is 4 bits and one FP8 scale per 16 values (guidelines, erratum 4).
BYTES_PER_VALUE: dict[str, float] = {
    "bf16": 2.0, "fp8": 1.0, "fp8_static": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "fp32": 4.0,
}  # fmt: skip

#: Which tensor-core rate a format runs at (keys of `System.peak_flop_per_s`). No system has one of `fp32`: tensor cores
#: have TF32, which is another arithmetic.
PEAK_OF_FORMAT: dict[str, str] = {
    "bf16": "bf16", "fp8": "fp8", "fp8_static": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "fp32": "fp32",
}  # fmt: skip


def unquantised_bytes(format: str) -> float:
    """Bytes of a value that a kernel of this format takes or gives unquantised: 4 in an fp32 model, else bf16's 2."""
    return BYTES_PER_VALUE["fp32" if format == "fp32" else "bf16"]


def weight_bytes(n: int, k: int, format: str) -> float:
    """Bytes of an (n, k) weight with its scales.

    FP8 block scales are ceil(n/128)·ceil(k/128) FP32 values; NVFP4's per-tensor FP32 scale counts here, not with KV.
    """
    values = n * k * BYTES_PER_VALUE[format]
    if format == "fp8_block":
        return values + 4.0 * (-(-n // 128)) * (-(-k // 128))
    return values + (4.0 if format == "nvfp4" else 0.0)
