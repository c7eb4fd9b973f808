"""`harness.runner.sampling`: arms in turn, round by round, and what is said of each."""

from __future__ import annotations

import importlib
from dataclasses import replace
from itertools import pairwise, repeat
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replays import COLD, Failing, Replay, sampled

from harness.backends.base import CannotAnswer, OpTime, Taken
from harness.backends.measurement import Measurement
from harness.errors import UsageError
from harness.runner.sampling import WARM_UP, SamplingPolicy, sample_rounds


def noise(seed, spread=0.003, count=400):
    return (1 + spread * np.random.default_rng(seed).normal(size=count)).tolist()


def play(arms, policy, seed=0, phase="decode", **options):
    options = {"clock": lambda: 0.0, **options}
    return dict(sample_rounds(arms, dict.fromkeys(arms, phase), policy, Random(seed), **options))


def test_one_arm_from_beginning_to_end():
    times = noise(1)
    (measurement,) = play({4: Replay(times)}, SamplingPolicy()).values()
    assert measurement.warmup_ms == tuple(times[:20])
    assert measurement.times_ms == tuple(times[20:50])
    assert measurement.rounds == tuple(range(30))
    assert measurement.stop_reason == "precise"
    assert abs(measurement.warmup_drift_pct) < 0.5
    assert (measurement.facts.layers_run, measurement.op_times) == (2, (OpTime("attention", 12.0),))
    assert Measurement.from_data(measurement.to_data()) == measurement


def test_all_arms_are_warm_before_the_first_round():
    log: list[tuple[int, int]] = []
    cold = [3.0 - 0.05 * step for step in range(40)] + noise(2)
    arms = {0: Replay(noise(1)), 1: Replay(cold)}
    found = play(arms, SamplingPolicy(), tell=lambda number, _samples, round_: log.append((number, round_)))
    assert len(found[0].warmup_ms) == 20
    assert len(found[1].warmup_ms) > 40
    warm = [number for number, round_ in log if round_ == WARM_UP]
    assert [round_ for _, round_ in log[: len(warm)]] == [WARM_UP] * len(warm)
    # In turn, until the first one is warm.
    assert all(set(warm[turn : turn + 2]) == {0, 1} for turn in range(0, 40, 2))
    assert set(warm[40:]) == {1}


def test_a_precise_arm_stays_until_the_others_are_done():
    found = play({0: Replay(noise(1)), 1: Replay(noise(2, 0.02))}, SamplingPolicy(**COLD))
    assert [found[number].stop_reason for number in (0, 1)] == ["precise", "precise"]
    assert found[0].rounds == found[1].rounds
    assert len(found[0].times_ms) > 60


def test_samples_end_at_the_most_whatever_a_turn_takes():
    found = play({0: Replay(noise(1, 0.1)), 1: Replay(noise(2))}, SamplingPolicy(**COLD, max_samples=50, take=7))
    assert [len(one.times_ms) for one in found.values()] == [50, 50]
    assert {number: one.stop_reason for number, one in found.items()} == {0: "samples", 1: "precise"}
    assert found[0].rounds[-2:] == (6, 7)


def test_an_arm_takes_together_what_is_best_taken_together_and_rounds_stay_pairs():
    class Bursts(Replay):
        def __init__(self, times):
            super().__init__(times)
            self.facts = replace(self.facts, take=16)

    found = play({0: Replay(noise(1)), 1: Bursts(noise(2, count=4000))}, SamplingPolicy(**COLD, max_samples=30))
    assert [len(one.times_ms) for one in found.values()] == [30, 16 * 30]
    assert set(found[0].rounds) == set(found[1].rounds)
    assert found[1].rounds[:17] == (0,) * 16 + (1,)


