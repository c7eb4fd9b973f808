"""Datasets for trtllm-bench: what a row is, that nothing repeats, and that a seed is enough to have it again."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.datasets import bench_dataset, dataset_text
from harness.errors import UsageError


def rows(*args: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bench_dataset(*args)]


def test_a_row_is_what_trtllm_bench_reads() -> None:
    [row] = rows(1, 4, 32, 1000, 0)
    assert list(row) == ["task_id", "input_ids", "output_tokens"]
    assert (row["task_id"], len(row["input_ids"]), row["output_tokens"]) == (0, 4, 32)


def test_the_file_ends_with_its_last_row() -> None:
    text = dataset_text(3, 5, 7, 1000, 1)
    assert text.splitlines() == list(bench_dataset(3, 5, 7, 1000, 1))
    assert text.endswith("}")
    assert "" not in text.split("\n")


def test_a_seed_gives_the_same_file_again_and_another_seed_another() -> None:
    first, again, other = (dataset_text(8, 16, 1, 32000, seed) for seed in (7, 7, 8))
    assert first == again
    prompts = [tuple(json.loads(line)["input_ids"]) for text in (first, other) for line in text.splitlines()]
    assert len(set(prompts)) == 16


def test_ids_are_drawn_from_all_that_are_not_special() -> None:
    """Ids 3 to 9, evenly: 10000 of 70000 each, within 5 standard deviations of √(70000 · 6/49) = 93."""
    drawn = [number for row in rows(1, 70_000, 1, 10, 3) for number in row["input_ids"]]
    counts = {number: drawn.count(number) for number in set(drawn)}
    assert sorted(counts) == [3, 4, 5, 6, 7, 8, 9]
    assert all(abs(count - 10_000) < 5 * 93 for count in counts.values())


@settings(max_examples=60, deadline=None)
@given(requests=st.integers(1, 60), isl=st.integers(1, 12), vocab=st.integers(4, 40), seed=st.integers(0, 1 << 32))
def test_no_two_requests_begin_alike(requests: int, isl: int, vocab: int, seed: int) -> None:
    """The shortest beginnings that can differ do: one token where there are enough ids."""
    ids = vocab - 3
    if ids**isl < requests:
        with pytest.raises(UsageError, match="cannot all differ"):
            rows(requests, isl, 1, vocab, seed)
        return
    found = rows(requests, isl, 1, vocab, seed)
    shortest = next(length for length in itertools.count(1) if ids**length >= requests)
    assert len({tuple(row["input_ids"][:shortest]) for row in found}) == requests
    assert all(len(row["input_ids"]) == isl for row in found)
    assert all(3 <= number < vocab for row in found for number in row["input_ids"])


def test_impossible_numbers_are_named_together() -> None:
    with pytest.raises(UsageError) as found:
        rows(0, 0, 0, 3, 0)
    assert len(found.value.findings) == 4
    with pytest.raises(UsageError, match="10 requests of 2 tokens out of 3 cannot all differ; at most 9 do"):
        rows(10, 2, 1, 6, 0)
