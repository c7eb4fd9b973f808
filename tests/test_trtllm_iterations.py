"""Which rows of the executor are steps of the workload: worked through by hand, and against a naive reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.backends.trtllm.iterations import SETTLE, Iteration, decode_steps, prefill_steps

BATCH = 8


def decode_rows(
    times_ms: Sequence[float], *, batch: int = BATCH, first: int = 2, **facts: float | bool
) -> list[Iteration]:
    """A prefill and then decode steps with these device times, as records with gpuForwardTimeMS."""
    start = Iteration(number=first - 1, contexts=batch, generations=0, context_tokens=batch * 100, gpu_forward_ms=50.0)
    steps = [
        Iteration(number=first + i, contexts=0, generations=batch, gpu_forward_ms=time_ms)
        for i, time_ms in enumerate(times_ms)
    ]
    return [start, *steps]


def lagging(rows: Sequence[Iteration], first_ms: float | None = None) -> list[Iteration]:
    """The same rows where the device time is that of the row before."""
    known = [row.gpu_forward_ms for row in rows]
    before = [first_ms, *known[:-1]]
    return [replace(row, gpu_forward_ms=None, previous_device_ms=ms) for row, ms in zip(rows, before, strict=True)]


def serial(rows: Sequence[Iteration]) -> list[Iteration]:
    """The same rows of an executor whose iterations do not overlap."""
    return [replace(row, gpu_forward_ms=None, latency_ms=row.gpu_forward_ms, overlap=False) for row in rows]


STEPS = [9.0, 8.0, 8.0, 8.0, 8.0, 7.1, 7.2, 7.3, 7.4, 6.9]
FOUND = (7.1, 7.2, 7.3, 7.4)  # five settle, the last has no successor


@pytest.mark.parametrize(
    ("form", "source"),
    [
        (list, "gpuForwardTimeMS"),
        (lagging, "prevDeviceStepTimeMS of the next iteration"),
        (serial, "iterLatencyMS without overlap"),
    ],
)
def test_every_figure_gives_the_same_steps(form: Callable[[list[Iteration]], list[Iteration]], source: str) -> None:
    found = decode_steps(form(decode_rows(STEPS)), BATCH, prompt_tokens=100)
    assert found.problem == ""
    assert found.times_ms == FOUND
    assert found.time_source == source
    assert found.dropped == {"has contexts": 1, "settling": SETTLE, "before a change of the batch": 1}
    # The sixth to ninth step: 100 tokens of prompt and 6 to 9 that were generated.
    assert found.kv_length_mean == 107.5


def test_a_naive_reading_of_the_same_rows_is_wrong() -> None:
    """A first iteration of 30 s, a lag of one, padding of graphs, and a batch that forms late."""
    true_ms = 7.0
    early = [Iteration(number=1, contexts=3, generations=0, context_tokens=300, gpu_forward_ms=30_000.0)]
    forming = [
        Iteration(number=2, contexts=5, generations=3, context_tokens=500, gpu_forward_ms=60.0),
        *(Iteration(number=3 + i, contexts=0, generations=BATCH, gpu_forward_ms=true_ms) for i in range(20)),
        *(Iteration(number=23 + i, contexts=0, generations=3, gpu_forward_ms=5.0) for i in range(30)),
    ]
    rows = lagging([*early, *forming])
    padded = [row.previous_device_ms for row in rows if row.generations and row.previous_device_ms]  # 3 padded to 8
    assert fmean(padded) == 595.0
    assert median(padded) == 5.0
    unshifted = [row.previous_device_ms for row in rows if (row.contexts, row.generations) == (0, BATCH)]
    assert unshifted[0] == 60.0
    found = decode_steps(rows, BATCH, prompt_tokens=100)
    assert found.times_ms == (true_ms,) * (20 - SETTLE - 1)


def test_times_that_change_at_each_step_show_the_lag() -> None:
    times = [float(100 + i) for i in range(12)]
    rows = lagging(decode_rows(times))
    naive = [row.previous_device_ms for row in rows[1 + SETTLE : -1]]
    found = decode_steps(rows, BATCH, 100)
    assert found.times_ms == tuple(times[SETTLE:-1])
    assert naive == times[SETTLE - 1 : -2]


def test_a_change_of_the_batch_ends_the_steps_and_settles_anew() -> None:
    one = decode_rows([7.0] * 10)
    other = decode_rows([8.0] * 10, first=len(one) + 2)
    found = decode_steps([*one, *other], BATCH, 100)
    assert found.times_ms == (7.0,) * 4 + (8.0,) * 4


def test_smaller_batches_are_no_steps_of_this_one() -> None:
    found = decode_steps(decode_rows(STEPS, batch=4), BATCH, 100)
    assert found.times_ms == ()
    assert found.dropped["batch not complete"] == len(STEPS)


def test_the_wait_of_an_idle_loop_is_no_step() -> None:
    """Numbers of NVIDIA's performance CI: a loop without a request took 1450.6 ms between steps of 7.3 ms."""
    busy = decode_rows([7.3] * 9)
    idle = Iteration(number=11, contexts=0, generations=0, gpu_forward_ms=1450.6)
    rows = lagging([*busy, idle, *decode_rows([7.3] * 9, first=13)])
    assert max(row.previous_device_ms or 0 for row in rows) == 1450.6
    assert set(decode_steps(rows, BATCH, 100).times_ms) == {7.3}


