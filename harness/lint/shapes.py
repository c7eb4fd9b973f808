"""Dimensions after sharding: what one rank holds of each weight, and which tp splits all of them cleanly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.lint.facts import Facts
from harness.lint.finding import join
from harness.lint.subject import attention_ways, caches_heads, heads_split
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant, WeightFormat

_BLOCKED: tuple[WeightFormat, ...] = ("fp8", "fp8_block", "nvfp4")

#: tp up to here is tried for a setting that works: the GPUs of a node.
_GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Shard:
    """One dimension of weights: its whole size, over how many ranks it is split (`by` in words), in which formats.

    `reduced` tells whether some GEMM sums over this dimension (its K); scales of NVFP4 run along K only.
    """

    field: str
    size: int
    ways: int
    by: str
    formats: frozenset[WeightFormat]
    reduced: bool = True

    @property
    def whole(self) -> bool:
        """Whether every rank gets the same number of values."""
        return not self.size % self.ways

    @property
    def text(self) -> str:
        """The size on one rank in words: `1856 / tp 8 = 232`."""
        return f"{self.size} / {self.by} {self.ways} = {self.size // self.ways}" if self.ways > 1 else str(self.size)

    def cuts(self, block: int) -> bool:
        """Whether a block of this many values would be cut on a rank."""
        return self.whole and bool(self.size // self.ways % block)


def shards(variant: Variant, split: Parallelism) -> Iterator[Shard]:
    """Every dimension that weights have on one rank, as TensorRT-LLM shards them.

    Helix runs o_proj and the FFN over tp·cp; attention data parallelism keeps attention and dense FFN whole.
    """
    weights, experts = variant.weights, variant.experts
    has_dense = experts is None or experts.dense_layers > 0
    formats = {weights.attention, weights.lm_head}
    formats |= ({weights.ffn} if has_dense else set()) | ({weights.experts} if experts else set())
    yield Shard("hidden", variant.hidden, 1, "", frozenset(formats))

    attention = frozenset({weights.attention})
    tp = attention_ways(split)
    ranks, by = tp * split.cp, "tp·cp" if split.cp > 1 else "tp"
    if not variant.q_heads % ranks:
        for width in _query_widths(variant):
            yield Shard("q_heads · head_dim", variant.q_heads * width, ranks, by, attention)
    kv_ways = min(tp, variant.kv_heads)
    if caches_heads(variant) and kv_ways > 1 and not variant.kv_heads % kv_ways:
        width = variant.kv_heads * variant.head_dim
        yield Shard("kv_heads · head_dim", width, kv_ways, "tp", attention, reduced=False)
    if has_dense:
        yield Shard("ffn", variant.ffn, ranks, by, frozenset({weights.ffn}))
    if experts and split.ep * split.expert_tp == split.tp * split.cp:
        yield Shard("experts.inter", experts.inter, split.expert_tp, "moe_tp", frozenset({weights.experts}))


def _query_widths(variant: Variant) -> list[int]:
    """Columns per query head that o_proj sums over: the head size, or MLA's value size."""
    heads = [variant.head_dim] if caches_heads(variant) else []
    return heads + ([variant.mla.value_head_dim] if variant.mla and "mla" in variant.attention else [])


def block_of(format: WeightFormat, facts: Facts) -> int | None:
    """How many values must stay together in a format; None where nothing is known."""
    block = facts.block_sizes.get(format)
    return block.multiple if block else None


def cut_shards(variant: Variant, split: Parallelism, format: WeightFormat, facts: Facts) -> Iterator[Shard]:
    """The shards of one format whose blocks would be cut."""
    block = block_of(format, facts)
    for shard in shards(variant, split) if block else ():
        if format in shard.formats and (shard.reduced or format == "fp8_block") and shard.cuts(block or 1):
            yield shard


def splits_cleanly(variant: Variant, split: Parallelism, facts: Facts) -> bool:
    """Whether heads, experts and every dimension divide, with no block cut."""
    return (
        heads_split(variant, split)
        and all(shard.whole for shard in shards(variant, split))
        and not any(next(cut_shards(variant, split, blocked, facts), None) for blocked in _BLOCKED)
    )


def clean_splits(variant: Variant, split: Parallelism, facts: Facts, largest: int = 0) -> dict[int, Parallelism]:
    """Every tp, up to a node's GPUs or what was asked, at which this variant splits cleanly; all else stays."""
    ep = split.ep if variant.experts else 1
    candidates = range(1, (largest or max(_GPUS_PER_NODE, split.tp)) + 1)
    asked = {tp: split.model_copy(update={"tp": tp, "moe_tp": None}) for tp in candidates if not tp * split.cp % ep}
    return {tp: one for tp, one in asked.items() if splits_cleanly(variant, one, facts)}


def working_tp(variant: Variant, split: Parallelism, facts: Facts, largest: int = 0) -> str:
    """Every tp that works as a setting: `tp 1, 2, 4`; empty where there is none."""
    values = clean_splits(variant, split, facts, largest)
    return f"tp {join(values)}" if values else ""


def nearest_multiples(size: int, block: int) -> list[int]:
    """The multiples of `block` just below and above a size."""
    below = size // block * block
    return [n for n in (below, below + block) if n]
