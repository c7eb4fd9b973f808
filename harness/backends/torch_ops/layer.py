"""Decoder layers of a case, and a run through them: the ops that `harness.cost.decompose` names, in its order.

Shapes and formats of every GEMM are those of the case's ops. A layer is pre-norm with RMS norms and residuals, its
activation SiLU (gated: SwiGLU). Where a layer has no attention, both its norms run all the same, as they are costed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import rms_norm, silu

from harness.backends.torch_ops.attention import Attention, AttentionShape, KvCache, Span
from harness.backends.torch_ops.linear import Linear, make_linear
from harness.backends.torch_ops.moe import Assignment, RoutedExperts, batches, gated
from harness.backends.torch_ops.routing import Load, expert_load
from harness.backends.torch_ops.sizing import LayerKind, decode_cache_tokens
from harness.backends.torch_ops.timing import Do, call
from harness.cost.decompose import case_passes, decompose
from harness.cost.kernels import Gemm, Moe
from harness.cost.passes import Pass
from harness.spec.case import Case
from harness.spec.workload import Decode

#: As the engines of this project are configured (`rms_norm_eps`).
NORM_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Step:
    """One pass through the layers: its input and what its attention and its experts need."""

    x: torch.Tensor
    """[tokens, hidden]."""
    attention: dict[str, Attention]
    """By kind of layer."""
    to: Assignment | None


class Layer:
    """Weights and KV cache of one layer."""

    def __init__(self, kind: LayerKind, parts: _Parts, generator: torch.Generator) -> None:
        self.kind, dtype = kind, parts.dtype
        self._name = "layer.attn" if kind.attention == "full" else "layer.attn_sliding"
        hidden = parts.case.variant.hidden
        self.norms = [
            1 + 0.1 * torch.randn(hidden, dtype=dtype, device=generator.device, generator=generator) for _ in range(2)
        ]
        self.linears: dict[str, Linear] = {}
        """By name of the op."""
        prefixes = [f"{self._name}."] if kind.attention != "none" else []
        prefixes.append("layer.moe." if kind.sparse else "layer.ffn.")
        for name, kernel in parts.kernels.items():
            if isinstance(kernel, Gemm) and name.startswith(tuple(prefixes)):
                self.linears[name] = make_linear(kernel.n, kernel.k, kernel.format, dtype, generator)
        self.cache = parts.make_cache(kind, generator) if kind.attention != "none" else None
        self.experts = RoutedExperts(parts.moe, parts.batched, dtype, generator) if kind.sparse and parts.moe else None
        self._gated = parts.case.variant.gated_ffn

    def run(
        self, x: torch.Tensor, delta: torch.Tensor | None, step: Step, do: Do
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One layer: the stream and what is still to be added to it, in and out."""
        x, normed = do("layer.norms", _norm, x, delta, self.norms[0])
        attended = self._attend(normed, step, do) if self.cache else None
        x, normed = do("layer.norms", _norm, x, attended, self.norms[1])
        if self.experts:
            return x, self._moe(normed, step, do)
        return x, self._ffn("layer.ffn", normed, do)

    def _attend(self, normed: torch.Tensor, step: Step, do: Do) -> Any:
        name = self._name
        qkv = do(f"{name}.qkv_proj", self.linears[f"{name}.qkv_proj"], normed)
        attended = do(f"{name}.attention", step.attention[self.kind.attention], qkv, self.cache)
        return do(f"{name}.o_proj", self.linears[f"{name}.o_proj"], attended)

    def _ffn(self, name: str, normed: torch.Tensor, do: Do) -> Any:
        first = f"{name}.gate_up" if self._gated else f"{name}.up"
        wide = do(first, self.linears[first], normed)
        active = do(f"{name}.activation", _swiglu if self._gated else silu, wide)
        return do(f"{name}.down", self.linears[f"{name}.down"], active)

    def _moe(self, normed: torch.Tensor, step: Step, do: Do) -> Any:
        logits = do("layer.moe.router", self.linears["layer.moe.router"], normed)
        result = do("layer.moe.experts", self.experts, normed, logits, step.to)
        if "layer.moe.shared.down" in self.linears:
            # Added in place: the sum is no op of its own.
            result.add_(self._ffn("layer.moe.shared", normed, do))
        return result


