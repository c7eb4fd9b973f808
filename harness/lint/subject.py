"""What a rule looks at: one variant under one parallelism on one GPU, perhaps with a workload."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from harness.hardware import CPU, is_gpu, load_system
from harness.lint.facts import Facts
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill, Serve


class Gpu(Protocol):
    """What lint needs to know of a GPU; `harness.hardware.System` has it."""

    @property
    def key(self) -> str:
        """A short name."""
        ...

    @property
    def sm(self) -> int:
        """Its SM version, such as 90 or 103."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU of which no more is known than its SM version."""

    key: str
    sm: int


def target_of(key: str) -> Gpu:
    """What is judged under a system key; raises UsageError for a GPU that nobody knows.

    A CPU has no SM version: rules about GPUs are not asked of it.
    """
    return load_system(key) if is_gpu(key) else Target(CPU, 0)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of TensorRT-LLM that no variant or parallelism holds; None is TensorRT-LLM's default.

    `moe_backend` is `moe_config.backend`, `tokens_per_block` is `kv_cache_config.tokens_per_block`, and
    `cp_tokens_per_block` is `cp_config.tokens_per_block` (Helix), which defaults to the former.
    """

    moe_backend: str | None = None
    tokens_per_block: int | None = None
    cp_tokens_per_block: int | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """One question to every rule. `version` is empty where no version is assumed.

    `deployed` says that the model is to run as it stands, and not only some of its ops or layers.
    """

    variant: Variant
    split: Parallelism
    gpu: Gpu
    workload: Prefill | Decode | Serve | None
    version: str
    facts: Facts
    settings: Settings
    deployed: bool = False

    @property
    def on(self) -> str:
        """The GPU in words."""
        return f"{self.gpu.key} (sm {self.gpu.sm})"

    @property
    def has_kv_heads(self) -> bool:
        """Whether any layer caches K and V by head; MLA caches one latent, and other layers nothing."""
        return caches_heads(self.variant)

    @property
    def decodes(self) -> bool:
        """Whether decode is asked about; it is where no workload is given."""
        return not isinstance(self.workload, Prefill)

    @property
    def group_size(self) -> int | None:
        """G of one rank, (QH/tp) / ceil(KH/tp); None where the heads do not split evenly."""
        variant, tp = self.variant, attention_ways(self.split)
        if variant.q_heads % variant.kv_heads or not heads_split(variant, self.split):
            return None
        group, rest = divmod(variant.q_heads // tp, math.ceil(variant.kv_heads / tp))
        return None if rest else group

    def with_heads(self, **heads: int) -> Subject:
        """The same question about other head counts."""
        return replace(self, variant=self.variant.model_copy(update=heads))

    def with_split(self, split: Parallelism) -> Subject:
        """The same question under another parallelism."""
        return replace(self, split=split)


def attention_ways(split: Parallelism) -> int:
    """Ranks over which heads are split; attention data parallelism keeps every head on every rank."""
    return 1 if split.attention_dp else split.tp


def heads_split(variant: Variant, split: Parallelism) -> bool:
    """Whether query heads divide over tp·cp, and KV heads over tp or tp over KV heads."""
    tp = attention_ways(split)
    evenly = not variant.kv_heads % tp or not tp % variant.kv_heads
    return not variant.q_heads % (tp * split.cp) and (evenly or not caches_heads(variant))


def caches_heads(variant: Variant) -> bool:
    """Whether any layer caches K and V by head."""
    return any(kind in {"full", "sliding"} for kind in variant.attention)