def test_without_overlap_the_record_of_the_device_lags_by_more_and_is_not_used() -> None:
    rows = [
        replace(row, gpu_forward_ms=None, previous_device_ms=99.0, latency_ms=row.gpu_forward_ms, overlap=False)
        for row in decode_rows(STEPS)
    ]
    found = decode_steps(rows, BATCH, 100)
    assert (found.times_ms, found.time_source) == (FOUND, "iterLatencyMS without overlap")


def test_the_latency_of_overlapping_iterations_is_no_step() -> None:
    rows = [replace(row, gpu_forward_ms=None, latency_ms=14.0, overlap=True) for row in decode_rows(STEPS)]
    found = decode_steps(rows, BATCH, 100)
    assert found.times_ms == ()
    assert "disable_overlap_scheduler: true" in found.problem


def test_the_executor_may_count_the_tokens_itself() -> None:
    rows = [replace(row, cached_kv_tokens=BATCH * 4096) for row in decode_rows(STEPS)]
    assert decode_steps(rows, BATCH, 100).kv_length_mean == 4096.0
    drafted = decode_steps(decode_rows(STEPS), BATCH, 100, tokens_per_step=2.0)
    assert drafted.kv_length_mean == 115.0


def test_the_slowest_rank_counts() -> None:
    ranks = [
        replace(row, rank=rank, gpu_forward_ms=(row.gpu_forward_ms or 0) + (0.5 if row.number % 2 == rank else 0.0))
        for rank in (0, 1)
        for row in decode_rows(STEPS)
    ]
    found = decode_steps(ranks, BATCH, 100)
    assert found.times_ms == tuple(time + 0.5 for time in FOUND)


def test_a_step_that_a_rank_does_not_report_is_none() -> None:
    rows = [replace(row, rank=rank) for rank in (0, 1) for row in decode_rows([7.0] * 30)]
    rows[40] = replace(rows[40], gpu_forward_ms=None)
    found = decode_steps(rows, BATCH, 100)
    assert len(found.times_ms) == 23
    assert found.dropped["not reported by every rank"] == 1


# --- what makes rows useless


