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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8..4", "axis ffn: 8..4 counts down; write 4..8"),
        ("2^3..2^1", "axis ffn: 2^3..2^1 counts down; write 2^1..2^3"),
        ("1..9:0", "axis ffn: 1..9:0: a step of 0 never arrives; write 1..9:1 or a larger step"),
        ("2^0..2^99", "axis ffn: 2^0..2^99: no size is larger than 2^40; write 2^0..2^40"),
        ("1..1000000000000", "has 1,000,000,000,000 points, more than 100,000; 1..1000000000000:10000000 has fewer"),
        (["1..100000", "100001..200000"], "axis ffn has more than 100,000 points; take larger steps"),
    ],
)
def test_a_range_is_counted_before_it_is_spelt_out(text: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        axis_values("ffn", text)
    assert message in str(caught.value)


def test_what_is_suggested_instead_of_a_long_range_works() -> None:
    assert len(axis_values("ffn", "1..1000000000000:10000000")) == 100_000
    assert axis_values("ffn", "1..999999999999999999999") == [("1..999999999999999999999",) * 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "axis x: nothing is no point; give numbers or texts, such as x: [1, 2, 4]"),
        ([1, None], "axis x: nothing is no point"),
        ([[1]], "axis x: a list is no point"),
        ([{"a": 1}], "axis x: a mapping is no point"),
        ([float("nan")], "axis x: nan is no point"),
        ({1: {"ffn": 8}}, "axis x: the label 1 is no text; quote it: '1'"),
        ({"a": None}, "axis x: the point 'a' has to be fields to move, such as {hidden: 8192}"),
        ({"a": [1]}, "axis x: the point 'a' has to be fields to move"),
        ({"a": {1: 2}}, "axis x: the point 'a' has to be fields to move"),
        ({"a": {"ffn": 8}, "b": 8}, "axis x: some points are fields to move, some are values; write all as fields"),
        ({"a\nb": 8}, "axis x: a label: a name has no line breaks"),
        ({}, "axis x has no values"),
    ],
)
def test_a_point_is_a_number_a_text_or_fields_with_a_label(values: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        axis_values("x", values)
    assert message in str(caught.value)


@pytest.mark.parametrize("heads", ["32", True, 0, None, 70_000])
def test_a_symbol_needs_heads_that_are_heads(heads: Any) -> None:
    for name, hold in (("G", "q_heads"), ("G", "kv_heads"), ("Hsz", "width")):
        with pytest.raises(UsageError, match=rf"axis {name}: q_heads must be a whole number from 1 to 65536"):
            moved_fields(name, 64, {**LLAMA_8B, "q_heads": heads}, hold)


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
