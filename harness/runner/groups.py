"""Which cases one process measures: those that a claim compares, timed in turn, so that what disturbs meets all alike.

A group holds the steps of one study, system, level and phase that differ only in what a claim of the study moves. More
arms than one process holds are cut: first into one group per point of the claims' other axes, then, along the axis that
is left, into pieces as even as can be. Rows of different groups are never compared round by round.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.runner.plan import Plan, Step
from harness.spec.axes import Scalar
from harness.spec.expand import matches
from harness.spec.study import Study

#: Arms in one process: each holds weights and KV cache of its own on the device, and a round over many takes long.
MOST_ARMS = 8

#: Workload fields that the label of a workload tells.
_IN_LABEL = frozenset({"batch", "isl", "chunk", "kvsl", "draft_len", "osl", "concurrency"})

#: Coordinates that say of what kind a step is, and are no matter of degree.
_KINDS = frozenset({"phase", "series", "system"})


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a process loads before it measures."""

    key: str
    """Of the engine."""
    settings: Path
    """Folder of settings beside the engine."""
    ranks: int = 1
    """GPUs of one instance."""
    by_mpirun: bool = False
    """Whether mpirun starts a process for each of them, and the first leads."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process."""
    details: Mapping[str, Scalar] = field(default_factory=dict)
    """What is worth knowing of every row, under `how`."""


@dataclass(frozen=True, slots=True)
class ArmGroup:
    """Steps that one process measures in turn."""

    name: str
    """In words, unique in the run: `decode b 8 KVSL 4096`."""
    steps: tuple[Step, ...]
    engine: Loaded | None = None


def group_arms(plan: Plan, most: int = MOST_ARMS) -> list[ArmGroup]:
    """Group the steps of a plan that will be asked, in the plan's order."""
    studies = {study.name: study for study in plan.studies}
    steps = [step for step in plan.steps if step.will_run]
    groups = [
        piece
        for group in _gather(steps, lambda step: (step.planned.study, *_key(step, _axes(studies, step))))
        for piece in _cut(group, _axes(studies, group[0]), most)
    ]
    return _named(groups)


def group_by_engine(steps: Iterable[Step], key_of: Callable[[Step], str]) -> list[ArmGroup]:
    """Group steps by the engine that they need, for a backend whose process loads one; named after its key."""
    return [ArmGroup(key_of(group[0]), tuple(group)) for group in _gather(steps, key_of)]


def in_order(groups: Sequence[ArmGroup], replicate: int, seed: int) -> list[ArmGroup]:
    """The order of a replicate: as planned in the first, then another at random, the same for the same seed."""
    ordered = list(groups)
    if replicate:
        random.Random(f"{seed} {replicate}").shuffle(ordered)  # noqa: S311  # nothing secret about it
    return ordered


def _gather(steps: Iterable[Step], key_of: Callable[[Step], Hashable]) -> list[list[Step]]:
    found: dict[Hashable, list[Step]] = defaultdict(list)
    for step in steps:
        found[key_of(step)].append(step)
    return list(found.values())


def _place(step: Step) -> dict[str, Any]:
    planned = step.planned
    return {
        "phase": planned.case.workload.phase,
        "series": planned.series,
        **planned.coordinates,
        "system": planned.case.system,
    }


def _axes(studies: dict[str, Study], step: Step) -> tuple[str, ...]:
    """What claims about steps of this phase, series and system move; without any, every axis of the study."""
    study, place = studies[step.planned.study], _place(step)
    wanted = ((claim.axis, {k: v for k, v in claim.where.items() if k in _KINDS}) for claim in study.claims)
    claimed = [axis for axis, where in wanted if matches(where, place)]
    return tuple(dict.fromkeys(claimed or [axis for part in study.parts for axis in part.axes]))


def _key(step: Step, axes: tuple[str, ...]) -> tuple[Hashable, ...]:
    """Everything of a step's place but the axes. What one process cannot hold two of always counts."""
    planned = step.planned
    fixed = {name: value for name, value in _place(step).items() if name not in axes}
    return (axes, planned.level, planned.ops, planned.case.system, planned.case.workload.phase, tuple(fixed.items()))


def _cut(group: list[Step], axes: tuple[str, ...], most: int) -> list[list[Step]]:
    if len(group) <= most:
        return [group]
    if len(axes) > 1:
        first = axes[:1]
        return [piece for part in _gather(group, lambda step: _key(step, first)) for piece in _cut(part, first, most)]
    return [list(piece) for piece in even_pieces(group, most)]


def even_pieces(steps: Sequence[Step], most: int) -> list[tuple[Step, ...]]:
    """Cut into as few pieces of at most `most` steps as there can be, as even as can be."""
    pieces = -(-len(steps) // most)
    ends = [round(i * len(steps) / pieces) for i in range(pieces + 1)]
    return [tuple(steps[start:end]) for start, end in itertools.pairwise(ends)]


def _named(groups: list[list[Step]]) -> list[ArmGroup]:
    """Name groups by what all their steps share; the study and the system where that does not tell them apart."""
    several_studies = len({group[0].planned.study for group in groups}) > 1
    several_systems = len({group[0].planned.case.system for group in groups}) > 1
    names = []
    for group in groups:
        planned = group[0].planned
        before = f"{planned.study}: " if several_studies else ""
        names.append(before + _words(group) + (f" on {planned.case.system}" if several_systems else ""))
    total, seen = Counter(names), Counter[str]()
    made = []
    for name, group in zip(names, groups, strict=True):
        seen[name] += 1
        suffix = f", part {seen[name]} of {total[name]}" if total[name] > 1 else ""
        made.append(ArmGroup(name + suffix, tuple(group)))
    return made


def _words(group: list[Step]) -> str:
    places = [_place(step) for step in group]
    shared = {name: value for name, value in places[0].items() if all(one.get(name) == value for one in places)}
    labels = {step.planned.case.workload.label for step in group}
    work = group[0].planned.case.workload
    if len(labels) == 1:
        words = [labels.pop()]
        told = _IN_LABEL
    else:
        words, told = [work.phase], frozenset()
    words += [str(shared["series"])] if shared.get("series") else []
    hidden = {"system", "series", "phase", *told}
    words += [f"{name} {value}" for name, value in shared.items() if name not in hidden]
    return " ".join(words)
