"""How many layers to run, what they hold and what they read.

A cache must not flatter a measurement: one iteration goes through enough distinct layers that their weights and KV are
four times the last-level cache, where the model has so many: what the next iteration reads has left it, but for a
quarter at the very most. Not more layers than that are needed, and a time is scaled from those that ran to all. Kinds
of layers (full, sliding, dense, experts) run in the proportion in which the model has them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.backends.base import CannotAnswer
from harness.backends.torch_ops.routing import expert_load
from harness.cost.decompose import Section, case_passes, section_ops
from harness.cost.kernels import Gemm, Moe
from harness.cost.ops import BYTES_PER_VALUE, Op
from harness.cost.passes import Pass
from harness.spec.case import Case
from harness.spec.variant import LayerAttention, Variant
from harness.spec.workload import Decode

GIB = 1 << 30

#: Last-level caches that the distinct bytes of an iteration are to fill, and that they fill beyond doubt.
AIMED_CACHES, SURE_CACHES = 4, 2

#: Layers that run where memory allows, so that no layer follows upon itself.
USUAL_LAYERS = 4

#: Part of the memory beyond which an arm takes no more layers than it needs: up to eight arms share a process.
SHARE_OF_MEMORY = 0.1

#: Part of the free memory that may be planned with; allocators and libraries take some.
USABLE = 0.92


class LayerKind(NamedTuple):
    """What one decoder layer is made of."""

    attention: LayerAttention
    sparse: bool
    """Experts instead of a dense FFN."""


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """One layer of a kind, in bytes."""

    weights: float
    kv: float
    read: float
    """Weights and KV in one iteration: all chunks of a prefill, the experts that tokens go to."""

    @property
    def resident(self) -> float:
        return self.weights + self.kv


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """Which layers of the model run."""

    layers: tuple[int, ...]
    kinds: tuple[LayerKind, ...]
    scale: float
    """Layers of the model / layers that run."""
    weights: float
    kv: float
    activations: float
    read: float
    """Bytes of weights and KV that one iteration reads."""
    caches: float
    """Last-level caches that the distinct ones among them fill."""

    @property
    def resident(self) -> float:
        return self.weights + self.kv + self.activations

    @property
    def beyond_cache(self) -> bool:
        """Whether one iteration reads more than the cache can keep for the next: more than twice its size."""
        return self.caches > SURE_CACHES


def layer_kinds(variant: Variant) -> list[LayerKind]:
    """The kind of every layer, first to last."""
    dense = variant.experts.dense_layers if variant.experts else variant.layers
    return [LayerKind(variant.attention_of(layer), layer >= dense) for layer in range(variant.layers)]


def plan_layers(case: Case, seed: int, cache: float, free: float, total: float, most: int | None = None) -> LayerPlan:
    """Choose the layers of an arm; sizes in bytes, `most` as the user asks. Raises CannotAnswer (oom) with figures."""
    kinds = layer_kinds(case.variant)
    sizes = {kind: _layer_bytes(case, kinds.index(kind), seed) for kind in dict.fromkeys(kinds)}
    activations = activation_bytes(case)
    unit = len(kinds) // math.gcd(*Counter(kinds).values())
    plans = [
        _plan(kinds, sizes, count, activations, cache)
        for count in range(unit, len(kinds) + 1, unit)
        if most is None or count <= max(most, unit)
    ]
    chosen = plans[0]
    for plan in plans[1:]:
        wanted = chosen.caches <= AIMED_CACHES or (
            len(plan.layers) <= USUAL_LAYERS and plan.resident <= SHARE_OF_MEMORY * total
        )
        if not wanted or plan.resident > USABLE * free:
            break
        chosen = plan
    if chosen.resident > USABLE * free:
        raise CannotAnswer(_too_much(chosen, free, total), "oom")
    return chosen


def activation_bytes(case: Case) -> float:
    """What there is beside weights and KV, generously: inputs, results, twice every tensor of the largest pass."""
    variant, largest = case.variant, max(case_passes(case), key=lambda one: one.tokens)
    heads = (2 * variant.q_heads + 2 * variant.kv_heads) * variant.head_dim
    wide = 2 * variant.hidden + heads + 3 * variant.ffn
    if variant.experts:
        wide += variant.experts.top_k * (2 * variant.hidden + 3 * variant.experts.inter)
        wide += 3 * variant.experts.shared_inter + variant.experts.count
    inputs = 3.0 * sum(one.tokens for one in case_passes(case)) * variant.hidden
    return _value_bytes(variant) * (2.0 * largest.tokens * wide + inputs)


def _layer_bytes(case: Case, layer: int, seed: int) -> LayerBytes:
    passes = list(case_passes(case))
    ops = [_layer_ops(one, case, layer) for one in passes]
    resident = sum(_resident(op) for op in ops[0])
    weights_read = sum(_weights_read(op, one, seed) for one, listed in zip(passes, ops, strict=True) for op in listed)
    kv_read = sum(op.kernel.kv_bytes for listed in ops for op in listed)
    return LayerBytes(resident, _cached(case, layer), weights_read + kv_read)


def _layer_ops(one: Pass, case: Case, layer: int) -> list[Op]:
    return section_ops(one, case.parallelism, Section(layer, 1, embeds=False, heads=False), "layer")


def _resident(op: Op) -> float:
    return op.kernel.resident_bytes if isinstance(op.kernel, Moe) else op.kernel.weight_bytes


def _weights_read(op: Op, one: Pass, seed: int) -> float:
    """Those of experts are the ones this backend's routing touches, which need not be the expected number."""
    kernel = op.kernel
    if isinstance(kernel, Moe):
        load = expert_load(one.workload.routing, one.tokens, kernel.top_k, kernel.experts, seed)
        return load.touched * kernel.expert_bytes
    return kernel.weight_bytes if isinstance(kernel, Gemm) else 0.0


