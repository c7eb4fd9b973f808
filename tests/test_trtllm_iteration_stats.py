"""Iteration statistics of each era: what a record says, what it does not, and what is no record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.backends.trtllm.iteration_stats import parse_stats, read_iteration_file
from harness.backends.trtllm.rows import Iteration
from harness.errors import UnreadableInput

#: As 1.2 makes it, PyTorch backend.
OF_1_2: dict[str, Any] = {
    "iter": 17,
    "timestamp": "02-01-2026 10:00:01.123456",
    "iterLatencyMS": 15.2,
    "newActiveRequestsQueueLatencyMS": 0.0,
    "numNewActiveRequests": 0,
    "numActiveRequests": 64,
    "numQueuedRequests": 0,
    "numCompletedRequests": 0,
    "maxNumActiveRequests": 64,
    "gpuMemUsage": 150_000_000_000,
    "cpuMemUsage": 0,
    "pinnedMemUsage": 0,
    "kvCacheStats": {"maxNumBlocks": 9000, "usedNumBlocks": 4000, "reusedBlocks": 0, "cacheHitRate": 0.0},
    "inflightBatchingStats": {
        "numScheduledRequests": 64,
        "numContextRequests": 0,
        "numGenRequests": 64,
        "numPausedRequests": 0,
        "numCtxTokens": 0,
        "microBatchId": 0,
        "avgNumDecodedTokensPerIter": 0.0,
    },
    "staticBatchingStats": {"numScheduledRequests": 0, "numContextRequests": 0},
    "specDecodingStats": None,
}
#: From PR 14127 on, May 2026.
OF_14127 = {
    **OF_1_2,
    "hostStepTimeMS": 7.9,
    "prevDeviceStepTimeMS": 7.4,
    "schedulerMode": "overlap",
    "attentionDpRank": 0,
}
#: Later in 2026.
LATER = {
    **OF_14127,
    "gpuForwardTimeMS": 7.1,
    "inflightBatchingStats": {**OF_1_2["inflightBatchingStats"], "numGenKvTokens": 262_208, "numCtxKvTokens": 0},
    "specDecodingStats": {"numDraftTokens": 192, "numAcceptedTokens": 64, "acceptanceLength": 2.0},
}


def one(record: dict[str, Any], **options: bool) -> Iteration:
    (found,) = parse_stats([record], "get_stats()", **options)
    return found


def test_a_record_of_1_2_has_no_device_time() -> None:
    found = one(OF_1_2, overlap=True)
    assert (found.number, found.rank, found.contexts, found.generations, found.completed) == (17, 0, 0, 64, 0)
    assert (found.gpu_forward_ms, found.previous_device_ms, found.latency_ms) == (None, None, 15.2)
    assert found.overlap is True
    assert (found.cached_kv_tokens, found.drafted_tokens, found.reused_blocks) == (None, None, 0)


def test_the_mode_that_a_record_names_is_stronger_than_the_settings() -> None:
    assert one(OF_14127, overlap=False).overlap is True
    assert one({**OF_14127, "schedulerMode": "non_overlap"}, overlap=True).overlap is False
    assert one({**OF_14127, "schedulerMode": "something new"}).overlap is None


def test_later_records_say_more() -> None:
    found = one(LATER)
    assert (found.gpu_forward_ms, found.previous_device_ms) == (7.1, 7.4)
    assert (found.cached_kv_tokens, found.drafted_tokens, found.accepted_tokens) == (262_208, 192, 64)


def test_ranks_are_told_apart() -> None:
    assert one({**LATER, "attentionDpRank": 3}).rank == 3
    assert one({**LATER, "attentionDpRank": 0, "rank": 5}).rank == 5


def test_a_time_of_zero_is_one_that_was_not_taken() -> None:
    assert one({**LATER, "gpuForwardTimeMS": 0.0}).gpu_forward_ms is None


def test_lost_records_are_passed_on() -> None:
    assert one({**LATER, "statsSequence": 900, "statsDroppedFrames": 4}).dropped_records == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"iter": None}, "has no iter"),
        ({"iter": "17"}, "iter is '17', and no count"),
        ({"iter": True}, "iter is 'True', and no count"),
        ({"inflightBatchingStats": None}, "has no numContextRequests"),
        ({"inflightBatchingStats": []}, "inflightBatchingStats is '[]', and no group"),
        ({"iterLatencyMS": "7.1ms"}, "iterLatencyMS is '7.1ms', and no time in ms"),
        ({"gpuForwardTimeMS": float("nan")}, "gpuForwardTimeMS is 'nan', and no time in ms"),
        ({"prevDeviceStepTimeMS": -7.0}, "prevDeviceStepTimeMS is '-7.0', and no time in ms"),
    ],
)
def test_a_record_of_another_form_is_an_error_that_names_it(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UnreadableInput, match=r"get_stats\(\): record 2: ") as caught:
        parse_stats([LATER, {**LATER, **change}], "get_stats()")
    assert says in str(caught.value)


def test_a_file_has_python_literals_or_json(tmp_path: Path) -> None:
    file = tmp_path / "iterations.log"
    file.write_text(f"{OF_1_2}\n\n{json.dumps(LATER)}\n")
    assert read_iteration_file(file) == [one(OF_1_2), one(LATER)]
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(file.read_text().splitlines()[0])  # what a reader of JSON alone meets


@pytest.mark.parametrize("line", ["{'iter': 1", "iter = 3", "__import__('os').getcwd()", "[" * 5000, "'text'"])
def test_a_damaged_line_is_an_error_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "iterations.log"
    file.write_text(f"{LATER}\n{line}\n")
    with pytest.raises(UnreadableInput, match=r"iterations\.log:2: "):
        read_iteration_file(file)


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="nothing"):
        read_iteration_file(tmp_path / "nothing")