def test_lost_statistics_are_noticed_wherever_they_are_missing() -> None:
    rows = decode_rows([7.0] * 40)
    assert decode_steps([*rows[:10], *rows[13:]], BATCH, 100).problem.startswith(
        "lost statistics: 3 iterations of rank 0"
    )
    assert "max_stats_len" in prefill_steps([*rows[:10], *rows[13:]], BATCH, 100).problem
    assert decode_steps(rows[10:], BATCH, 100).problem == ""  # what is missing before the first row was not asked for
    said = decode_steps([*rows[:-1], replace(rows[-1], dropped_records=2)], BATCH, 100)
    assert said.problem.startswith("lost statistics: 2 ")


def test_an_idle_loop_makes_no_record_and_none_is_lost() -> None:
    one = decode_rows([7.0] * 10)
    one[-1] = replace(one[-1], completed=BATCH)
    other = decode_rows([7.0] * 10, first=one[-1].number + 4)
    assert decode_steps([*one, *other], BATCH, 100).problem == ""
    one[-1] = replace(one[-1], completed=BATCH - 1)
    assert decode_steps([*one, *other], BATCH, 100).problem.startswith("lost statistics: 2 ")


def test_a_record_of_the_start_does_not_count_as_a_second_one() -> None:
    start = Iteration(number=1, contexts=0, generations=0)
    assert decode_steps([start, *decode_rows(STEPS)], BATCH, 100).times_ms == FOUND
    twice = decode_rows(STEPS)
    assert "twice" in decode_steps([twice[4], *twice], BATCH, 100).problem


def test_a_prompt_that_was_in_the_cache_is_no_work() -> None:
    rows = decode_rows(STEPS)
    rows[3] = replace(rows[3], reused_blocks=12)
    assert "12 blocks reused" in decode_steps(rows, BATCH, 100).problem


@pytest.mark.parametrize("rows", [[], [Iteration(number=1, contexts=0, generations=0)]])
def test_no_row_is_a_problem(rows: list[Iteration]) -> None:
    assert decode_steps(rows, BATCH, 100).problem == "the executor reported no iteration"
    assert prefill_steps(rows, BATCH, 100).problem == "the executor reported no iteration"


# --- prefill


def context(number: int, contexts: int, tokens: int | None, ms: float, generations: int = 0) -> Iteration:
    return Iteration(
        number=number,
        contexts=contexts,
        generations=generations,
        context_tokens=tokens,
        gpu_forward_ms=ms,
        completed=contexts,
    )


def test_a_prefill_is_one_iteration_with_the_whole_batch() -> None:
    rows = [context(1, 8, 8000, 30_000.0), context(3, 8, 8000, 41.0), context(4, 8, 8000, 42.0)]
    found = prefill_steps(rows, BATCH, 1000)
    assert (found.times_ms, found.dropped) == ((30_000.0, 41.0, 42.0), {})


def test_a_batch_that_forms_late_is_no_prefill_of_the_batch() -> None:
    late = [context(1, 3, 3000, 15.0), context(2, 5, 5000, 26.0)]
    found = prefill_steps([*late, context(4, 8, 8000, 42.0)], BATCH, 1000)
    assert found.times_ms == (42.0,)  # and not 41, which the sum of the parts would be
    assert found.dropped == {"other contexts than the batch has": 2}
    late_3 = [context(1, 3, 3000, 15.0), context(2, 5, 4096, 21.0), context(3, 1, 904, 5.0)]
    late_5 = [context(1, 5, 4096, 21.0), context(2, 1, 904, 5.0), context(3, 3, 3000, 15.0)]
    for rows in (late_3, late_5, [context(1, 5, 5000, 26.0), context(2, 3, 3000, 15.0)]):
        parts = [replace(row, completed=0) for row in rows]
        assert prefill_steps(parts, BATCH, 1000, max_num_tokens=4096).times_ms == ()


def test_decode_beside_the_contexts_is_no_prefill() -> None:
    found = prefill_steps([context(1, 8, 8000, 50.0, generations=2), context(2, 8, 8000, 42.0)], BATCH, 1000)
    assert found.times_ms == (42.0,)


