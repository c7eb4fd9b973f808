"""Which workloads one LLM instance can serve, so that an engine is loaded as seldom as possible.

An instance has one parallelism and one set of sizes: the largest batch, pass, sequence and KV cache of all its
workloads. Workloads share it unless they differ in what an instance fixes when it starts: the phase and its chunks
(decode fills its cache in chunks, a prefill workload says itself), draft tokens and how many of them are accepted, and
how tokens are routed to experts. Nor do they share it where they do not fit together: one with a large pass and one
with a large KV cache can each fit a GPU, and the largest of both not. A workload that fits its GPU in no company is in
no group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.cost.memory import MemoryVerdict, fits
from harness.engines.llm_args import OUTPUT_TOKENS
from harness.hardware import load_system
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode, Prefill, Serve

AnyWorkload = Prefill | Decode | Serve


@dataclass(frozen=True, slots=True)
class WorkloadGroup:
    """Workloads of one engine that one LLM instance serves, and the GPUs on which that holds."""

    parallelism: Parallelism
    workloads: tuple[AnyWorkload, ...]
    systems: tuple[str, ...]

    def serves(self, case: Case) -> bool:
        """Whether a case of the engine is one of the group."""
        return case.parallelism == self.parallelism and case.workload in self.workloads and case.system in self.systems


class Grouping(NamedTuple):
    """The groups of one engine, and the cases that fit their GPU in none, each with what it lacks."""

    groups: list[WorkloadGroup]
    too_large: list[tuple[Case, MemoryVerdict]]


@dataclass(slots=True)
class _Open:
    """A group being filled on one system."""

    workloads: list[AnyWorkload] = field(default_factory=list)
    kv_bytes: float = 0.0
    kv_budget_bytes: float = float("inf")

    def takes(self, workload: AnyWorkload, verdict: MemoryVerdict | None) -> bool:
        """Add the workload where the largest KV cache then still fits beside the largest pass, if that is asked."""
        if verdict:
            # The budget is what weights and the activations of the largest pass leave.
            kv_bytes = max(self.kv_bytes, verdict.kv_bytes)
            budget = min(self.kv_budget_bytes, verdict.kv_budget_bytes)
            if kv_bytes > budget:
                return False
            self.kv_bytes, self.kv_budget_bytes = kv_bytes, budget
        self.workloads.append(workload)
        return True


def workload_groups(cases: Iterable[Case], *, whole_model: bool = True) -> Grouping:
    """Group the workloads of cases that have one engine, in their order; equal groups of several GPUs are one.

    Each workload goes into the first group that takes it. Without `whole_model` single layers will run, which have room
    where a model has none, and memory is not looked at. Raises UsageError for a GPU that nobody knows, ValueError for
    a split that is impossible.
    """
    by_instance: dict[tuple[str, Parallelism, tuple[object, ...]], list[_Open]] = {}
    too_large = []
    for case in dict.fromkeys(cases):
        verdict = fits(_grown(case), load_system(case.system)) if whole_model else None
        if verdict and not verdict.fits:
            too_large.append((case, verdict))
            continue
        alike = by_instance.setdefault((case.system, case.parallelism, _fixed_at_start(case.workload)), [])
        if not any(group.takes(case.workload, verdict) for group in alike):
            alike.append(_Open())
            alike[-1].takes(case.workload, verdict)
    systems: dict[tuple[Parallelism, tuple[AnyWorkload, ...]], dict[str, None]] = {}
    for (system, split, _), alike in by_instance.items():
        for group in alike:
            systems.setdefault((split, tuple(group.workloads)), {})[system] = None
    groups = [WorkloadGroup(split, workloads, tuple(where)) for (split, workloads), where in systems.items()]
    return Grouping(groups, too_large)


def _grown(case: Case) -> Case:
    """The case when its sequences have generated all that an instance lets them."""
    if not isinstance(case.workload, Decode):
        return case
    longest = case.workload.kvsl + OUTPUT_TOKENS
    return case.model_copy(update={"workload": case.workload.model_copy(update={"kvsl": longest})})


def _fixed_at_start(workload: AnyWorkload) -> tuple[object, ...]:
    chunk = workload.chunk if isinstance(workload, Prefill) else None
    draft = (workload.draft_len, workload.accepted) if isinstance(workload, Decode) else (0, 0.0)
    return (workload.phase, chunk, *draft, workload.routing)
