"""Writing and reading files of safetensors without holding a tensor in memory.

Format (https://huggingface.co/docs/safetensors, read 2026-11-30): eight bytes with the length of the header, the header
in JSON, then the values of all tensors without gaps. Tensors stand in the order of their value's size, largest first,
so that each is aligned to it. An index names the file of each tensor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.engines.weights_layout import DTYPE_BYTES, Stored
from harness.errors import UnreadableInput
from harness.files import atomic_writer, read_json, write_atomic

INDEX_FILE = "model.safetensors.index.json"

_READ_BYTES = 16 << 20
_LARGEST_HEADER = 100_000_000  # what readers of the format accept


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor to write: what it is, and its bytes in order."""

    stored: Stored
    chunks: Callable[[], Iterable[Any]]
    """Bytes or anything with the buffer protocol."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A tensor in a file."""

    stored: Stored
    path: Path
    begin: int
    """First byte in the file."""

    def chunks(self, first: int = 0, count: int | None = None) -> Iterator[bytes]:
        """Yield its bytes, or `count` of them from `first` on; raise UnreadableInput where the file ends too early."""
        left = self.stored.bytes - first if count is None else count
        with self.path.open("rb") as file:
            file.seek(self.begin + first)
            while left:
                block = file.read(min(left, _READ_BYTES))
                if not block:
                    raise UnreadableInput(f"{self.path}: damaged: {self.stored.name} ends too early")
                left -= len(block)
                yield block

    def named(self, name: str, shape: tuple[int, ...]) -> Piece:
        """The same values under another name and shape, to write them elsewhere."""
        return Piece(Stored(name, self.stored.dtype, shape), self.chunks)


def shard_name(number: int, count: int) -> str:
    """The usual name of shard `number`, counted from 1."""
    return f"model-{number:05d}-of-{count:05d}.safetensors"


def write_shard(path: Path, pieces: Iterable[Piece], metadata: Mapping[str, str] | None = None) -> None:
    """Write a file of tensors, whole or not at all.

    Raises EnvironmentUnfit where the disk is full or not writable, ValueError where a piece has not the bytes it says.
    """
    ordered = sorted(pieces, key=lambda piece: (-DTYPE_BYTES[piece.stored.dtype], piece.stored.name))
    head: dict[str, Any] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    end = 0
    for piece in ordered:
        begin, end = end, end + piece.stored.bytes
        head[piece.stored.name] = {
            "dtype": piece.stored.dtype,
            "shape": list(piece.stored.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_writer(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for piece in ordered:
            written = sum(file.write(chunk) for chunk in piece.chunks())
            if written != piece.stored.bytes:
                raise ValueError(f"{piece.stored.name} has {written} bytes instead of {piece.stored.bytes}")


def read_shard(path: Path) -> dict[str, Slice]:
    """Return the tensors of a file by name, values unread.

    Raises UnreadableInput where the file is no safetensors file, or shorter or longer than its header says.
    """
    head, start = _header(path)
    slices, end = {}, 0
    try:
        for name, said in head.items():
            if name == "__metadata__":
                continue
            begin, last = said["data_offsets"]
            stored = Stored(name, said["dtype"], tuple(said["shape"]))
            if last - begin != stored.bytes:
                raise UnreadableInput(f"{path}: damaged: {name} has {last - begin} bytes instead of {stored.bytes}")
            slices[name] = Slice(stored, path, start + begin)
            end = max(end, last)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableInput(f"{path}: damaged: its header is not one of safetensors ({error!r})") from error
    if path.stat().st_size != start + end:
        raise UnreadableInput(f"{path}: damaged: {path.stat().st_size} bytes instead of {start + end}")
    return slices


def read_metadata(path: Path) -> dict[str, str]:
    """Return the text that was written beside the tensors of a file; raise UnreadableInput as `read_shard` does."""
    found = _header(path)[0].get("__metadata__", {})
    return dict(found)


def write_index(folder: Path, shards: Iterable[str]) -> int:
    """Write the index of these files in `folder`; return the bytes of all their tensors."""
    places: dict[str, str] = {}
    total = 0
    for shard in shards:
        for name, found in read_shard(folder / shard).items():
            places[name] = shard
            total += found.stored.bytes
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    write_atomic(folder / INDEX_FILE, json.dumps(index, indent=2) + "\n")
    return total


def read_model(folder: Path) -> dict[str, Slice]:
    """Return every tensor that the index of a folder names.

    Raises UnreadableInput where index and files do not fit each other: a file or tensor is missing, or one too many.
    """
    path = folder / INDEX_FILE
    index: Any = read_json(path)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict):
        raise UnreadableInput(f"{path}: damaged: it has no weight_map")
    slices: dict[str, Slice] = {}
    for shard in sorted(set(places.values())):
        for name, found in read_shard(folder / shard).items():
            if places.get(name) != shard:
                raise UnreadableInput(f"{path}: does not fit its files: {name} is in {shard}")
            slices[name] = found
    missing = places.keys() - slices.keys()
    if missing:
        raise UnreadableInput(f"{path}: does not fit its files: {min(missing)} is in none")
    total = sum(found.stored.bytes for found in slices.values())
    said = index.get("metadata", {}).get("total_size")
    if said != total:
        raise UnreadableInput(f"{path}: does not fit its files: total_size is {said}, and they have {total} bytes")
    return slices


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the values begin."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if 2 <= length <= _LARGEST_HEADER else b""
        head = json.loads(text) if text and len(text) == length else None
    except FileNotFoundError as error:
        raise UnreadableInput(f"{path}: is missing") from error
    except (OSError, ValueError) as error:
        raise UnreadableInput(f"{path}: cannot be read: {error}") from error
    if not isinstance(head, dict):
        raise UnreadableInput(f"{path}: damaged: it does not begin with a header of safetensors")
    return head, 8 + length
