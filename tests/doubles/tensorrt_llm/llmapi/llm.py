"""`LLM`: open a model, answer prompts, hand out statistics."""

# ruff: noqa: ARG002  # the parameters are those of the original

from __future__ import annotations

import atexit
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tensorrt_llm._double import failures, gpu
from tensorrt_llm._double.era import era
from tensorrt_llm._double.logger import log
from tensorrt_llm._double.metrics import perf_metrics
from tensorrt_llm._double.requests import Asked, requests_for
from tensorrt_llm._double.schemas import configs
from tensorrt_llm.sampling_params import SamplingParams

__all__ = ["LLM", "CompletionOutput", "IterationResult", "RequestOutput"]


@dataclass
class CompletionOutput:
    """One answer."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    request_perf_metrics: Any = None

    @property
    def length(self) -> int:
        return len(self.token_ids)


@dataclass
class RequestOutput:
    """A request with its answer."""

    request_id: int
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True
    decoding_iter: int = 0
    avg_decoded_tokens_per_iter: float | None = None
    cached_tokens: int = 0


class IterationResult:
    """What `get_stats_async` gives: records, one by one."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records

    async def _each(self) -> AsyncIterator[dict[str, Any]]:
        for record in self._records:
            yield record

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self._each()

    def get_results(self) -> list[dict[str, Any]]:
        return list(self._records)


class LLM:
    """Takes a local model folder and the arguments of `TorchLlmArgs`; unknown ones are a ValidationError."""

    def __init__(
        self, model: str | Path, tokenizer: Any = None, tokenizer_mode: str = "auto", skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False, tensor_parallel_size: int = 1, dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        self._executor: Any = None
        self._ranks: Any = None
        kind = configs()["TorchLlmArgs"]
        given = {
            "tokenizer": tokenizer, "tokenizer_mode": tokenizer_mode, "skip_tokenizer_init": skip_tokenizer_init,
            "trust_remote_code": trust_remote_code, "tensor_parallel_size": tensor_parallel_size, "dtype": dtype,
            "revision": revision, "tokenizer_revision": tokenizer_revision, **kwargs,
        }  # fmt: skip
        self.args: Any = kind(model=str(model), **given)
        self._open()
        atexit.register(self.shutdown)

    def _open(self) -> None:
        from tensorrt_llm._double.checks import check, split_of
        from tensorrt_llm._double.executor import Executor
        from tensorrt_llm._double.model import read_model
        from tensorrt_llm._double.ranks import Ranks

        args = self.args
        model = read_model(args.model, getattr(args, "model_kwargs", None))
        if failures.asked("validation", model.config):
            type(args)(model=args.model, harness_unknown_setting=1)
        if (args.max_batch_size or 2048) > (args.max_num_tokens or 8192):
            log("max_batch_size should be less than or equal to max_num_tokens", "warning")
        split = split_of(args)
        self._ranks = Ranks(split.world_size, model.config)
        try:
            failures.at_start(model.config, gpu().memory_bytes / (1 << 30), split.world_size)
            check(args, model, split)
            log(f"Model init total -- {model.architecture}")
            self._executor = Executor(args, model, split, era(), self._ranks)
        except BaseException:
            self._ranks.close()
            raise
        self._executor.announce()

    def generate(
        self, inputs: Any, sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
    ) -> Any:  # fmt: skip
        """Answer one prompt (token ids, or a dict with `prompt_token_ids`) or a list of them, all at once."""
        if self._executor is None:
            raise RuntimeError("LLM is shutting down")
        asked, single = requests_for(inputs, sampling_params, self._executor)
        self._executor.run([one.request for one in asked])
        outputs = [self._output(one) for one in asked]
        return outputs[0] if single else outputs

    def _output(self, one: Asked) -> RequestOutput:
        request, params = one.request, one.params
        metrics = None
        if params.return_perf_metrics and getattr(self.args, "return_perf_metrics", False) and era().perf_metrics:
            metrics = perf_metrics(request, self.args.kv_cache_config.tokens_per_block)
        stopped = request.stopped
        vocabulary = self._executor.model.config["vocab_size"]
        tokens = [(7919 * request.number + 104729 * index) % vocabulary for index in range(request.yielded)]
        answer = CompletionOutput(
            0, token_ids=tokens, finish_reason="stop" if stopped else "length", request_perf_metrics=metrics
        )
        steps = (request.last_iteration or 0) - (request.first_token_iteration or 0) + 1
        return RequestOutput(
            request.number, None, request.prompt, [answer], decoding_iter=steps,
            avg_decoded_tokens_per_iter=request.yielded / steps, cached_tokens=request.reused,
        )  # fmt: skip

    def get_stats(self, timeout: float | None = 2) -> list[dict[str, Any]]:
        """Records of the iterations since the last call, as far as the ring holds them."""
        return [] if self._executor is None else self._executor.drain()

    def get_stats_async(self, timeout: float | None = 2) -> IterationResult:
        return IterationResult(self.get_stats(timeout))

    def shutdown(self) -> None:
        """Let all ranks go; harmless when called again."""
        if self._ranks is not None:
            self._ranks.close()
        self._executor = self._ranks = None

    def __enter__(self) -> LLM:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


#: For readers of `request_perf_metrics`: all times in it are of this type.
Point = timedelta
