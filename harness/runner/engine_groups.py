"""Groups of arms for a backend that loads an engine: everything that one engine with one set of settings serves.

A process loads it once in a replicate and takes samples of all its cases in turn. Cases of different engines are never
in one process, so what a claim compares is interleaved from process to process: the order of the groups is another in
every replicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.runner.engine_needs import MODEL
from harness.runner.groups import MOST_ARMS, ArmGroup, Loaded, even_pieces, group_by_engine
from harness.runner.limits import Limits
from harness.runner.plan import Step
from harness.spec.axes import Scalar
from harness.spec.case import Case
from harness.spec.workload import Decode

#: Prompt tokens a second at which a KV cache is filled at least; several times slower than large models prefill.
FILL_TOKENS_PER_S = 1000.0
#: What every further rank may add to getting ready.
RANK_S = 60.0


@dataclass(frozen=True, slots=True)
class EngineHere:
    """Settings of an engine in the store, and what a process that loads them is given and says of itself."""

    key: str
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Scalar] = field(default_factory=dict)


def engine_arms(steps: Sequence[Step], here: Mapping[int, EngineHere], launcher: str) -> list[ArmGroup]:
    """Group steps by engine, settings and level; `here` holds those of each by number. Names are unique.

    At level `model` an engine serves any number of arms, as none of them holds anything on the device. Layers hold a KV
    cache for each arm, so that there are `MOST_ARMS` in a process at most.
    """
    found = group_by_engine(steps, lambda step: f"{here[step.number].folder} {step.planned.level}")
    groups = []
    for group in found:
        first = group.steps[0].planned
        most = len(group.steps) if first.level == MODEL else MOST_ARMS
        ranks = first.case.parallelism.world_size
        loaded = _loaded(here[group.steps[0].number], ranks, launcher if first.level == MODEL else "spawn")
        groups += [ArmGroup(_words(group.steps), piece, loaded) for piece in even_pieces(group.steps, most)]
    return _unique(groups)


def _loaded(one: EngineHere, ranks: int, launcher: str) -> Loaded:
    environment = dict(one.environment)
    return Loaded(one.key, one.folder, ranks, launcher == "mpirun" and ranks > 1, environment, dict(one.details))


def _words(steps: Sequence[Step]) -> str:
    """Variant, split and phase; the level where it is that of whole models, which says what an arm is."""
    planned = steps[0].planned
    names = dict.fromkeys(step.planned.case.variant.name for step in steps)
    more = f" (+{len(names) - 1})" if len(names) > 1 else ""
    split = planned.case.parallelism
    split_words = [] if split.world_size == 1 else [split.label]
    return ", ".join([f"{planned.level} {planned.case.workload.phase} of {next(iter(names))}{more}", *split_words])


def _unique(groups: Sequence[ArmGroup]) -> list[ArmGroup]:
    names = [group.name for group in groups]
    made, seen = [], dict.fromkeys(names, 0)
    for group in groups:
        seen[group.name] += 1
        total = names.count(group.name)
        part = f", part {seen[group.name]} of {total}" if total > 1 else ""
        made.append(replace(group, name=group.name + part))
    return made


def limits_for(limits: Limits, group: ArmGroup) -> Limits:
    """Longer limits where ranks have to find each other, and where a silent call fills a long KV cache first."""
    if not group.engine:
        return limits
    ranks_s = RANK_S * (group.engine.ranks - 1)
    tokens = [_tokens(step.planned.case) for step in group.steps if step.planned.level == MODEL]
    fill_s = max(tokens, default=0) / FILL_TOKENS_PER_S
    return replace(
        limits,
        startup_s=limits.startup_s + ranks_s,
        arm_s=limits.arm_s + ranks_s + fill_s,
        idle_s=limits.idle_s + fill_s,
    )


def _tokens(case: Case) -> int:
    work = case.workload
    return work.batch * (work.kvsl if isinstance(work, Decode) else work.isl)
