"""GEMMs of a layer in the format of its weights."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.nn.functional import linear

#: Largest value of torch.float8_e4m3fn.
FP8_MAX = 448.0


class Linear(Protocol):
    """(m, k) → (m, n)."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    @property
    def value(self) -> torch.Tensor:
        """The (n, k) weight as it counts, scales multiplied in, in float32 or wider."""
        ...


class PlainLinear:
    """A weight in the dtype of the activations."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight)

    @property
    def value(self) -> torch.Tensor:
        return self.weight.float()


class Fp8Linear:
    """FP8 weight and input with one fixed scale each, product in bf16 (`torch._scaled_mm`).

    The scale of the input is that of its largest value in the first run, and stays: a checkpoint with fixed scales is
    calibrated so. Quantising the input is part of the op.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight_scale = weight.abs().amax().float() / FP8_MAX
        self.weight = (weight / self.weight_scale.to(weight.dtype)).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
        self.input_scale: torch.Tensor | None = None
        self._inverse: Any = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.input_scale is None:
            self.input_scale = x.abs().amax().float().clamp(min=1e-12) / FP8_MAX
            self._inverse = self.input_scale.reciprocal().to(x.dtype)
        quantised = (x * self._inverse).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
        return torch._scaled_mm(  # noqa: SLF001 - PyTorch's only FP8 GEMM
            quantised,
            self.weight.t(),
            scale_a=self.input_scale,
            scale_b=self.weight_scale,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )

    @property
    def value(self) -> torch.Tensor:
        return self.weight.float() * self.weight_scale


def make_linear(n: int, k: int, format: str, dtype: torch.dtype, generator: torch.Generator) -> Linear:
    """Draw an (n, k) weight that keeps the size of its input: normal, with a variance of 1/k."""
    weight = torch.randn(n, k, dtype=dtype, device=generator.device, generator=generator).mul_(k**-0.5)
    return Fp8Linear(weight) if format == "fp8_static" else PlainLinear(weight)
