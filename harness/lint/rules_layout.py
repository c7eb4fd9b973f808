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


@rule("stages-partition")
def stages_partition(s: Subject) -> Iterator[Problem]:
    """A partition holds every layer once."""
    parts, layers = s.split.pp_partition, s.variant.layers
    if parts is not None and sum(parts) != layers:
        why = f"its stages have {sum(parts)} layers together"
        even = f"pp_partition {join(stage_sizes(layers, s.split.pp))}" if layers >= s.split.pp else ""
        yield Problem("parallelism.pp_partition", join(parts), f"a sum of layers {layers}", why, even)


@rule("stages-uneven")
def stages_uneven(s: Subject) -> Iterator[Problem]:
    """Stages of different depth."""
    layers, pp, parts = s.variant.layers, s.split.pp, s.split.pp_partition
    sizes = stage_sizes(layers, pp, parts)
    if layers >= pp and sum(sizes) == layers and max(sizes) > min(sizes):
        slowest, mean = max(sizes), layers / pp
        why = f"the slowest stage has {slowest} layers for {mean:.4g} on average, {slowest / mean:.3f} times the mean"
        works = "no pp_partition" if not layers % pp else f"pp {join(n for n in range(1, 2 * pp) if not layers % n)}"
        yield Problem("layers", layers, f"the same on each of pp {pp} stages, not {join(sizes)}", why, works)
