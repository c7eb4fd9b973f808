"""What an axis of a sweep takes, and what it moves."""

from __future__ import annotations

from typing import Any

import pytest
from shapes import LLAMA_8B

from harness.errors import UsageError
from harness.spec.axes import axis_values, expand_range, moved_fields


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2^0..2^6", [1, 2, 4, 8, 16, 32, 64]),
        ("2^9..2^9", [512]),
        ("1..4", [1, 2, 3, 4]),
        ("1024..4096:1024", [1024, 2048, 3072, 4096]),
        ("fp8", ["fp8"]),
    ],
)
def test_ranges(text: str, values: list[Any]) -> None:
    assert expand_range(text) == values


def test_values_come_as_list_range_scalar_or_labelled_points() -> None:
    assert axis_values("G", [1, "2^1..2^3", 64]) == [(1, 1), (2, 2), (4, 4), (8, 8), (64, 64)]
    assert axis_values("ffn", 512) == [(512, 512)]
    assert axis_values("kv_format", "fp8") == [("fp8", "fp8")]
    wide = {"hidden": 8192, "layers": 16}
    assert axis_values("shape", {"wide": wide}) == [("wide", wide)]


def test_an_empty_axis_and_a_repeated_value_are_errors() -> None:
    with pytest.raises(UsageError, match="axis G has no values"):
        axis_values("G", [])
    with pytest.raises(UsageError, match="axis G names 4 twice"):
        axis_values("G", [4, "2^1..2^3"])


def test_g_moves_the_kv_heads_or_the_query_heads() -> None:
    assert moved_fields("G", 8, LLAMA_8B, None) == {"kv_heads": 4}
    assert moved_fields("G", 8, LLAMA_8B, "kv_heads") == {"q_heads": 64}


def test_an_impossible_g_names_those_that_work() -> None:
    with pytest.raises(
        UsageError, match="32 query heads cannot be split into groups of 3; values that work: 1, 2, 4, 8, 16, 32"
    ):
        moved_fields("G", 3, LLAMA_8B, None)
    for nonsense in (0, -1, "four", 1.5, True):
        with pytest.raises(UsageError, match="no group size"):
            moved_fields("G", nonsense, LLAMA_8B, None)


def test_hsz_moves_alone_or_at_fixed_width() -> None:
    assert moved_fields("Hsz", 256, LLAMA_8B, None) == {"head_dim": 256}
    assert moved_fields("Hsz", 256, LLAMA_8B, "width") == {"head_dim": 256, "q_heads": 16, "kv_heads": 4}
    with pytest.raises(
        UsageError, match="96 does not divide the fixed widths QH·Hsz = 4096 and KH·Hsz = 1024; values that work: 64"
    ):
        moved_fields("Hsz", 96, LLAMA_8B, "width")


def test_other_axes_move_the_field_of_their_name() -> None:
    assert moved_fields("experts.top_k", 4, LLAMA_8B, None) == {"experts.top_k": 4}
    assert moved_fields("shape", {"hidden": 1, "layers": 2}, LLAMA_8B, None) == {"hidden": 1, "layers": 2}
