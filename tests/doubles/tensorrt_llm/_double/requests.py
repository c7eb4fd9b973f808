"""Prompts and sampling parameters → requests, refused where the API refuses them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from tensorrt_llm._double import failures
from tensorrt_llm._double.executor import Executor
from tensorrt_llm._double.logger import log
from tensorrt_llm._double.scheduler import Request
from tensorrt_llm.sampling_params import SamplingParams

_NUMBERS = count(1)
_NEVER = 1 << 62
#: How likely a token of a random model ends an answer. A real vocabulary makes it rarer; who forgets EOS is to notice.
_ENDS = 0.02


class Asked(NamedTuple):
    """A request and what it was asked with."""

    request: Request
    params: SamplingParams


def requests_for(inputs: Any, params: Any, executor: Executor) -> tuple[list[Asked], bool]:
    """Return the requests, and whether one prompt was given and no list of them."""
    single = _is_prompt(inputs)
    prompts = [_tokens(one, executor) for one in ([inputs] if single else inputs)]
    every = list(params) if isinstance(params, Sequence) else [params] * len(prompts)
    if len(every) != len(prompts):
        raise ValueError(f"sampling_params has {len(every)} items for {len(prompts)} prompts")
    arrivals = _arrivals(len(prompts), executor)
    asked = [
        Asked(_request(tokens, _settled(one, executor), arrives, executor), one)
        for tokens, one, arrives in zip(prompts, every, arrivals, strict=True)
    ]
    return asked, single


def _is_prompt(inputs: Any) -> bool:
    return isinstance(inputs, str | dict) or (isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], int))


def _tokens(given: Any, executor: Executor) -> list[int]:
    if isinstance(given, dict):
        given = given["prompt_token_ids"]
    if isinstance(given, str):
        raise ValueError("tokenizer is required to tokenize string prompt")
    tokens = list(given)
    if not tokens:
        raise ValueError("prompt token ids are empty")
    if min(tokens) < 0 or max(tokens) >= executor.model.config["vocab_size"]:
        raise ValueError("Token ID out of range")
    return tokens


def _settled(params: SamplingParams | None, executor: Executor) -> SamplingParams:
    without = executor.args.skip_tokenizer_init
    if params is None:
        if without:
            raise ValueError(
                "tokenizer is required to initialize a default sampling_params, or you can explicitly specify a "
                "sampling_params"
            )
        params = SamplingParams()
    if not isinstance(params, SamplingParams):
        raise TypeError(f"The sampling_params must be type SamplingParams or None, but got {type(params)}")
    if params.end_id is None and without:
        raise ValueError(
            "tokenizer is required to reset end_id if it is None, or you can explicitly specify the end_id for "
            "sampling_params"
        )
    return params


def _request(tokens: list[int], params: SamplingParams, arrives: int, executor: Executor) -> Request:
    args = executor.args
    if not args.enable_chunked_prefill and len(tokens) > (args.max_num_tokens or 8192):
        raise ValueError(
            f"The sum of prompt length ({float(len(tokens))}), query length (0) should not exceed max_num_tokens "
            f"({args.max_num_tokens})"
        )
    room = executor.max_seq_len - len(tokens)
    if room < 1:
        raise ValueError(
            f"`default_max_tokens` ({room}) must be greater than 0, `default_max_tokens` (max_seq_len "
            f"({executor.max_seq_len}) - splited_prompt_len ({len(tokens)}) - query_token_len (0))"
        )
    wanted = params.max_tokens
    if wanted > room:
        log(
            f"User-specified `max_tokens` ({wanted}) is greater than deduced `default_max_tokens` ({room}), using "
            "default_max_tokens instead.",
            "warning",
        )
        wanted = room
    return Request(next(_NUMBERS), tokens, wanted, _end(params, executor), arrives)


def _end(params: SamplingParams, executor: Executor) -> int:
    """After how many tokens an answer ends by itself."""
    clock, end_id = executor.clock, params.end_id
    if failures.asked("wrong-length", executor.model.config):
        return 1 + int(clock.chance() * params.max_tokens)
    if params.ignore_eos and executor.era.ignore_eos:
        return _NEVER
    if end_id is None:
        file = executor.model.folder / "generation_config.json"
        end_id = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id", -1) if file.is_file() else -1
    if end_id == -1:
        return _NEVER
    tokens = 1
    while tokens < params.max_tokens and clock.chance() > _ENDS:
        tokens += 1
    return tokens if tokens < params.max_tokens else _NEVER


def _arrivals(number: int, executor: Executor) -> list[int]:
    """The iteration at which each request is seen. They are sent one by one, so a batch may form late."""
    args, form = executor.args, os.environ.get("TRTLLM_DOUBLE_FORM", "mixed")
    waits = getattr(args, "batch_wait_timeout_ms", 0) > 0 or getattr(args, "batch_wait_timeout_iters", 0) > 0
    if number == 1 or waits or form == "together" or (form == "mixed" and executor.clock.chance() < 0.5):
        return [0] * number
    first = 1 + int(executor.clock.chance() * (number - 1))
    return [0 if index < first else 1 + (index - first) % 3 for index in range(number)]
