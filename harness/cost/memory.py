"""Does a case fit: weights, activations, workspace and KV cache of the fullest GPU against what it has.

    visible     what CUDA reports of the GPU's memory
    free        visible − weights − activations of the largest pass − workspace − NCCL buffers
    KV budget   fraction · free (TensorRT-LLM), or fraction · visible − all that is not KV (`fraction_of: total`)
    KV need     sequences of the rank · whole blocks of `tokens_per_block` tokens

The rule for activations and workspace, with its sources, is `harness/data/memory_rules.yaml`; another can be passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness.cost.kv_cache import TOKENS_PER_BLOCK, kv_bytes_per_sequence
from harness.cost.ranks import rank_shape
from harness.cost.weights import rank_weights
from harness.errors import UnreadableInput
from harness.files import read_yaml
from harness.hardware import System
from harness.spec.case import Case
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill

RULES_FILE = Path(__file__).resolve().parent.parent / "data" / "memory_rules.yaml"

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """How much memory a GPU has to give, and what else than weights and KV takes it."""

    visible_fraction: Mapping[str, float]
    minimum_activation_bytes: int
    activation_factors: Mapping[str, Mapping[int, float]]
    """`dense` and `experts`: ranks that share a token → factor."""
    workspace_bytes: int
    nccl_bytes: Mapping[int, int]
    kv_fraction: float
    fraction_of: Literal["free", "total"]
    kv_format_sm: Mapping[str, Sequence[int]]
    """KV format → SMs that have kernels for it."""
    helix_sm: Sequence[int]
    tokens_per_block: int = TOKENS_PER_BLOCK


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """What the fullest GPU needs for a case, what it has, and how much of the KV cache that leaves."""

    visible_bytes: float
    weight_bytes: float
    activation_bytes: float
    workspace_bytes: float
    kv_bytes: float
    """KV cache of this case."""
    kv_budget_bytes: float
    """What there is for it; below 0 where the weights alone do not fit."""
    bytes_per_sequence: float
    max_batch: int | None
    """Sequences of this length that all GPUs of one model instance hold together; None where they cost nothing."""
    max_tokens: int | None
    """Tokens of such sequences, likewise per instance."""

    @property
    def fits(self) -> bool:
        """Whether the KV cache of the case fits into its budget."""
        return self.kv_bytes <= self.kv_budget_bytes

    @property
    def short_by_bytes(self) -> float:
        """KV bytes a GPU that find no room; 0 where all fit."""
        return max(0.0, self.kv_bytes - self.kv_budget_bytes)

    @property
    def text(self) -> str:
        """One sentence with the sizes per GPU in GiB."""
        used = ", ".join(
            f"{name} {size / GIB:.1f}"
            for name, size in (
                ("weights", self.weight_bytes),
                ("activations", self.activation_bytes),
                ("workspace", self.workspace_bytes),
                ("KV", self.kv_bytes),
            )
        )
        room = f"{max(0.0, self.kv_budget_bytes) / GIB:.1f} GiB are left for KV"
        short = "" if self.fits else f"{self.short_by_bytes / GIB:.1f} GiB a GPU short: "
        return f"{short}{used} GiB of {self.visible_bytes / GIB:.1f}, where {room}"


def fits(case: Case, system: System, rules: MemoryRules | None = None) -> MemoryVerdict:
    """Weigh a case on the GPU that holds most. Raises ValueError where its split is impossible."""
    rules = rules or memory_rules()
    variant, split = case.variant, case.parallelism
    rank = rank_shape(variant, split)
    asked = _asked(case, rank.dp)
    visible = system.memory_bytes * _of(rules.visible_fraction, system.key)
    weights = rank_weights(variant, split).total_bytes
    workspace = float(rules.workspace_bytes + rules.nccl_bytes[_shared_by(split.world_size)])
    per_token = _activation_bytes_per_token(variant, rank.together, rules)
    least = max(float(rules.minimum_activation_bytes), per_token * asked.least_tokens)
    activations = max(least, per_token * asked.tokens_per_sequence * asked.sequences)
    per_sequence = kv_bytes_per_sequence(variant, _whole_blocks(asked.context, rules), split, rules.tokens_per_block)
    # Without activations; the KV cache gives way to `share` of every byte of those.
    share = 1.0 if rules.fraction_of == "total" else rules.kv_fraction
    room = rules.kv_fraction * visible - share * (weights + workspace)
    budget = room - share * activations
    if budget < 0:
        # No fraction of what is not there: the whole excess is missing.
        budget /= share
    most = _most_sequences(room, share, least, per_token * asked.tokens_per_sequence, per_sequence)
    return MemoryVerdict(
        visible_bytes=visible,
        weight_bytes=weights,
        activation_bytes=activations,
        workspace_bytes=workspace,
        kv_bytes=asked.sequences * per_sequence,
        kv_budget_bytes=budget,
        bytes_per_sequence=per_sequence,
        max_batch=None if most is None else math.floor(most) * rank.dp,
        max_tokens=None if most is None else math.floor(most * asked.context) * rank.dp,
    )


def _most_sequences(room: float, share: float, least: float, each: float, kv_each: float) -> float | None:
    """The largest n with n · KV ≤ room − share · activations, which are `least` or n · `each`, whichever is more."""
    if not kv_each + each:
        return None
    by_both = room / (kv_each + share * each)
    by_cache = (room - share * least) / kv_each if kv_each else by_both
    return max(0.0, min(by_cache, by_both))


def activation_bytes(variant: Variant, tokens: int, shared_by: int, rules: MemoryRules | None = None) -> float:
    """Activations of a pass over `tokens` tokens on one rank, where `shared_by` ranks share a token's work."""
    rules = rules or memory_rules()
    per_token = _activation_bytes_per_token(variant, shared_by, rules)
    return max(float(rules.minimum_activation_bytes), tokens * per_token)


