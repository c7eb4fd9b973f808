"""Datasets for trtllm-bench: requests of random token ids, all of one length.

A row is an object with `task_id`, `input_ids` and `output_tokens`, one a line, and an empty line is an error there
(TensorRT-LLM tensorrt_llm/bench/utils/data.py at a6ad801). Special ids are never drawn, so that no request ends early.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from harness.engines.tokenizer import SPECIAL_TOKENS
from harness.errors import UsageError

_FIRST_ID = len(SPECIAL_TOKENS)


def bench_dataset(requests: int, isl: int, osl: int, vocab_size: int, seed: int) -> Iterator[str]:
    """Yield a line, without its end, for each request: `isl` token ids in, `osl` tokens out.

    A seed gives the same lines everywhere; give each replicate its own. No two requests begin alike: their first tokens
    differ, or where there are more requests than ids, their first few. Raises UsageError where a number is impossible.
    """
    heads = _heads(requests, isl, osl, vocab_size, seed)
    draw = Random(f"{seed} tokens")  # noqa: S311  # nothing secret
    for number, head in enumerate(heads):
        ids = [*head, *draw.choices(range(_FIRST_ID, vocab_size), k=isl - len(head))]
        row = {"task_id": number, "input_ids": ids, "output_tokens": osl}
        yield json.dumps(row, separators=(",", ":"))


def dataset_text(requests: int, isl: int, osl: int, vocab_size: int, seed: int) -> str:
    """Return the whole file, which ends where its last row does."""
    return "\n".join(bench_dataset(requests, isl, osl, vocab_size, seed))


def _heads(requests: int, isl: int, osl: int, vocab_size: int, seed: int) -> list[list[int]]:
    """Distinct beginnings, as short as can be: distinct numbers, written in the ids that can be drawn."""
    ids = vocab_size - _FIRST_ID
    findings = [
        f"a dataset needs {name} of at least {least}, not {value}"
        for name, value, least in (("requests", requests, 1), ("isl", isl, 1), ("osl", osl, 1), ("vocab", ids, 1))
        if value < least
    ]
    if findings:
        raise UsageError(*findings)
    length = 1
    while ids**length < requests and length <= isl:
        length += 1
    if length > isl:
        raise UsageError(f"{requests} requests of {isl} tokens out of {ids} cannot all differ; at most {ids**isl} do")
    numbers = Random(f"{seed} beginnings").sample(range(ids**length), requests)  # noqa: S311
    return [[_FIRST_ID + number // ids**place % ids for place in range(length)] for number in numbers]
