"""Takes samples of several arms in turn: warm-up, then rounds in which every arm has its turn, in a fresh order.

What disturbs the machine for longer than a round meets all arms, so that their ratios within a round hardly change.
All arms stay to the end: rounds are complete, but for arms that cannot answer. Nothing is deleted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from harness.backends.base import Arm, ArmFacts, CannotAnswer, OpTime, Taken
from harness.backends.measurement import Measurement
from harness.runner.policy import Phase, SamplingPolicy
from harness.runner.stopping import StopReason, StopRule, next_look
from harness.runner.warmup import WarmUp

__all__ = ["WARM_UP", "Phase", "SamplingPolicy", "sample_rounds"]

#: The round that warm-up counts as.
WARM_UP = -1

Tell = Callable[[int, int, int], None]
"""Called before an arm's turn, and before its ops are timed: its number, its samples so far, and the round."""

Answer = tuple[int, "Measurement | CannotAnswer"]


def _say_nothing(_number: int, _samples: int, _round: int) -> None:
    pass


def sample_rounds(
    arms: Mapping[int, Arm],
    phases: Mapping[int, Phase],
    policy: SamplingPolicy,
    rng: Random,
    clock: Callable[[], float] = time.monotonic,
    tell: Tell = _say_nothing,
) -> Iterator[Answer]:
    """Warm up and sample arms by number, and yield what became of each.

    An arm that raises CannotAnswer is yielded at once and leaves, as does one that did not do the work asked for. The
    others go on until, at one look, each of them has a reason to stop, or `max_samples` or the budget ends; then their
    ops are timed. Reasons hold for the samples that are returned. At least one round is taken, whatever the budget.
    """
    group = _Group(arms, phases, policy, rng, clock, tell)
    yield from group.warm_up()
    yield from group.sample()
    yield from group.finish()


@dataclass(slots=True)
class _Playing:
    """One arm, and what it was seen to do."""

    arm: Arm
    warm_up: WarmUp
    rule: StopRule
    warmup_ms: list[float] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    windows_s: list[tuple[float, float]] = field(default_factory=list)
    spent_s: float = 0.0
    stop_reason: StopReason = "budget"

    def count(self, most: int) -> int:
        """Iterations of a turn: `most`, or more where the arm is better off with more."""
        return max(most, self.arm.facts.take)

    def measurement(self, facts: ArmFacts, op_times: tuple[OpTime, ...] = (), invalid: str = "") -> Measurement:
        drift = self.warm_up.drift(self.warmup_ms) if not invalid else None
        return Measurement(
            facts=facts,
            warmup_ms=tuple(self.warmup_ms),
            times_ms=tuple(self.times_ms),
            rounds=tuple(self.rounds),
            windows_s=tuple(self.windows_s),
            stop_reason="invalid" if invalid else self.stop_reason,
            warmup_drift_pct=drift.pct if drift else None,
            op_times=op_times,
            invalid=invalid,
        )


class _Group:
    """The arms still in play."""

    def __init__(
        self,
        arms: Mapping[int, Arm],
        phases: Mapping[int, Phase],
        policy: SamplingPolicy,
        rng: Random,
        clock: Callable[[], float],
        tell: Tell,
    ) -> None:
        self._playing = {
            number: _Playing(arm, WarmUp(policy, phases[number]), StopRule(policy)) for number, arm in arms.items()
        }
        self._policy, self._rng, self._clock, self._tell = policy, rng, clock, tell
        self._last: int | None = None

    def warm_up(self) -> Iterator[Answer]:
        """Turns for all arms that are not warm yet, until none is left or half of the budget is gone."""
        while cold := [number for number, one in self._playing.items() if not one.warm_up.is_over(one.warmup_ms)]:
            if self._budget_gone(share=0.5) and not any(self._below_floor(number) for number in cold):
                return
            yield from self._turns(cold, self._policy.take, WARM_UP)

    def sample(self) -> Iterator[Answer]:
        """Rounds until all arms have a reason to stop."""
        taken, look, rounds = 0, self._policy.min_samples, 0
        while self._playing:
            most = min(self._policy.take, self._policy.max_samples - taken)
            yield from self._turns(list(self._playing), most, rounds)
            taken = min((len(one.times_ms) for one in self._playing.values()), default=0)
            rounds += 1
            ends: StopReason | None = None
            if taken >= self._policy.max_samples:
                ends = "samples"
            elif self._budget_gone():
                ends = "budget"
            if ends is None and taken < look:
                continue
            look = next_look(taken)
            if self._all_stop(ends):
                return

    def finish(self) -> Iterator[Answer]:
        """Time the ops, which may disturb what comes after it, and hand back the measurements."""
        for number, one in self._playing.items():
            self._tell(number, len(one.times_ms), one.rounds[-1])
            facts = one.arm.facts
            try:
                ops = tuple(one.arm.op_times())
            except CannotAnswer as error:
                ops, facts = (), replace(facts, details={**facts.details, "op_times": error.reason})
            yield number, one.measurement(facts, ops)

    def _turns(self, numbers: list[int], most: int, round_number: int) -> Iterator[Answer]:
        for number in self._rng.sample(numbers, len(numbers)):
            one = self._playing[number]
            self._tell(number, len(one.times_ms), round_number)
            try:
                wrong = self._turn(number, one, one.count(most), round_number)
            except CannotAnswer as error:
                del self._playing[number]
                yield number, error
                continue
            if wrong:
                del self._playing[number]
                yield number, one.measurement(one.arm.facts, invalid=wrong)

    def _turn(self, number: int, one: _Playing, count: int, round_number: int) -> str:
        """Take `count` iterations; why they do not count, or nothing."""
        start = self._clock()
        taken = one.arm.take(count)
        end = self._clock()
        one.spent_s += end - start
        if round_number == WARM_UP:
            one.warmup_ms += taken.times_ms
        else:
            one.times_ms += taken.times_ms
            one.rounds += [round_number] * len(taken.times_ms)
            if self._last == number:  # Nothing else ran in between: still the same stretch.
                start = one.windows_s.pop()[0]
            one.windows_s.append((start, end))
            self._last = number
        return _what_is_wrong(taken, count)

    def _all_stop(self, ends: StopReason | None) -> bool:
        """Ask every arm; whether this was the last round."""
        reasons = {number: one.rule.reason(one.times_ms) or ends for number, one in self._playing.items()}
        if None in reasons.values():
            return False
        for number, reason in reasons.items():
            assert reason is not None
            self._playing[number].stop_reason = reason
        return True

    def _below_floor(self, number: int) -> bool:
        one = self._playing[number]
        return len(one.warmup_ms) < one.warm_up.floor

    def _budget_gone(self, share: float = 1.0) -> bool:
        spent_s = sum(one.spent_s for one in self._playing.values())
        return spent_s >= share * self._policy.budget_s * len(self._playing)


def _what_is_wrong(taken: Taken, count: int) -> str:
    if taken.invalid:
        return taken.invalid
    if len(taken.times_ms) != count:
        return f"asked for {count} iterations, {len(taken.times_ms)} were timed"
    for time_ms in taken.times_ms:
        if not (math.isfinite(time_ms) and time_ms > 0):
            return f"an iteration was timed at {time_ms} ms"
    return ""