def _activation_bytes_per_token(variant: Variant, shared_by: int, rules: MemoryRules) -> float:
    factors = rules.activation_factors["experts" if variant.experts else "dense"]
    return 2.0 * max(variant.hidden, variant.q_heads * variant.head_dim) * factors[_shared_by(shared_by)]


@lru_cache(maxsize=1)
def memory_rules() -> MemoryRules:
    """The dated rules that come with the harness."""
    return read_memory_rules(RULES_FILE)


def read_memory_rules(path: Path) -> MemoryRules:
    """Read a file like `memory_rules.yaml`; raise UnreadableInput where a value is missing."""
    data: Any = read_yaml(path)
    try:
        activations = data["activations"]
        return MemoryRules(
            visible_fraction=data["visible_fraction"],
            minimum_activation_bytes=activations["minimum_bytes"],
            activation_factors={kind: activations[kind] for kind in ("dense", "experts")},
            workspace_bytes=data["workspace_bytes"],
            nccl_bytes=data["nccl_bytes"],
            kv_fraction=data["kv_fraction"],
            fraction_of=data["fraction_of"],
            kv_format_sm=data["kv_format_sm"],
            helix_sm=data["helix_sm"],
        )
    except (KeyError, TypeError) as error:
        raise UnreadableInput(f"{path}: no {error}") from None


class _Asked(NamedTuple):
    """What a case puts on one rank."""

    sequences: int
    context: int
    """Tokens that each sequence caches."""
    tokens_per_sequence: int
    """Tokens that each sequence adds to the largest pass."""
    least_tokens: int = 0
    """Tokens that this pass has at least."""


def _asked(case: Case, dp: int) -> _Asked:
    work = case.workload
    sequences = -(-work.batch // dp)
    if isinstance(work, Decode):
        return _Asked(sequences, work.kvsl, 1 + work.draft_len)
    if isinstance(work, Prefill):
        return _Asked(sequences, work.isl, min(work.chunk or work.isl, work.isl))
    return _Asked(sequences, work.isl + work.osl, 1, work.isl)


def _whole_blocks(context: int, rules: MemoryRules) -> int:
    return -(-context // rules.tokens_per_block) * rules.tokens_per_block


def _shared_by(gpus: int) -> int:
    """The largest number of ranks that the rules know, at most `gpus`."""
    return max(known for known in (1, 2, 4, 8) if known <= gpus)


def _of(by_system: Mapping[str, float], key: str) -> float:
    return by_system.get(key, by_system["default"])
