"""Event logs of streamed requests: case 05 entire, and what a log may have besides."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from imports import EVENTS, read

from harness.results.imports import RequestRow, event_log, read_report
from harness.results.imports.requests import RequestStatus


def log(*events: tuple[object, ...], **more: object) -> str:
    """Lines of (request, time, event) or (request, time, tokens of a chunk)."""
    lines = []
    for request, t_ms, what in events:
        kind = {"event": what} if isinstance(what, str) else {"event": "chunk", "new_tokens": what}
        lines.append(json.dumps({"req": request, "t_ms": t_ms, **kind, **more}))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "status", "tokens", "ttft_ms", "from_first_token_ms", "after_first_chunk_ms", "note"),
    [
        ("r1", "ok", 7, 100, 20.0, 30.0, "first chunk carried 3 tokens"),
        ("r2", "ok", 1, 120, None, None, "one token"),
        ("r3", "ok", 4, 90, 20.0, 20.0, ""),
        ("r4", "failed", 0, None, None, None, ""),
        ("r5", "invalid", None, None, None, None, "clock goes backwards (100 then 95)"),
        ("r6", "ok", 5, 370, None, None, "whole answer in one chunk"),
    ],
)
def test_a_request(
    name: str,
    status: RequestStatus,
    tokens: int | None,
    ttft_ms: float | None,
    from_first_token_ms: float | None,
    after_first_chunk_ms: float | None,
    note: str,
) -> None:
    [row] = [one for one in read_report(EVENTS).requests if one.request == name]
    assert (row.status, row.tokens, row.ttft_ms, row.note) == (status, tokens, ttft_ms, note)
    assert row.tpot_from_first_token_ms == from_first_token_ms
    assert row.tpot_after_first_chunk_ms == after_first_chunk_ms


def test_totals_over_the_valid_requests() -> None:
    row = read_report(EVENTS)
    assert row.status == "ok"
    assert len(row.requests) == 6
    assert row.values == {
        "requests": 4, "failed_requests": 1, "invalid_requests": 1, "output_tokens": 17, "output_tokens_mean": 4.25,
        "ttft_ms_mean": 170.0, "tpot_ms_mean": 25.0, "tpot_rule": "after_first_chunk",
        "tpot_ms_mean_from_first_token": 20.0, "user_tok_per_s_decode_only": 40.0, "requests_without_tpot": 2,
        "bundled_first_chunks": 1, "chunk_gap_ms_mean": 30.0, "chunk_gap_ms_max": 80.0,
        "token_latency_ms_mean": pytest.approx(180 / 7), "request_latency_ms_mean": (220 + 120 + 150 + 370) / 4,
    }  # fmt: skip


def test_the_speed_of_a_bundled_request_is_of_the_tokens_that_were_timed() -> None:
    speeds = {one.request: one.decode_tok_per_s for one in read_report(EVENTS).requests}
    assert speeds["r1"] == pytest.approx(33.33, abs=0.005)
    assert (speeds["r3"], speeds["r2"], speeds["r6"]) == (50.0, None, None)


def test_notes_name_bundles_and_what_is_left_out() -> None:
    assert read_report(EVENTS).notes == (
        (
            "1 request bundled several tokens in the first chunk (r1: first chunk carried 3 tokens): "
            "(end - first) / (tokens - 1) overstates the speed"
        ),
        "2 requests without a TPOT, left out of its mean (r2: one token, r6: whole answer in one chunk)",
        "1 request failed (r4)",
        "1 request invalid (r5: clock goes backwards (100 then 95))",
    )


@pytest.mark.parametrize(
    ("events", "note"),
    [
        ([("a", 0, "sent"), ("a", 5, 1)], "the log ends before it is done"),
        ([("a", 5, 1), ("a", 6, "done")], "it has to begin with sent, once"),
        ([("a", 0, "sent"), ("a", 1, "sent"), ("a", 6, "done")], "it has to begin with sent, once"),
        ([("a", 0, "sent"), ("a", 6, "done"), ("a", 7, 1)], "it goes on after done"),
        ([("a", 0, "sent"), ("a", 5, 0), ("a", 6, "done")], "done without a token"),
    ],
)
def test_a_request_that_cannot_be_true_is_invalid(tmp_path, events: list[tuple[object, ...]], note: str) -> None:
    row = read(tmp_path, "events.jsonl", log(*events))
    assert [(one.status, one.note) for one in row.requests] == [("invalid", note)]
    assert row.status == "suspect"
    assert "no request has figures that count" in row.notes


def test_chunks_at_one_time_have_no_tpot(tmp_path) -> None:
    row = read(tmp_path, "e.jsonl", log(("a", 0, "sent"), ("a", 9, 1), ("a", 9, 4), ("a", 9, "done")))
    assert row.requests[0].tpot_after_first_chunk_ms is None
    assert row.values["requests_without_tpot"] == 1
    assert "user_tok_per_s_decode_only" not in row.values


def test_unknown_events_are_counted_and_fields_kept(tmp_path) -> None:
    text = log(("a", 0, "sent"), ("a", 1, "queued"), ("a", 5, 1), ("a", 6, "done"), model="synth/g8")
    row = read(tmp_path, "e.jsonl", text + '\n{"req": "a", "t_ms": 7, "event": "queued", "lane": 3}\n')
    assert row.foreign == {"model": "synth/g8", "lane": 3, "events": {"queued": 2}}
    assert row.requests[0].status == "ok"


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ('{"req": "a", "t_ms": 5, "ev', "not JSON at line 3 column 25: Unterminated string starting at"),
        ('{"req": "a", "t_ms": "5", "event": "chunk"}', "line 3 is no event: it needs req, t_ms as a number and event"),
        (
            '{"req": "a", "t_ms": 5, "event": "chunk"}',
            "line 3: new_tokens is None, and not how many tokens a chunk carried",
        ),
        (
            '{"req": "a", "t_ms": 5, "event": "chunk", "new_tokens": -1}',
            "line 3: new_tokens is -1, and not how many tokens a chunk carried",
        ),
        ("[1]", "line 3 is no JSON object"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named(tmp_path, line: str, note: str) -> None:
    row = read(tmp_path, "e.jsonl", log(("a", 0, "sent"), ("a", 4, 1)) + "\n" + line)
    assert (row.status, row.notes) == ("unreadable", (note,))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 4)), min_size=2, max_size=8).filter(
        lambda chunks: chunks[0][1] and chunks[-1][1]
    )
)
def test_both_rules_agree_where_the_first_chunk_has_one_token(chunks: list[tuple[int, int]]) -> None:
    times = [sum(gap for gap, _ in chunks[: index + 1]) for index in range(len(chunks))]
    events = [
        ("a", 0, "sent"),
        *(("a", t, n) for t, (_, n) in zip(times, chunks, strict=True)),
        ("a", times[-1], "done"),
    ]
    [row] = event_log.read("e.jsonl", log(*events)).requests
    assert isinstance(row, RequestRow)
    assert row.tpot_from_first_token_ms is not None
    assert row.tpot_after_first_chunk_ms is not None
    if chunks[0][1] == 1:
        assert row.tpot_from_first_token_ms == row.tpot_after_first_chunk_ms
    else:
        assert row.tpot_from_first_token_ms < row.tpot_after_first_chunk_ms
