"""Exchanges between ranks, as kernels: one rank computes nothing worth counting and sends and receives.

Each kind knows its shape on ONE rank. `link_bytes` is what that rank sends, by the algorithm that moves least without
help from the switch (ring or two-shot; the "bus bandwidth" of NVIDIA/nccl-tests, doc/PERFORMANCE.md, counts the same
way). NVSwitch can add up in the network: an AllReduce then sends its message once instead of 2·(n−1)/n times, so a
measured one may beat its roofline by up to that factor.

`beyond(domain)` is the part of `link_bytes` that leaves an NVLink domain of `domain` GPUs, where every domain first
works as one (reduce inside, exchange between, gather inside).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.cost.formats import BYTES_PER_VALUE, GemmFormat

_BF16_BYTES = 2.0
_MOST_STEPS = 1024

#: What the exchange belongs to; kernels that move tokens to experts differ between the two.
Phase = Literal["prefill", "decode"]


class _Exchange:
    """What all exchanges have in common: no arithmetic worth counting, no weights, no KV."""

    __slots__ = ()
    compute_format = "bf16"
    flops = 0.0
    weight_bytes = 0.0
    kv_bytes = 0.0


@dataclass(frozen=True, slots=True)
class AllReduce(_Exchange):
    """`elements` bf16 values summed over `gpus` ranks, the whole sum on each: after o_proj and after an FFN."""

    elements: int
    gpus: int

    @property
    def activation_bytes(self) -> float:
        """The message read and the sum written."""
        return 2 * _BF16_BYTES * self.elements

    @property
    def link_bytes(self) -> float:
        """2·(n−1)/n messages."""
        return 2 * _BF16_BYTES * self.elements * (self.gpus - 1) / self.gpus

    def beyond(self, domain: int) -> float:
        """Each rank of a domain exchanges its 1/domain of the domain's sum: 2·(N−1)/N/domain messages for N domains."""
        return 2 * _between_domains(_BF16_BYTES * self.elements, self.gpus, domain)


@dataclass(frozen=True, slots=True)
class AllGather(_Exchange):
    """`elements` values in all, 1/gpus of them on each rank before, all of them on each after."""

    elements: int
    gpus: int
    format: GemmFormat = "bf16"

    @property
    def activation_bytes(self) -> float:
        """The own part read, the whole written."""
        return self._whole * (1 + 1 / self.gpus)

    @property
    def link_bytes(self) -> float:
        """(n−1)/n of the whole."""
        return self._whole * (self.gpus - 1) / self.gpus

    def beyond(self, domain: int) -> float:
        """Every domain sends each part of its own to the others once."""
        return _between_domains(self._whole, self.gpus, domain)

    @property
    def _whole(self) -> float:
        return self.elements * BYTES_PER_VALUE[self.format]


@dataclass(frozen=True, slots=True)
class ReduceScatter(_Exchange):
    """`elements` bf16 values on each rank before, 1/gpus of their sum on each after."""

    elements: int
    gpus: int

    @property
    def activation_bytes(self) -> float:
        """The whole read, the own part written."""
        return _BF16_BYTES * self.elements * (1 + 1 / self.gpus)

    @property
    def link_bytes(self) -> float:
        """(n−1)/n of the whole."""
        return _BF16_BYTES * self.elements * (self.gpus - 1) / self.gpus

    def beyond(self, domain: int) -> float:
        """The mirror image of an AllGather."""
        return _between_domains(_BF16_BYTES * self.elements, self.gpus, domain)


@dataclass(frozen=True, slots=True)
class ExpertDispatch(_Exchange):
    """Each of the rank's `tokens` to the ranks that hold its experts, quantised as the experts take it.

    A token travels once to a rank, however many of its `top_k` experts are there (NVLink kernels and DeepEP's
    high-throughput mode). `slots` is 0 without EPLB. The routing ids and weights, 8·top_k bytes a token, are left out.
    """

    tokens: int
    hidden: int
    top_k: int
    experts: int
    gpus: int
    format: GemmFormat
    slots: int = 0
    phase: Phase = "decode"

    @property
    def activation_bytes(self) -> float:
        """Rows read, sent copies received: under balanced routing a rank receives what it sends."""
        return self.tokens * self.hidden * BYTES_PER_VALUE[self.format] + self.link_bytes

    @property
    def link_bytes(self) -> float:
        """tokens · other ranks visited · hidden, in the experts' format."""
        ranks = ranks_visited(self.top_k, self.slots or self.experts, self.gpus)
        return self.tokens * ranks * self.hidden * BYTES_PER_VALUE[self.format]

    def beyond(self, domain: int) -> float:
        """All other ranks get alike."""
        return _to_other_domains(self.link_bytes, self.gpus, domain)


