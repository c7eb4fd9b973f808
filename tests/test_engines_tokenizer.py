"""A tokenizer of the model's size, byte for byte, and as both versions of transformers load it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers_pythons
from shapes import variant
from transformers_read import TEXT

from harness.engines.hf_config import hf_config
from harness.engines.tokenizer import SPECIAL_TOKENS, tokenizer_files
from harness.errors import UsageError

SIZES = (4, 100, 1000, 151936)


def vocabulary(size: int) -> dict[str, int]:
    model = json.loads(tokenizer_files(size)["tokenizer.json"])["model"]
    assert (model["type"], model["merges"]) == ("BPE", [])
    found: dict[str, int] = model["vocab"]
    return found


@pytest.mark.parametrize("size", SIZES)
def test_every_id_has_one_name(size: int) -> None:
    assert list(vocabulary(size).values()) == list(range(size))


def test_special_tokens_bytes_and_numbers() -> None:
    """Byte b has id 3 + b: `A` is 0x41, a space is written as U+0120, 0xFF as itself."""
    names = list(vocabulary(300))
    assert names[:3] == ["<pad>", "<s>", "</s>"]
    assert (names[3 + 0x41], names[3 + 0x20], names[3 + 0xFF]) == ("A", "Ġ", "ÿ")
    assert names[259:] == [f"t{number}" for number in range(259, 300)]


def test_the_ids_are_those_of_the_configuration() -> None:
    config = hf_config(variant()).config
    assert list(SPECIAL_TOKENS.values()) == [config[f"{name}_token_id"] for name in ("pad", "bos", "eos")]
    said = json.loads(tokenizer_files(1000)["tokenizer_config.json"])
    assert [said[f"{name}_token"] for name in ("pad", "bos", "eos")] == list(SPECIAL_TOKENS)
    added = json.loads(tokenizer_files(1000)["tokenizer.json"])["added_tokens"]
    assert {one["content"]: one["id"] for one in added} == SPECIAL_TOKENS


def test_a_size_without_room_is_refused() -> None:
    with pytest.raises(UsageError, match="vocab 3 is too small for a tokenizer; at least 4"):
        tokenizer_files(3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Each size beside another architecture's config.json, by which transformers also chooses a class."""
    root = tmp_path_factory.mktemp("tokenizers")
    small: dict[str, Any] = {"layers": 1, "hidden": 64, "q_heads": 4, "kv_heads": 4, "head_dim": 16, "ffn": 64}
    experts = {"count": 2, "top_k": 1, "inter": 64}
    shapes = [{}, {"experts": experts}, {"attention": "mla", "mla": {}}, {"q_heads": 6, "kv_heads": 2}]
    made = []
    for size, changes in zip(SIZES, shapes, strict=True):
        folder = root / str(size)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(hf_config(variant(**{**small, **changes}, vocab=size)).config))
        for name, text in tokenizer_files(size).items():
            (folder / name).write_text(text)
        made.append(folder)
    return tuple(made)


@pytest.mark.parametrize("version", transformers_pythons.VERSIONS)
@pytest.mark.parametrize("size", SIZES)
def test_transformers_loads_it_offline(version: str, size: int, folders: tuple[Path, ...]) -> None:
    loaded = transformers_pythons.read(version, *folders)[str(size)]["tokenizer"]
    assert (loaded["size"], loaded["vocab_size"]) == (size, size)
    assert loaded["special"] == [0, 1, 2]
    assert loaded["last"] == list(vocabulary(size))[-1]
    if size >= 259:
        assert loaded["ids"] == [3 + byte for byte in TEXT.encode()]
        assert loaded["text"] == TEXT
