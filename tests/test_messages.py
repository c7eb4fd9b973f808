from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workers import job

from harness.backends.base import ArmFacts, BackendFacts, OpTime, Setting
from harness.backends.measurement import Measurement
from harness.runner import messages
from harness.runner.messages import (
    Done,
    Failed,
    Job,
    Measured,
    MessageReader,
    Opened,
    Prepared,
    Preparing,
    Progress,
    Unanswered,
    decode,
    encode,
)

MEASUREMENT = Measurement(
    facts=ArmFacts(layers_run=2, scale=16.0, hbm_bytes=1e9, details={"kernel": "flash"}),
    warmup_ms=(1.5, 1.25),
    times_ms=(1.0, 1.125),
    rounds=(0, 1),
    windows_s=((10.0, 11.0), (12.0, 13.0)),
    stop_reason="precise",
    warmup_drift_pct=None,
    op_times=(OpTime("layer.attn.attention", 12.5),),
)
ALL = [
    Opened(BackendFacts("simulated", "faulty 1", "a device", ("GPU-1", "GPU-2"), {"threads": 2})),
    Preparing(3),
    Prepared(3),
    Progress(3, 40, 12),
    Unanswered(4, "unsupported", "no kernel; zu groß"),
    Measured(3, MEASUREMENT),
    Failed("oom", "MemoryError"),
    Done(),
]


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.kind)
def test_a_message_is_one_line_and_reads_back_as_it_was(message: messages.Message) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == message


@given(st.lists(st.integers(0, 2000), max_size=8))
def test_however_the_pipe_cuts_them_messages_are_the_same(cuts: list[int]) -> None:
    stream = b"".join(map(encode, ALL))
    places = [0, *sorted(cut % len(stream) for cut in cuts), len(stream)]
    reader = MessageReader()
    found = [message for start, end in pairwise(places) for message in reader.feed(stream[start:end])]
    reader.end()
    assert found == ALL
    assert reader.not_understood == 0


@given(st.binary(max_size=200).map(lambda data: data.replace(b"\n", b"")))
def test_a_line_that_is_no_message_costs_only_itself(line: bytes) -> None:
    reader = MessageReader()
    assert reader.feed(encode(Done()) + line + b"\n" + encode(Preparing(1))) == [Done(), Preparing(1)]
    assert reader.not_understood == 1


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"3",
        b"[]",
        b"{}",
        b'{"kind": "unheard of"}',
        b'{"kind": ["done"]}',
        b'{"kind": "preparing"}',
        b'{"kind": "preparing", "number": "three"}',
        b'{"kind": "failed", "status": "oom", "reason": 3}',
        b'{"kind": "measured", "number": 3, "measurement": {"times_ms": [1.0]}}',
        b'{"kind": "opened", "facts": {"versions": "1", "gpu_uuids": []}}',
        encode(ALL[5])[:-20],
    ],
)
def test_what_is_no_message_is_no_error_but_one(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a message"):
        decode(line)


def test_half_a_line_at_the_end_is_counted_and_shown() -> None:
    reader = MessageReader()
    assert reader.feed(encode(Preparing(1)) + b'{"kind": "meas') == [Preparing(1)]
    reader.end()
    assert (reader.not_understood, reader.example) == (1, '{"kind": "meas')


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LINE_BYTES", 1000)
    reader = MessageReader()
    for _ in range(100):
        assert reader.feed(b"x" * 100) == []
    assert sum(map(len, reader._parts)) <= 1000
    assert reader.feed(b"\n" + encode(Done())) == [Done()]
    assert reader.not_understood == 1


def test_no_number_that_is_none_crosses_the_pipe() -> None:
    with pytest.raises(ValueError, match="float values"):
        encode(Measured(1, Measurement(ArmFacts(1, float("nan")), (), (), (), (), "samples", None)))


def test_a_job_reads_back_as_it_was() -> None:
    asked = job(take="kill", sleep_ms=1.5)
    assert Job.from_json(asked.to_json()) == asked


def test_paths_of_a_job_read_back_as_paths() -> None:
    asked = Job("torch", Setting(Path("/engines/a"), 3, Path("/scratch")), 2, job().policy, ())
    assert Job.from_json(asked.to_json()) == asked
