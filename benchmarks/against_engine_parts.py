"""One phase by part, on both sides: which op of this project answers to which of the engine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from against_engine_cases import Question
from whole_models import exchanges

from harness.hardware import load_system
from harness.pricing.compose import CasePrice

_ATTENTION, _IN, _OUT = "attention", "qkv_proj, gate_up", "o_proj, down"
_EXPERTS, _DISPATCHED = "experts, router", "experts, router, dispatched"
_ELEMENTWISE, _PIPELINE = "norms, activation, embedding", "pipeline"
_HEAD, _HEAD_GATHER = "lm_head", "all-gather after lm_head"
_REDUCE, _GATHER, _EXCHANGE = "all-reduce", "all-gather, reduce-scatter", "dispatch, combine"

#: Ends of the names of this project's ops; longer ones come first.
_OURS = {
    "lm_head.all_gather": _HEAD_GATHER,
    ".all_gather": _GATHER,
    ".reduce_scatter": _GATHER,
    ".all_reduce": _REDUCE,
    ".dispatch": _EXCHANGE,
    ".combine": _EXCHANGE,
    "pipeline.send": _PIPELINE,
    ".attention": _ATTENTION,
    ".qkv_proj": _IN,
    ".gate_up": _IN,
    ".o_proj": _OUT,
    ".down": _OUT,
    ".experts": _EXPERTS,
    ".router": _EXPERTS,
    "lm_head": _HEAD,
    ".norms": _ELEMENTWISE,
    ".activation": _ELEMENTWISE,
    "final_norm": _ELEMENTWISE,
    "embedding": _ELEMENTWISE,
}
#: Names of the engine's ops, without the phase.
_ENGINES = {
    "attention": _ATTENTION,
    "qkv_gemm": _IN,
    "gate_ffn1_gemm": _IN,
    "proj_gemm": _OUT,
    "ffn2_gemm": _OUT,
    "moe": _EXPERTS,
    "router_gemm": _EXPERTS,
    "add_norm_1": _ELEMENTWISE,
    "add_norm_2": _ELEMENTWISE,
    "act_gate": _ELEMENTWISE,
    "embedding": _ELEMENTWISE,
    "logits_gemm": _HEAD,
    "embedding_ar": _REDUCE,
    "ar_1": _REDUCE,
    "ar_2": _REDUCE,
    "moe_dispatch": _EXCHANGE,
    "moe_combine": _EXCHANGE,
    "p2p": _PIPELINE,
}
#: What the engine calls all-reduces of a model with experts, and what moves tokens where there is no all-to-all.
_AROUND_EXPERTS = ("moe_pre_dispatch", "moe_post_dispatch")


@dataclass(frozen=True)
class Phase:
    """One phase of one question: both times, and both by part, in ms."""

    ours_ms: float
    engine_ms: float
    ours: Mapping[str, float]
    engine: Mapping[str, float]
    layers: int

    @classmethod
    def of(cls, question: Question, price: CasePrice, engine_ops: Mapping[str, float]) -> Phase:
        """From a price that is there and what the engine says of each op."""
        adp = question.parallelism.attention_dp
        ours = _summed((_refined(our_part(one.op.name), question), one.total_ms or 0.0) for one in price.ops)
        engine = _summed((_refined(engine_part(name, adp), question), time_ms) for name, time_ms in engine_ops.items())
        return cls(price.time_ms or 0.0, sum(engine_ops.values()), ours, engine, question.variant.layers)

    @property
    def percent(self) -> float:
        """This project less the engine, in % of the engine."""
        return 100 * (self.ours_ms / self.engine_ms - 1)

    @property
    def parts(self) -> set[str]:
        """Parts in which one of them spends time."""
        return {part for part, time_ms in (*self.ours.items(), *self.engine.items()) if time_ms}

    def part_percent(self, part: str) -> float:
        """This project less the engine in one part, in % of the engine's whole."""
        return 100 * self._less_ms(part) / self.engine_ms

    def part_us(self, part: str) -> float:
        """This project less the engine in one part, in µs for each layer."""
        return 1000 * self._less_ms(part) / self.layers

    def _less_ms(self, part: str) -> float:
        return self.ours.get(part, 0.0) - self.engine.get(part, 0.0)


def our_part(name: str) -> str:
    """The part of an op of this project."""
    return next(part for end, part in _OURS.items() if name.endswith(end))


def engine_part(name: str, attention_dp: bool) -> str:
    """The part of an op of the engine, named without the phase."""
    if name in _AROUND_EXPERTS:
        return _GATHER if attention_dp else _REDUCE
    return _ENGINES[name]


def _refined(part: str, question: Question) -> str:
    """The part, told apart where what the two do differently depends on the case."""
    variant, split = question.variant, question.parallelism
    if part == _EXPERTS and exchanges(variant, split):
        return _DISPATCHED
    if part == _OUT and variant.weights.attention == "fp8":
        return f"{part}, fp8"
    if part == _ELEMENTWISE:
        return f"{part}, {question.system}"
    if part == _PIPELINE:
        apart = 2 * split.stage_gpus > load_system(question.system).gpus_per_node
        return f"{part}, {'another' if apart else 'same'} node"
    return part


def _summed(times_ms: Iterable[tuple[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part, time_ms in times_ms:
        total[part] = total.get(part, 0.0) + time_ms
    return total
