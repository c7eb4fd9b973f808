"""The anchored level: what every later level of a series is held against.

It is the level of the first stable nights. It moves at an improvement that counts, and never at a fall, so that losses
that are each too small add up until they count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.analysis.history.levels import Levels, Segment
from harness.analysis.history.policy import Policy

#: A level counts as a step on the way to a change from this part of the limit on.
_ON_THE_WAY = 0.25

State = Literal["u", "r", "i", "s", "t"]


@dataclass(frozen=True, slots=True)
class Step:
    """A change of level among segments: logarithms, more is better."""

    kind: Literal["regression", "improvement", "recovery", "shift"]
    first: int
    """First segment off the level before."""
    settled: int
    """Segment that decides."""
    before: float
    after: float


@dataclass(slots=True)
class Walk:
    """What following the anchored level through the segments gives."""

    steps: list[Step] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    """Of each segment."""
    references: list[float] = field(default_factory=list)
    """The level that each segment is held against; of one that moves it, the new one."""
    level: float = 0.0
    """The anchored level at the end."""
    since: int = 0
    """Segment from which it holds."""

    @property
    def has_regressed(self) -> bool:
        """Whether the last segment is a regression."""
        return bool(self.states) and self.states[-1] == "r"


def percent(log_change: float, sign: int) -> float:
    """A change of the logarithm of goodness as % of the number itself; `sign` is -1 where less is better."""
    return 100 * math.expm1(sign * log_change)


def follow(
    levels: Levels, limit_pct: float, sign: int, policy: Policy, pinned: float | None = None, start: int = 0
) -> Walk:
    """Follow the anchored level through the segments of one environment.

    A change of level of at least `limit_pct` counts once it has lasted as many nights as the policy asks, each of
    which has to be off by half of it: two single nights that stand out are no level. `pinned` is a level (logarithm)
    that does not move at all, and that segments from `start` on are held against.
    """
    walk, segments = Walk(), levels.segments
    if pinned is None:
        _anchor(walk, segments, 0, limit_pct, sign, policy)
    else:
        walk.level, walk.since, walk.states = pinned, start, ["u"] * start
    index = len(walk.states)
    while True:
        walk.references += [walk.level] * (index - len(walk.references))
        if index == len(segments):
            return walk
        end = _same_side(segments, index, walk.level, limit_pct, sign)
        if end == index:
            _near(walk, segments, index, limit_pct, sign)
            index += 1
            continue
        direction = 1 if segments[index].level > walk.level else -1
        off = direction * (levels.logs[segments[index].start : segments[end - 1].end] - walk.level)
        if _longest([percent(one, 1) >= limit_pct / 2 for one in off.tolist()]) < policy.nights:
            walk.states += ["t"] * (end - index)
            index = end
        elif segments[index].level < walk.level:
            for at in range(index, end):
                _fall(walk, segments, at, limit_pct, sign)
            index = end
        else:
            _rise(walk, segments, index, limit_pct, sign, policy, moves=pinned is None)
            index = len(walk.states)


def _beyond(log_change: float, limit_pct: float, sign: int) -> bool:
    return abs(percent(log_change, sign)) >= limit_pct


def _longest(flags: Iterable[bool]) -> int:
    """Length of the longest run of true ones."""
    longest = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        longest = max(longest, run)
    return longest


def _same_side(segments: Sequence[Segment], start: int, level: float, limit_pct: float, sign: int) -> int:
    """End of the segments from `start` on that are all beyond the limit on one side; `start` where it is within."""
    end = start
    while end < len(segments):
        off = segments[end].level - level
        if not _beyond(off, limit_pct, sign) or (off > 0) != (segments[start].level > level):
            break
        end += 1
    return end


def _anchor(walk: Walk, segments: Sequence[Segment], start: int, limit_pct: float, sign: int, policy: Policy) -> None:
    """Take the level from segment `start` on: as many segments near it as make enough nights."""
    total, nights, at = 0.0, 0, start
    while at < len(segments) and nights < policy.history:
        one = segments[at]
        if nights and _beyond(one.level - total / nights, limit_pct, sign):
            break
        total, nights, at = total + one.level * one.nights, nights + one.nights, at + 1
    walk.level, walk.since = total / nights, start
    walk.states += ["u"] * (at - start)


def _near(walk: Walk, segments: Sequence[Segment], index: int, limit_pct: float, sign: int) -> None:
    """A segment within the limit: the level itself, or a shift that is too small; after a fall it is a recovery."""
    here, before = segments[index].level, segments[index - 1].level if index else walk.level
    off = _beyond(here - walk.level, limit_pct * _ON_THE_WAY, sign)
    if walk.has_regressed:
        walk.steps.append(Step("recovery", index, index, before, here))
    elif index and off:
        walk.steps.append(Step("shift", index, index, walk.level, here))
    walk.states.append("s" if off else "u")


def _start(walk: Walk, segments: Sequence[Segment], index: int, limit_pct: float, sign: int) -> int:
    """The first of the steps that lead in one direction to segment `index`."""
    direction = 1 if segments[index].level > walk.level else -1
    first = index
    while first > walk.since + 1 and walk.states[first - 1] in {"s", "t"}:
        before = (segments[first - 1].level - walk.level) * direction
        further = (segments[first].level - segments[first - 1].level) * direction
        if further <= 0 or before <= 0 or not _beyond(before, limit_pct * _ON_THE_WAY, sign):
            break
        first -= 1
    return first


def _fall(walk: Walk, segments: Sequence[Segment], index: int, limit_pct: float, sign: int) -> None:
    deeper = walk.has_regressed
    if not deeper or _beyond(segments[index].level - segments[index - 1].level, limit_pct, sign):
        first = index if deeper else _start(walk, segments, index, limit_pct, sign)
        walk.steps.append(Step("regression", first, index, walk.level, segments[index].level))
    walk.states.append("r")


def _rise(
    walk: Walk, segments: Sequence[Segment], index: int, limit_pct: float, sign: int, policy: Policy, *, moves: bool
) -> None:
    first = _start(walk, segments, index, limit_pct, sign)
    before = walk.level
    if moves:
        _anchor(walk, segments, index, limit_pct, sign, policy)
        walk.states[index] = "i"
    else:
        walk.states.append("i")
    walk.steps.append(Step("improvement", first, index, before, walk.level if moves else segments[index].level))
