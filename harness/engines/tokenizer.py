"""A tokenizer of any vocabulary size, as the files that `AutoTokenizer` loads offline.

It spells text byte by byte (byte-level BPE without merges, in the alphabet of github.com/openai/gpt-2 src/encoder.py,
`bytes_to_unicode`), and names the ids beyond the bytes `t<id>`. Requests carry token ids, so that what it makes of text
matters to nobody; tools such as trtllm-bench only ask that one is there and has the model's size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from harness.engines.hf_config import BOS_ID, EOS_ID, PAD_ID
from harness.errors import UsageError

#: Special token → id, in the order of ids.
SPECIAL_TOKENS = {"<pad>": PAD_ID, "<s>": BOS_ID, "</s>": EOS_ID}

#: Larger than any sequence, and what transformers writes for "no limit" (VERY_LARGE_INTEGER, 10^30).
_NO_LIMIT = 10**30


def tokenizer_files(vocab_size: int) -> dict[str, str]:
    """Return file name → text for a tokenizer with ids 0 to `vocab_size` − 1; raise UsageError where there is no room.

    With fewer than 259 ids some bytes have none and text that has them loses them.
    """
    least = len(SPECIAL_TOKENS) + 1
    if vocab_size < least:
        raise UsageError(f"vocab {vocab_size} is too small for a tokenizer; at least {least}")
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": _NO_LIMIT,
        "clean_up_tokenization_spaces": False,
        **special,
    }
    return {
        # One token a line would triple the size.
        "tokenizer.json": json.dumps(_tokenizer(vocab_size), ensure_ascii=False, separators=(",", ":")) + "\n",
        "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
        "special_tokens_map.json": json.dumps(special, indent=2) + "\n",
    }


def _tokenizer(vocab_size: int) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token, number in SPECIAL_TOKENS.items()
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(_tokens(vocab_size))},
            "merges": [],
        },
    }


def _tokens(vocab_size: int) -> Iterator[str]:
    alphabet = _alphabet()
    named = [*SPECIAL_TOKENS, *alphabet][:vocab_size]
    yield from named
    yield from (f"t{number}" for number in range(len(named), vocab_size))


def _alphabet() -> list[str]:
    """A printable character for each of the 256 bytes: itself where it is one, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]