def _cached(case: Case, layer: int) -> float:
    """KV that a layer holds: of a sliding layer in decode, what its window lets it see."""
    variant, work = case.variant, case.workload
    kind = variant.attention_of(layer)
    if kind == "none":
        return 0.0
    if isinstance(work, Decode):
        tokens = decode_cache_tokens(work.kvsl, variant.window if kind == "sliding" else 0) + 1 + work.draft_len
    else:
        tokens = sum(one.chunk for one in case_passes(case))
    return work.batch * tokens * 2 * variant.kv_heads * variant.head_dim * BYTES_PER_VALUE[variant.kv_format]


def decode_cache_tokens(kvsl: int, window: int) -> int:
    """Cached tokens that the first new token sees: with a window that many less itself."""
    return min(kvsl, window - 1) if window else kvsl


def _value_bytes(variant: Variant) -> float:
    return 4.0 if variant.kv_format == "fp32" else 2.0


def _plan(
    kinds: Sequence[LayerKind], sizes: dict[LayerKind, LayerBytes], count: int, activations: float, cache: float
) -> LayerPlan:
    """`count` layers, each kind in proportion: its first ones, in the model's order."""
    quota = {kind: number * count // len(kinds) for kind, number in Counter(kinds).items()}
    layers = []
    for layer, kind in enumerate(kinds):
        if quota[kind]:
            quota[kind] -= 1
            layers.append(layer)
    ran = [sizes[kinds[layer]] for layer in layers]
    read = sum(one.read for one in ran)
    return LayerPlan(
        layers=tuple(layers),
        kinds=tuple(kinds[layer] for layer in layers),
        scale=len(kinds) / len(layers),
        weights=sum(one.weights for one in ran),
        kv=sum(one.kv for one in ran),
        activations=activations,
        read=read,
        # Chunks of a prefill read the same weights again, so what is distinct counts.
        caches=min(read, sum(one.resident for one in ran)) / cache,
    )


def _too_much(plan: LayerPlan, free: float, total: float) -> str:
    parts = (("weights", plan.weights), ("KV", plan.kv), ("activations", plan.activations))
    listed = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts)
    return (
        f"{len(plan.layers)} layers need {plan.resident / GIB:.2f} GiB ({listed}), and "
        f"{free / GIB:.2f} of {total / GIB:.2f} GiB are free"
    )
