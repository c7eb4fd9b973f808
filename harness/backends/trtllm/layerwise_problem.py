"""What of a case the layer-wise runner is asked: which layers, what batch and lengths, how tokens go to experts.

Facts about the runner: NVIDIA/TensorRT-LLM, tensorrt_llm/tools/layer_wise_benchmarks/runner.py at 9152836 and 020cbd8,
examples/layer_wise_benchmarks/README.md and run.py at f4faed1. Its layers are consecutive; its ranks are all of tp and
of ep; it replaces the routing of every layer that it runs, so that dense layers before those with experts are a part of
their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.options import Options
from harness.cost.decompose import decompose
from harness.hardware import load_system
from harness.spec.case import Case
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill

RunType = Literal["CTX", "GEN"]

#: Last-level caches that what one iteration reads is to fill, so that none of it is still there for the next.
AIMED_CACHES = 4


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive layers that run, and how many of the model's they stand for."""

    layers: tuple[int, ...]
    of: int
    balance_method: str
    balance_ratio: float | None = None

    @property
    def scale(self) -> float:
        """What their time is multiplied with."""
        return self.of / len(self.layers)


@dataclass(frozen=True, slots=True)
class Problem:
    """What the layers of one part are timed with."""

    part: Part
    run_type: RunType
    batch: int
    """Sequences of one rank."""
    query: int
    kv: int
    """Tokens that are in the cache of each sequence before."""


@dataclass(frozen=True, slots=True)
class LayerCase:
    """A case as the runner takes it: the times of its problems, each with the scale of its part, add up."""

    problems: tuple[Problem, ...]
    ranks: int
    """Processes, one for each GPU."""
    scaled_from: int | None
    """GPUs of the case where fewer stand for them."""

    @property
    def layers_run(self) -> int:
        """Different layers that run."""
        return sum(len(part.layers) for part in dict.fromkeys(one.part for one in self.problems))


def layer_case(case: Case, sequences: int, options: Options, architecture: str) -> LayerCase:
    """Return what the runner is asked for a case. Raises CannotAnswer for what it cannot be asked."""
    split, variant = case.parallelism, case.variant
    if split.pp > 1:
        raise CannotAnswer("the layer-wise runner has no pipeline stages; pp 1 can be measured")
    if variant.experts and (split.ep != split.tp or split.slots):
        raise CannotAnswer(
            "the layer-wise runner spreads experts over all ranks, without slots: ep = tp can be measured"
        )
    ranks = min(options.layerwise_gpus or split.tp, split.tp)
    scaled = split.tp if ranks < split.tp else None
    if scaled and architecture != "DeepseekV3ForCausalLM":
        # It divides n_routed_experts of the configuration, a name that other classes do not have.
        raise CannotAnswer(f"--scaled-from of the layer-wise runner takes DeepseekV3ForCausalLM, not {architecture}")
    parts = _parts(case, _balance(case, options), _layers_wanted(case, options))
    shapes = list(_shapes(case))
    run_type: RunType = "GEN" if isinstance(case.workload, Decode) else "CTX"
    return LayerCase(
        tuple(Problem(part, run_type, sequences, query, kv) for part in parts for query, kv in shapes), ranks, scaled
    )


def _balance(case: Case, options: Options) -> tuple[str, float | None]:
    if options.balance_method:
        return options.balance_method, options.balance_ratio
    if case.variant.experts and case.workload.routing != "balanced":
        raise CannotAnswer(
            f"the layer-wise runner knows no routing {case.workload.routing}; balance_method=ImbalancedExperts with a "
            "balance_ratio makes experts uneven in a way of its own"
        )
    return "Balanced", None


def _shapes(case: Case) -> list[tuple[int, int]]:
    """Query tokens and cached tokens of each sequence, of each pass."""
    work = case.workload
    if isinstance(work, Decode):
        return [(1 + work.draft_len, work.kvsl)]
    assert isinstance(work, Prefill)
    chunk = min(work.chunk or work.isl, work.isl)
    return [(min(chunk, work.isl - past), past) for past in range(0, work.isl, chunk)]


def _layers_wanted(case: Case, options: Options) -> int:
    if options.layers:
        return options.layers
    cache = load_system(case.system).l2_bytes or 0
    ops = decompose(case, "layer")
    read = sum(op.count * (op.kernel.weight_bytes + op.kernel.kv_bytes) for op in ops) / case.variant.layers
    return max(1, math.ceil(AIMED_CACHES * cache / read)) if read else 1


def _parts(case: Case, balance: tuple[str, float | None], wanted: int) -> list[Part]:
    variant = case.variant
    dense = variant.experts.dense_layers if variant.experts else variant.layers
    parts = []
    if dense:
        parts.append(Part(_window(variant, 0, dense, wanted), dense, "NotModified"))
    if dense < variant.layers:
        sparse = variant.layers - dense
        parts.append(Part(_window(variant, dense, variant.layers, wanted), sparse, *balance))
    return parts


def _window(variant: Variant, start: int, end: int, wanted: int) -> tuple[int, ...]:
    """The first layers from `start` on that have kinds of attention in the proportion of all of them up to `end`."""
    period = len(variant.attention) if len(set(variant.attention)) > 1 else 1
    if (end - start) % period:
        return tuple(range(start, end))
    return tuple(range(start, start + min(end - start, -(-wanted // period) * period)))