class Ticking:
    """A clock that an arm moves by the time its iterations take."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slow(Replay):
    def __init__(self, times, clock, iteration_s):
        super().__init__(times)
        self._clock, self._iteration_s = clock, iteration_s

    def take(self, count: int) -> Taken:
        self._clock.now_s += count * self._iteration_s
        return super().take(count)


def test_arms_share_their_budgets_so_that_rounds_stay_complete():
    clock = Ticking()
    arms = {0: Slow(noise(1, 0.1), clock, 1.0), 1: Slow(noise(2, 0.1), clock, 3.0)}
    found = play(arms, SamplingPolicy(**COLD, budget_s=40.0), clock=clock)
    # A round takes 4 s, and there are 2 x 40 s.
    assert [(len(one.times_ms), one.stop_reason) for one in found.values()] == [(20, "budget")] * 2
    assert sum(end - start for one in found.values() for start, end in one.windows_s) == 80.0


def test_warm_up_takes_its_floor_and_no_more_than_half_of_the_budget():
    clock = Ticking()
    cold = [9.0 - 0.01 * step for step in range(400)]
    found = play({0: Slow(cold, clock, 1.0)}, SamplingPolicy(budget_s=60.0), clock=clock)[0]
    assert (len(found.warmup_ms), len(found.times_ms), found.stop_reason) == (30, 30, "budget")
    assert found.warmup_drift_pct < -0.5
    found = play({0: Slow(cold, clock, 1.0)}, SamplingPolicy(budget_s=5.0), clock=clock)[0]
    assert (len(found.warmup_ms), len(found.times_ms), found.stop_reason) == (20, 1, "budget")


def test_windows_hold_the_samples_and_nothing_else():
    clock = Ticking()
    arms = {number: Slow(noise(number), clock, 0.25) for number in range(3)}
    found = play(arms, SamplingPolicy(**COLD), clock=clock)
    windows = sorted(window for one in found.values() for window in one.windows_s)
    assert windows[0][0] == 0.0
    assert all(end == start for (_, end), (start, _) in pairwise(windows))
    for one in found.values():
        assert sum(end - start for start, end in one.windows_s) == 0.25 * len(one.times_ms)
    alone = play({0: Slow(noise(0), clock, 0.25)}, SamplingPolicy(**COLD), clock=clock)[0]
    assert len(alone.windows_s) == 1


def test_an_arm_that_cannot_answer_leaves_and_the_others_go_on():
    arms = {0: Replay(noise(0)), 1: Failing(noise(1), answers=10), 2: Replay(noise(2))}
    answers = list(
        sample_rounds(arms, dict.fromkeys(arms, "decode"), SamplingPolicy(**COLD, max_samples=30), Random(0))
    )
    assert [number for number, _ in answers] == [1, 0, 2]
    assert isinstance(answers[0][1], CannotAnswer)
    assert answers[0][1].status == "oom"
    assert [len(one.times_ms) for _, one in answers[1:]] == [30, 30]


def test_nothing_is_left_to_do_when_no_arm_answers():
    found = play({0: Failing([], answers=0), 1: Failing(noise(1), answers=25)}, SamplingPolicy())
    assert {type(one) for one in found.values()} == {CannotAnswer}


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        (Taken((1.0,), invalid="the GPU changed its clock"), "the GPU changed its clock"),
        (Taken((0.0,)), "an iteration was timed at 0.0 ms"),
        (Taken((float("nan"),)), "an iteration was timed at nan ms"),
        (Taken((1.0, 1.0)), "asked for 1 iterations, 2 were timed"),
    ],
)
def test_work_that_was_not_done_ends_the_arm_as_invalid(taken, words):
    class Wrong(Replay):
        turns = 0

        def take(self, count: int) -> Taken:
            self.turns += 1
            return taken if self.turns == 5 else super().take(count)

    found = play({0: Wrong(noise(0)), 1: Replay(noise(1))}, SamplingPolicy(**COLD))
    assert (found[0].invalid, found[0].stop_reason) == (words, "invalid")
    assert found[0].times_ms[:4] == tuple(noise(0)[:4])
    assert (found[1].invalid, found[1].stop_reason) == ("", "precise")


def test_ops_that_cannot_be_timed_cost_no_sample():
    class Opaque(Replay):
        def op_times(self) -> list[OpTime]:
            raise CannotAnswer("no room for the ops")

    (found,) = play({0: Opaque(noise(0))}, SamplingPolicy(**COLD)).values()
    assert (found.op_times, found.stop_reason) == ((), "precise")
    assert found.facts.details == {"dtype": "fp32", "op_times": "no room for the ops"}


def test_every_turn_is_told_beforehand():
    told = []
    play({3: Replay(noise(0))}, SamplingPolicy(warmup_decode=3, max_samples=30), tell=lambda *turn: told.append(turn))
    assert told == [(3, 0, WARM_UP)] * 3 + [(3, samples, samples) for samples in range(30)] + [(3, 30, 29)]


@st.composite
def groups(draw):
    numbers = draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=8, unique=True))
    return numbers, draw(st.integers(0, 2**32)), draw(st.integers(1, 3))


def turns(numbers, seed, take):
    """Who took its turn when, and what came of it."""
    log: list[int] = []
    policy = SamplingPolicy(**COLD, take=take, max_samples=30)
    return log, play({number: Replay(noise(number, 0.02), number, log) for number in numbers}, policy, seed)


@given(groups())
def test_every_round_holds_every_arm_once_and_pairs_are_complete(group):
    numbers, _, take = group
    log, found = turns(*group)
    rounds = [log[start : start + len(numbers)] for start in range(0, len(log), len(numbers))]
    assert all(sorted(one) == sorted(numbers) for one in rounds)
    assert len({one.rounds for one in found.values()}) == 1
    assert found[numbers[0]].rounds == tuple(np.repeat(range(len(rounds)), take)[: len(found[numbers[0]].times_ms)])
    for number, one in found.items():
        assert one.times_ms == tuple(noise(number, 0.02)[: len(one.times_ms)])


@given(groups())
def test_one_seed_replays_and_orders_vary(group):
    numbers, seed, take = group
    log, found = turns(*group)
    assert (log, found) == turns(numbers, seed, take)
    if len(numbers) > 1 and take == 1:
        orders = {tuple(log[start : start + len(numbers)]) for start in range(0, len(log), len(numbers))}
        assert len(orders) > 1


@given(groups(), st.integers(0, 40))
def test_rounds_after_an_arm_left_hold_all_the_others(group, answers):
    numbers, seed, _ = group
    log: list[int] = []
    arms = {number: Replay(noise(number), number, log) for number in numbers[1:]}
    arms[numbers[0]] = Failing(noise(1), answers, numbers[0], log)
    found = play(arms, SamplingPolicy(**COLD, min_samples=30, max_samples=30), seed)
    assert isinstance(found[numbers[0]], CannotAnswer) == (answers < 30)
    assert [log.count(number) for number in numbers[1:]] == [30] * (len(numbers) - 1)
    assert log.count(numbers[0]) == min(answers, 30)


def test_every_arm_comes_first_about_equally_often():
    log, _ = turns(range(4), 1, 1)
    firsts = [log[start] for start in range(0, len(log), 4)]
    assert all(5 <= firsts.count(number) <= 30 for number in range(4))


def test_an_impossible_policy_is_refused_with_all_that_is_wrong():
    with pytest.raises(UsageError) as caught:
        SamplingPolicy(min_samples=50, max_samples=40, take=0, target_pct=0.0, max_warmup=10)
    assert caught.value.findings == (
        "take 0: must be at least 1",
        "target_pct 0.0: must be a number above 0",
        "max_samples 40: must be at least min_samples, 50",
        "max_warmup 10: must be at least warmup_decode and warmup_prefill",
    )


def test_a_constant_time_is_precise():
    assert sampled(repeat(2.0)).times_ms == (2.0,) * 30


@pytest.fixture(scope="module")
def benchmark():
    """`benchmarks/sampling.py`; `benchmarks` is a plain folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
        yield importlib.import_module("sampling"), importlib.import_module("sampling_traces")


def test_the_benchmark_knows_the_medians_of_what_it_draws(benchmark):
    _, traces = benchmark
    for trace in traces.steady():
        drawn = np.concatenate([trace.draw(np.random.default_rng(seed), 2000) for seed in range(50)])
        # In ranks, so that one bound does for all, and some times are equal.
        assert np.mean(drawn < trace.median) - 0.03 < 0.5 < np.mean(drawn <= trace.median) + 0.03, trace.name


def test_the_benchmark_reaches_its_bars_and_says_which_are_missed(benchmark, capsys):
    sampling, traces = benchmark
    rows = [sampling.replay(trace, 100) for trace in (traces.normal(1.0), traces.recorded("gemm"))]
    assert [row.reasons_pct.get("precise", 0) for row in rows] == [100.0, 0.0]
    assert 30 <= rows[0].to_target < 100
    assert sampling.missed(rows[:1]) == []
    (found,) = sampling.missed(rows[1:])
    assert found == "the median trace needs inf samples to reach the target, not fewer than 200"
    sampling.print_rows(rows)
    assert "recorded: gemm" in capsys.readouterr().out
