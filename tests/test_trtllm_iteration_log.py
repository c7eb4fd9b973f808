"""The iteration line in each form that it has had. The texts are those of the executor's format strings."""

from __future__ import annotations

import pytest

from harness.backends.trtllm.iteration_log import is_iteration_line, parse_iteration_log
from harness.backends.trtllm.rows import Iteration
from harness.errors import UnreadableInput

APRIL_2025 = (
    "[04/30/2025-10:00:01] [TRT-LLM] [I] iter = 41, global_rank = 0, rank = 0, currank_total_requests = 3/64, "
    "elapsed_time = 0.0079s, timestamp = 2025-04-30 10:00:01, num_scheduled_requests: 64, "
    "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 64}"
)
TO_RC15 = (
    "[02/01/2026-10:00:01] [TRT-LLM] [I] [_torch][RANK 0] iter = 41, global_rank = 0, rank = 0, "
    "currank_total_requests = 0/64, host_step_time = 7.913112640380859ms, prev_device_step_time = 7.42195177078247ms, "
    "timestamp = 2026-02-01 10:00:01, num_scheduled_requests: 64, "
    "states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 64}"
)
FROM_14206 = (
    "[09/01/2026-10:00:01] [TRT-LLM] [I] [_torch][RANK 0] iter = 41, global_rank = 0, rank = 0, "
    "num_scheduled_requests = 64, kv_cache_util = 0.412, currank_total_requests = 0/64, "
    "host_step_time = 7.913112640380859ms, prev_device_step_time = 7.42195177078247ms, "
    "timestamp = 2026-09-01 10:00:01, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, "
    "'num_generation_tokens': 64, 'cached_kv_tokens': 131072}"
)
FROM_16323 = FROM_14206 + ", num_active = 64, num_fetched = 0, num_dummy = 0, num_unscheduled = 0"


def one(line: str, **options: bool) -> Iteration:
    (found,) = parse_iteration_log([line], "worker.log", **options)
    return found


@pytest.mark.parametrize(
    ("line", "device_ms", "host_ms", "cached"),
    [
        (APRIL_2025, None, 7.9, None),
        (TO_RC15, 7.42195177078247, 7.913112640380859, None),
        (FROM_14206, 7.42195177078247, 7.913112640380859, 131072),
        (FROM_16323, 7.42195177078247, 7.913112640380859, 131072),
    ],
)
def test_every_form_says_the_same(line: str, device_ms: float | None, host_ms: float, cached: int | None) -> None:
    found = one(line, overlap=True)
    assert (found.number, found.rank, found.contexts, found.generations) == (41, 0, 0, 64)
    assert found.context_tokens == 0
    assert found.previous_device_ms == device_ms
    assert found.latency_ms == pytest.approx(host_ms, rel=1e-12)
    assert found.cached_kv_tokens == cached
    assert found.overlap is True


def test_what_launchers_put_before_the_line_does_not_matter() -> None:
    assert one("0: " + FROM_14206) == one(FROM_14206) == one("[1,0]<stdout>:" + FROM_14206 + "\r\n")
    assert one(FROM_14206.replace("global_rank = 0, rank = 0", "global_rank = 5, rank = 1")).rank == 5


@pytest.mark.parametrize("missing", ["N/A", "N/Ams"])
def test_the_first_iteration_has_no_device_time(missing: str) -> None:
    assert one(FROM_14206.replace("7.42195177078247ms", missing)).previous_device_ms is None


def test_padding_of_cuda_graphs_is_not_counted_as_requests() -> None:
    padded = FROM_14206.replace("num_scheduled_requests = 64", "num_scheduled_requests = 61")
    assert one(padded).generations == 61


def test_mixed_batches_are_told_apart() -> None:
    line = FROM_14206.replace(
        "'num_ctx_requests': 0, 'num_ctx_tokens': 0", "'num_ctx_requests': 3, 'num_ctx_tokens': 6144"
    )
    found = one(line)
    assert (found.contexts, found.generations, found.context_tokens) == (3, 61, 6144)


def test_an_idle_loop_has_the_states_of_the_batch_before_and_did_nothing() -> None:
    """As NVIDIA's performance CI met it: 1456 ms of waiting between two decode steps of 7.3 ms."""
    stale = FROM_14206.replace("'num_ctx_requests': 0", "'num_ctx_requests': 8")
    found = one(stale.replace("num_scheduled_requests = 64", "num_scheduled_requests = 0"))
    assert (found.contexts, found.generations, found.cached_kv_tokens) == (0, 0, None)
    assert not found.works


@pytest.mark.parametrize("written", ["tensor(64)", "tensor(64, device='cuda:0')", "'?'"])
def test_a_count_that_is_not_needed_may_be_anything(written: str) -> None:
    assert (
        one(FROM_14206.replace("'num_generation_tokens': 64", f"'num_generation_tokens': {written}")).generations == 64
    )


@pytest.mark.parametrize("written", ["tensor(2)", "tensor(2, device='cuda:0')"])
def test_a_count_may_be_written_as_a_tensor(written: str) -> None:
    assert one(FROM_14206.replace("'num_ctx_requests': 0", f"'num_ctx_requests': {written}")).contexts == 2


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("7.42195177078247ms", "7421.95us", "prev_device_step_time with its unit"),
        ("7.42195177078247ms", "7.42195177078247", "prev_device_step_time with its unit"),
        ("7.42195177078247ms", "nanms", "prev_device_step_time with its unit"),
        ("host_step_time = 7.913112640380859ms", "host_step_time = -1ms", "host_step_time with its unit"),
        ("num_scheduled_requests = 64", "scheduled = 64", "num_scheduled_requests = a whole number"),
        ("num_scheduled_requests = 64", "num_scheduled_requests = 6.4", "num_scheduled_requests = a whole number"),
        ("global_rank = 0, ", "", "global_rank = a whole number"),
        ("iter = 41", "iter = ?", "iter = a whole number"),
        ("states = {", "state = {", "states = "),
        ("num_ctx_requests", "ctx_requests", "num_ctx_requests in states"),
        ("'num_ctx_requests': 0", "'num_ctx_requests': 2.5", "num_ctx_requests in states as a whole number"),
        ("'num_ctx_requests': 0", "'num_ctx_requests': 65", "contexts among the 64 requests"),
    ],
)
def test_a_form_that_nobody_has_seen_is_an_error_with_the_line(before: str, after: str, says: str) -> None:
    assert before in FROM_14206
    with pytest.raises(UnreadableInput, match=r"worker\.log:2: .*") as caught:
        parse_iteration_log([APRIL_2025, FROM_14206.replace(before, after)], "worker.log")
    assert says in str(caught.value)
    assert "iter = " in str(caught.value)


def test_other_lines_are_passed_over() -> None:
    others = [
        "",
        "[TRT-LLM] [I] Profiling started at iteration 41.",
        "loading ██",
        "states = unknown",
        "niter = 3, states = {}",
    ]
    assert not any(map(is_iteration_line, others))
    assert [row.number for row in parse_iteration_log([*others, TO_RC15, *others], "x")] == [41]
