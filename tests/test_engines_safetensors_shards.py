from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engines.safetensors_shards import (
    INDEX_FILE,
    Piece,
    read_metadata,
    read_model,
    read_shard,
    shard_name,
    write_index,
    write_shard,
)
from harness.engines.weights_layout import Stored
from harness.errors import UnreadableInput

CODES = Piece(Stored("b.codes", "U8", (3, 1)), lambda: [b"\x01", b"\x02\x03"])
SCALE = Piece(Stored("a.scale", "F32", ()), lambda: [b"\x00\x00\x80\x3f"])
WIDE = Piece(Stored("c.wide", "BF16", (2, 1)), lambda: [b"abcd"])


def test_a_file_is_a_header_and_values_largest_first(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_shard(path, [CODES, WIDE, SCALE], {"made": "here"})
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    assert json.loads(raw[8 : 8 + length]) == {
        "__metadata__": {"format": "pt", "made": "here"},
        "a.scale": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "c.wide": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [4, 8]},
        "b.codes": {"dtype": "U8", "shape": [3, 1], "data_offsets": [8, 11]},
    }
    assert raw[8 + length :] == b"\x00\x00\x80\x3f" + b"abcd" + b"\x01\x02\x03"
    assert read_metadata(path) == {"format": "pt", "made": "here"}


def test_what_was_written_is_read_back_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_shard(path, [CODES, WIDE, SCALE])
    found = read_shard(path)
    assert {name: one.stored for name, one in found.items()} == {
        one.stored.name: one.stored for one in (CODES, WIDE, SCALE)
    }
    assert b"".join(found["c.wide"].chunks()) == b"abcd"
    assert b"".join(found["c.wide"].chunks(1, 2)) == b"bc"


@pytest.mark.modelopt
def test_the_package_that_defines_the_format_reads_it(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    path = tmp_path / "x.safetensors"
    write_shard(path, [CODES, SCALE])
    found = load_file(path)
    assert found["a.scale"].item() == 1.0
    assert found["b.codes"].tolist() == [[1], [2], [3]]


def test_a_piece_that_ends_too_early_leaves_no_file(tmp_path: Path) -> None:
    short = Piece(Stored("x", "F32", (2,)), lambda: [b"1234"])
    with pytest.raises(ValueError, match="x has 4 bytes instead of 8"):
        write_shard(tmp_path / "x.safetensors", [short])
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_dies_leaves_no_file(tmp_path: Path) -> None:
    def dies() -> Iterator[bytes]:
        yield b"1234"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / "x.safetensors", [Piece(Stored("x", "F32", (2,)), dies)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda raw: raw[:-1], "damaged: 107 bytes instead of 108"),
        (lambda raw: raw + b"x", "damaged: 109 bytes instead of 108"),
        (lambda raw: raw[:20], "does not begin with a header"),
        (lambda raw: raw[:0], "does not begin with a header"),
        (lambda raw: b"\xff" * 8 + raw[8:], "does not begin with a header"),
        (lambda raw: raw.replace(b'{"__', b"xx__"), "cannot be read"),
        (lambda raw: raw.replace(b'"shape":[]', b'"shape":[2'), "cannot be read"),
        (lambda raw: raw.replace(b'"F32"', b'"F99"'), "its header is not one of safetensors"),
        (lambda raw: raw.replace(b'"F32"', b'"U8" '), "a.scale has 4 bytes instead of 1"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, damage: object, problem: str) -> None:
    path = tmp_path / "x.safetensors"
    write_shard(path, [SCALE])
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UnreadableInput, match=problem):
        read_shard(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="is missing"):
        read_shard(tmp_path / "x.safetensors")


def test_an_index_names_the_file_of_each_tensor(tmp_path: Path) -> None:
    names = [shard_name(number, 2) for number in (1, 2)]
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    write_shard(tmp_path / names[0], [SCALE, WIDE])
    write_shard(tmp_path / names[1], [CODES])
    assert write_index(tmp_path, names) == 4 + 4 + 3
    assert json.loads((tmp_path / INDEX_FILE).read_text()) == {
        "metadata": {"total_size": 11},
        "weight_map": {"a.scale": names[0], "b.codes": names[1], "c.wide": names[0]},
    }
    assert read_model(tmp_path).keys() == {"a.scale", "b.codes", "c.wide"}

    write_shard(tmp_path / names[1], [])
    with pytest.raises(UnreadableInput, match=r"b.codes is in none"):
        read_model(tmp_path)
    write_shard(tmp_path / names[1], [CODES, Piece(SCALE.stored, SCALE.chunks)])
    with pytest.raises(UnreadableInput, match=r"a.scale is in model-00002-of-00002.safetensors"):
        read_model(tmp_path)
    write_shard(tmp_path / names[1], [Piece(Stored("b.codes", "U8", (1,)), lambda: [b"1"])])
    with pytest.raises(UnreadableInput, match="total_size is 11, and they have 9 bytes"):
        read_model(tmp_path)
    (tmp_path / INDEX_FILE).write_text("{}")
    with pytest.raises(UnreadableInput, match="it has no weight_map"):
        read_model(tmp_path)