@dataclass(frozen=True, slots=True)
class ExpertCombine(_Exchange):
    """The way back: one bf16 row per token and rank that holds some of its experts, already summed over those."""

    tokens: int
    hidden: int
    top_k: int
    experts: int
    gpus: int
    format: GemmFormat
    """Format of the experts; rows travel back in bf16, but measured rows are found by it."""
    slots: int = 0
    phase: Phase = "decode"

    @property
    def activation_bytes(self) -> float:
        """Rows sent read, rows received and the sum written."""
        return _BF16_BYTES * self.tokens * self.hidden + self.link_bytes

    @property
    def link_bytes(self) -> float:
        """tokens · other ranks visited · hidden, in bf16; under balanced routing a rank sends what it receives."""
        ranks = ranks_visited(self.top_k, self.slots or self.experts, self.gpus)
        return _BF16_BYTES * self.tokens * ranks * self.hidden

    def beyond(self, domain: int) -> float:
        """All other ranks get alike."""
        return _to_other_domains(self.link_bytes, self.gpus, domain)


@dataclass(frozen=True, slots=True)
class HelixAllToAll(_Exchange):
    """Partial attention outputs of `heads` query heads over `gpus` KV-parallel ranks; each keeps heads/gpus of them.

    Every head carries `value_dim` half-precision values and two FP32 softmax statistics per token: Hsz for GQA,
    kv_lora_rank for MLA. KVSL does not enter (TensorRT-LLM docs/source/blogs/tech_blog/blog21 at 8bd6e86,
    "Communication Volume Analysis"; shapes in _torch/modules/attention.py, `alltoall_helix`).
    """

    tokens: int
    heads: int
    value_dim: int
    gpus: int

    @property
    def message_bytes(self) -> int:
        """All that a rank has before, its own share included: tokens·heads·(2·value_dim + 8)."""
        return self.tokens * self.heads * (2 * self.value_dim + 8)

    @property
    def activation_bytes(self) -> float:
        """The own partial outputs read, as much written."""
        return 2.0 * self.message_bytes

    @property
    def link_bytes(self) -> float:
        """(cp−1)/cp of the message."""
        return self.message_bytes * (self.gpus - 1) / self.gpus

    def beyond(self, domain: int) -> float:
        """All other ranks get alike."""
        return _to_other_domains(self.link_bytes, self.gpus, domain)


@dataclass(frozen=True, slots=True)
class PointToPoint(_Exchange):
    """`elements` bf16 values from each rank of a pipeline stage to its peer in the next.

    `gpus` are those of the two stages together: where they do not fit into one domain the copy leaves it.
    """

    elements: int
    gpus: int

    @property
    def activation_bytes(self) -> float:
        """Read on one side, written on the other."""
        return _BF16_BYTES * self.elements

    @property
    def link_bytes(self) -> float:
        """All of it."""
        return _BF16_BYTES * self.elements

    def beyond(self, domain: int) -> float:
        """All of it or nothing."""
        return self.link_bytes if self.gpus > domain else 0.0


Collective: TypeAlias = (
    AllReduce | AllGather | ReduceScatter | ExpertDispatch | ExpertCombine | HelixAllToAll | PointToPoint
)

#: All of them, for `isinstance`.
COLLECTIVES = (AllReduce, AllGather, ReduceScatter, ExpertDispatch, ExpertCombine, HelixAllToAll, PointToPoint)


def ranks_visited(top_k: int, slots: int, gpus: int) -> float:
    """Other ranks that hold at least one of a token's experts, on average, all choices of experts alike.

    (n−1)·(1 − C(S − S/n, k) / C(S, k)) for k of S slots, S/n on each of n ranks: the chance that none of k choices,
    one after the other, falls on a rank. Beyond 1,024 choices they are taken many at a time.
    """
    elsewhere, none_there = slots - slots / gpus, 1.0
    choices = min(top_k, slots)
    steps = min(choices, _MOST_STEPS)
    width = choices / steps
    for step in range(steps):
        chosen = (step + 0.5) * width - 0.5
        none_there *= (max(0.0, elsewhere - chosen) / (slots - chosen)) ** width
    return (gpus - 1) * (1.0 - none_there)


def _between_domains(whole_bytes: float, gpus: int, domain: int) -> float:
    if gpus <= domain:
        return 0.0
    domains = -(-gpus // domain)
    return whole_bytes * (domains - 1) / domains / domain


def _to_other_domains(sent_bytes: float, gpus: int, domain: int) -> float:
    return sent_bytes * (gpus - domain) / (gpus - 1) if gpus > domain else 0.0