def _norm(x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Add what a module gave to the stream, then RMS norm."""
    if delta is not None:
        x = x + delta
    return x, rms_norm(x, weight.shape, weight, NORM_EPSILON)


def _swiglu(wide: torch.Tensor) -> torch.Tensor:
    return gated(wide, wide.shape[-1] // 2)


class Stack:
    """Layers with distinct weights and caches, and the passes of the case through them."""

    def __init__(
        self, case: Case, kinds: Sequence[LayerKind], dtype: torch.dtype, generator: torch.Generator, seed: int
    ) -> None:
        parts = _Parts(case, dtype, seed)
        self.layers = [Layer(kind, parts, generator) for kind in kinds]
        self.steps = [parts.make_step(run, kinds, generator) for run in parts.passes]
        self.moe_way = next((layer.experts.way for layer in self.layers if layer.experts), "")
        self.loads = parts.loads if self.moe_way else []

    @property
    def attention_ways(self) -> tuple[str, ...]:
        """How attention runs, see `harness.backends.torch_ops.attention`."""
        return tuple(dict.fromkeys(one.way for step in self.steps for one in step.attention.values()))

    def run(self, do: Do = call) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """All passes; of each the stream and what the last layer adds to it (the next norm's work)."""
        ends = []
        for step in self.steps:
            x: torch.Tensor = step.x
            delta: torch.Tensor | None = None
            for layer in self.layers:
                x, delta = layer.run(x, delta, step, do)
            ends.append((x, delta))
        return ends


class _Parts:
    """What layers and steps of a case are made of."""

    def __init__(self, case: Case, dtype: torch.dtype, seed: int) -> None:
        self.case, self.dtype = case, dtype
        self.kernels = {op.name: op.kernel for op in decompose(case, "layer")}
        self.passes = list(case_passes(case))
        self.moe = next((kernel for kernel in self.kernels.values() if isinstance(kernel, Moe)), None)
        self.loads: list[Load] = []
        if self.moe:
            routing, top_k, count = case.workload.routing, self.moe.top_k, self.moe.experts
            self.loads = [expert_load(routing, run.tokens, top_k, count, seed) for run in self.passes]
        self.batched = self.moe is not None and batches(self.moe, self.loads[0])

    def make_cache(self, kind: LayerKind, generator: torch.Generator) -> KvCache:
        last = self._span(self.passes[-1], kind.attention)
        return KvCache(self._shape(kind.attention), last.slot + last.new, self.dtype, generator)

    def make_step(self, run: Pass, kinds: Sequence[LayerKind], generator: torch.Generator) -> Step:
        device = generator.device
        x = torch.randn(run.tokens, self.case.variant.hidden, dtype=self.dtype, device=device, generator=generator)
        attention: dict[str, Attention] = {
            kind: Attention(self._shape(kind), self._span(run, kind), self.dtype, device)
            for kind in dict.fromkeys(one.attention for one in kinds)
            if kind != "none"
        }
        to = None
        if self.moe:
            load = self.loads[self.passes.index(run)]
            to = Assignment(load, run.tokens, self.moe.top_k, self.batched, device)
        return Step(x, attention, to)

    def _shape(self, attention: str) -> AttentionShape:
        variant = self.case.variant
        window = variant.window if attention == "sliding" else 0
        return AttentionShape(self.case.workload.batch, variant.q_heads, variant.kv_heads, variant.head_dim, window)

    def _span(self, run: Pass, attention: str) -> Span:
        work = self.case.workload
        if isinstance(work, Decode):
            window = self.case.variant.window if attention == "sliding" else 0
            return Span(work.kvsl, decode_cache_tokens(work.kvsl, window), 1 + work.draft_len)
        return Span(run.past, run.past, run.chunk)