def test_chunks_of_a_prefill_are_added() -> None:
    rows = [context(1, 5, 4096, 20.0), context(2, 4, 3904, 19.5), context(4, 5, 4096, 20.5), context(5, 4, 3904, 19.0)]
    rows = [replace(row, completed=None if row.number in {1, 4} else 8) for row in rows]
    assert prefill_steps(rows, BATCH, 1000, max_num_tokens=4096).times_ms == (39.5, 39.5)
    assert prefill_steps(rows, BATCH, 1000).times_ms == ()
    unfinished = prefill_steps(rows[:3], BATCH, 1000, max_num_tokens=4096)
    assert (unfinished.times_ms, unfinished.dropped) == ((39.5,), {"unfinished pass": 1})


def test_a_chunk_ends_at_a_whole_block() -> None:
    rows = [context(1, 5, 4064, 20.0), context(2, 4, 3936, 19.5)]
    rows[0] = replace(rows[0], completed=0)
    assert prefill_steps(rows, BATCH, 1000, max_num_tokens=4096).times_ms == (39.5,)
    half_full = [replace(rows[0], context_tokens=3000), replace(rows[1], context_tokens=5000)]
    assert prefill_steps(half_full, BATCH, 1000, max_num_tokens=4096).times_ms == ()


def test_the_first_prefill_holds_the_wait_for_its_requests() -> None:
    """Clocks of a loop start before it waits for requests; only gpuForwardTimeMS is of the batch alone."""
    whole = [
        context(1, 8, 8000, 5000.0),
        context(2, 8, 8000, 41.0),
        context(3, 8, 8000, 42.0),
        context(4, 8, 8000, 43.0),
    ]
    found = prefill_steps(lagging(whole), BATCH, 1000)
    assert found.times_ms == (41.0, 42.0)
    assert found.dropped == {"may hold the wait for requests": 1, "no device time": 1}
    assert prefill_steps(serial(whole), BATCH, 1000).times_ms == (41.0, 42.0, 43.0)
    assert prefill_steps(whole, BATCH, 1000).times_ms == (5000.0, 41.0, 42.0, 43.0)


def test_the_time_of_a_prefill_is_not_looked_for_beyond_an_idle_loop() -> None:
    rows = lagging([context(1, 8, 8000, 40.0), context(2, 8, 8000, 41.0), context(9, 8, 8000, 900.0)])
    assert prefill_steps(rows, BATCH, 1000).times_ms == ()


# --- whatever the executor does


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Iteration], list[float]]:
    """Bursts of decode with a true time each, and the steps that must come out, in any mixture."""
    rows: list[Iteration] = []
    expected: list[float] = []
    number = draw(st.integers(1, 5))
    for _ in range(draw(st.integers(1, 4))):
        batch = draw(st.sampled_from([BATCH, BATCH - 1, 1]))
        times = draw(st.lists(st.floats(1, 100), min_size=1, max_size=15))
        rows.append(Iteration(number=number, contexts=batch, generations=0, gpu_forward_ms=draw(st.floats(20, 40_000))))
        rows += [
            Iteration(number=number + 1 + i, contexts=0, generations=batch, gpu_forward_ms=time_ms)
            for i, time_ms in enumerate(times)
        ]
        if batch == BATCH:
            expected += times[SETTLE:-1]
        number += len(times) + 1
    return rows, expected


@given(streams(), st.sampled_from([list, lagging, serial]))
def test_what_comes_out_is_what_the_device_did(
    stream: tuple[list[Iteration], list[float]], form: Callable[[list[Iteration]], list[Iteration]]
) -> None:
    rows, expected = stream
    assert list(decode_steps(form(rows), BATCH, 100).times_ms) == expected


@given(streams(), st.randoms())
def test_the_order_of_the_records_does_not_matter(stream: tuple[list[Iteration], list[float]], random: object) -> None:
    rows, expected = stream
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert list(decode_steps(shuffled, BATCH, 100).times_ms) == expected
