"""Pipeline stages: the ops of each, how even they are, and how long passes in flight take.

    imbalance       slowest stage / mean stage
    makespan        passes follow each other through the stages: done(i, s) = max(done(i−1, s), done(i, s−1)) + t(i, s)
    bubble share    the part of stages · makespan in which a stage waits; for m equal passes through p equal stages
                    (p − 1) / (m + p − 1) (GPipe, arXiv 1811.06965, section 2.3)
    decode period   with m groups of sequences in flight a token of each takes max(sum of stages, m · slowest stage)

A pass is a microbatch or a chunk of prompts. Times are anything additive: milliseconds of a pricer, FLOPs, layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.cost.decompose import PhaseLevel, Section, case_passes, section_ops
from harness.cost.kv_cache import stage_sizes
from harness.cost.ops import Op
from harness.spec.case import Case


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage: its layers, and the ops of one of its ranks in each pass of the phase."""

    first_layer: int
    layers: int
    passes: tuple[tuple[Op, ...], ...]

    @property
    def ops(self) -> list[Op]:
        """All passes, one after the other."""
        return [op for one in self.passes for op in one]


def pipeline(case: Case, level: PhaseLevel = "model") -> tuple[Stage, ...]:
    """Return the stages of a case, first to last; without pp the one stage has all ops.

    A hand-over belongs to the stage that sends. Raises ValueError as `decompose` does.
    """
    runs = list(case_passes(case))
    split, stages, first = case.parallelism, [], 0
    sizes = stage_sizes(case.variant.layers, split.pp, split.pp_partition)
    for index, layers in enumerate(sizes):
        final = index == len(sizes) - 1
        section = Section(first, layers, embeds=index == 0, heads=final, sends=0 if final else 1)
        ops = tuple(tuple(section_ops(run, split, section, level)) for run in runs)
        stages.append(Stage(first, layers, ops))
        first += layers
    return tuple(stages)


def stage_ops(case: Case, stage: int, level: PhaseLevel = "model") -> list[Op]:
    """The ops of one stage, counted from 0."""
    return pipeline(case, level)[stage].ops


def imbalance(stage_times: Sequence[float]) -> float:
    """Slowest / mean: what the pipeline loses to uneven stages, 1 for even ones."""
    return max(stage_times) * len(stage_times) / sum(stage_times)


def makespan(times: Sequence[Sequence[float]]) -> float:
    """Time until the last pass leaves the last stage; `times[i][s]` is that of pass i in stage s."""
    done = [0.0] * len(times[0])
    for one in times:
        left = 0.0
        for stage, time in enumerate(one):
            left = done[stage] = max(done[stage], left) + time
    return done[-1]


def bubble_share(times: Sequence[Sequence[float]]) -> float:
    """Share of stages · makespan in which a stage waits, filling and draining included."""
    return 1.0 - sum(map(sum, times)) / (len(times[0]) * makespan(times))


def decode_period(stage_times: Sequence[float], groups: int) -> float:
    """Time from token to token of a group with `groups` equal groups of sequences in flight.

    A group's next token starts at the first stage when its last one has left the last: the stages are full once
    `groups` times the slowest stage exceeds their sum.
    """
    return max(sum(stage_times), groups * max(stage_times))


def decode_bubble_share(stage_times: Sequence[float], groups: int) -> float:
    """Share of a decode period in which a stage waits, on average over the stages."""
    return 1.0 - groups * sum(stage_times) / (len(stage_times) * decode_period(stage_times, groups))
