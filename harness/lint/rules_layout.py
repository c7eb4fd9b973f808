"""Rules on the layout of ranks: work for every rank, and layers for every stage."""

from __future__ import annotations

from collections.abc import Iterator

from harness.cost.kv_cache import stage_sizes
from harness.lint.finding import Problem, join
from harness.lint.registry import rule
from harness.lint.subject import Subject


@rule("idle-ranks")
def idle_ranks(s: Subject) -> Iterator[Problem]:
    """Fewer sequences than attention data-parallel ranks."""
    if s.workload and s.workload.batch < s.split.dp:
        idle = s.split.dp - s.workload.batch
        field = "workload.concurrency" if s.workload.phase == "serve" else "workload.batch"
        why = f"{idle} of {s.split.dp} attention data-parallel ranks have no sequence and only wait"
        yield Problem(field, s.workload.batch, f"at least dp {s.split.dp}", why, f"{field} {s.split.dp}")


@rule("stages-empty")
def stages_empty(s: Subject) -> Iterator[Problem]:
    """Layers < pp."""
    if s.variant.layers < s.split.pp:
        why = "a pipeline stage would have no layer"
        yield Problem("parallelism.pp", s.split.pp, f"at most layers {s.variant.layers}", why, f"pp {s.variant.layers}")


@rule("stages-uneven")
def stages_uneven(s: Subject) -> Iterator[Problem]:
    """Layers % pp."""
    layers, pp = s.variant.layers, s.split.pp
    if layers > pp and layers % pp:
        slowest, mean = max(stage_sizes(layers, pp)), layers / pp
        why = f"the slowest stage has {slowest} layers for {mean:.4g} on average, {slowest / mean:.3f} times the mean"
        works = f"pp {join(n for n in range(1, 2 * pp) if not layers % n)}"
        yield Problem("layers", layers, f"a multiple of pp {pp}", why, works)
