"""`Runner`: what its constructor takes, what it refuses, and how long its layers take."""

# ruff: noqa: ARG002, ARG004  # the parameters are those of the original

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from tensorrt_llm._double import cuda, failures, gpu
from tensorrt_llm._double.checks import check
from tensorrt_llm._double.clock import EAGER, Clock, Truth, first_ms
from tensorrt_llm._double.logger import Time
from tensorrt_llm._double.model import Model, read_model
from tensorrt_llm._double.schemas import configs
from tensorrt_llm._utils import mpi_rank, mpi_world_size

from harness.cost.decompose import Section
from harness.spec.parallelism import Parallelism

_REPLACEABLE = ("CUTEDSL", "CUTLASS", "DEEPGEMM", "TRTLLM", "WIDEEP")


class BalanceMethod(IntEnum):
    NotModified = 1
    Balanced = 2
    ImbalancedRanks = 3
    ImbalancedExperts = 4


@dataclass(frozen=True)
class Mapping:
    """tp = ep = world; no pipeline, no context parallel."""

    world_size: int
    rank: int
    enable_attention_dp: bool

    @property
    def tp_size(self) -> int:
        return self.world_size

    moe_ep_size = tp_size


class Runner:
    """Some consecutive layers of a model. `create_run_pack` makes a call that takes a step's time on the device."""

    def __init__(
        self, pretrained_model_name_or_path: str, mapping: Mapping, *, load_format: str, moe_backend: str,
        layer_indices: list[int], scaled_from: int | None, max_seq_len: int, max_num_tokens: int,
        moe_max_num_tokens: int | None, kv_cache_dtype: str, use_low_precision_moe_combine: bool, use_cuda_graph: bool,
        mamba_ssm_cache_dtype: str = "auto",
    ) -> None:  # fmt: skip
        made = configs()
        args: Any = made["TorchLlmArgs"](
            model=str(pretrained_model_name_or_path),
            load_format=load_format,
            skip_tokenizer_init=True,
            tensor_parallel_size=mapping.tp_size,
            moe_expert_parallel_size=mapping.moe_ep_size,
            enable_attention_dp=mapping.enable_attention_dp,
            **({} if use_cuda_graph else {"cuda_graph_config": None}),
            moe_config=made["MoeConfig"](
                backend=moe_backend or made["MoeConfig"]().backend,  # type: ignore[attr-defined]
                max_num_tokens=moe_max_num_tokens,
                use_low_precision_moe_combine=use_low_precision_moe_combine,
            ),
            kv_cache_config=made["KvCacheConfig"](dtype=kv_cache_dtype),
        )
        model = _scaled(read_model(pretrained_model_name_or_path), scaled_from, mapping)
        if layer_indices != list(range(layer_indices[0], layer_indices[-1] + 1)):
            raise ValueError(f"layer_indices should be a contiguous range, got {layer_indices}")
        if layer_indices[-1] >= model.layers:
            raise IndexError("list index out of range")
        self.model_config = SimpleNamespace(mapping=mapping, moe_backend=args.moe_config.backend)
        self.model, self.layer_indices, self.mapping = model, layer_indices, mapping
        self.max_num_tokens, self.use_cuda_graph = max_num_tokens, use_cuda_graph
        split = Parallelism(
            tp=mapping.tp_size, ep=mapping.moe_ep_size, attention_dp=mapping.enable_attention_dp, moe_tp=1
        )  # fmt: skip
        failures.at_start(model.config, gpu().memory_bytes / (1 << 30), mapping.world_size)
        check(args, model, split)
        self._truth = Truth()
        self._clock = Clock(model.variant(kv_cache_dtype), split, self._truth.processes())
        self._section = Section(layer_indices[0], len(layer_indices), embeds=False, heads=False)
        self._balance, self._started = 1.0, False
        self._truth.tell([{"event": "open", "process": os.getpid(), "ranks": list(self._clock.ranks)}])

    def create_run_pack(
        self, run_type: str, *, batch_size: int, request_id_begin: int, seq_len_q: int, seq_len_kv_cache: int,
        kv_cache_manager: Any, attn_workspace: Any = None,
    ) -> Callable[..., Any]:  # fmt: skip
        """Return what runs the layers once; `run_type` CTX or GEN, batch of one rank."""
        assert batch_size <= kv_cache_manager.max_batch_size
        assert seq_len_q + seq_len_kv_cache <= kv_cache_manager.max_seq_len
        assert batch_size * seq_len_q <= self.max_num_tokens
        clock, section = self._clock, self._section
        if run_type == "CTX":
            tokens = batch_size * seq_len_q
            time_ms = clock.prefill_ms(batch_size, tokens, seq_len_kv_cache, section=section)
        elif run_type == "GEN":
            time_ms = clock.decode_ms(batch_size, seq_len_kv_cache, seq_len_q - 1, section)
            if self.model.experts and self._balance != 1.0:
                time_ms *= 1 + (self._balance - 1) * clock.share_of_experts(batch_size, section)
        else:
            raise KeyError(run_type)
        problem = {"run_type": run_type, "batch": batch_size, "q": seq_len_q, "kv": seq_len_kv_cache}

        def run_pack(*, check: bool = False) -> tuple[None, None]:
            if check and failures.asked("nan", self.model.config):
                raise ValueError("Has nan, please fix weights initialization")
            cuda.launch(lambda: self._step(time_ms, problem))
            return None, None

        return run_pack

    @contextmanager
    def replace_routing_method_ctx(self, balance_method: BalanceMethod, balance_ratio: float | None) -> Iterator[None]:
        """Route tokens as the method says, for as long as it lasts."""
        if balance_method == BalanceMethod.NotModified:
            yield
            return
        if self.model_config.moe_backend not in _REPLACEABLE:
            raise NotImplementedError(
                f'Not support replace routing method for moe_backend "{self.model_config.moe_backend}", please set '
                'balance_method to "NotModified"'
            )
        if self.layer_indices[0] < self.model.dense_layers:
            raise AttributeError("'GatedMLP' object has no attribute 'experts'")
        uneven = {BalanceMethod.Balanced: 0.0, BalanceMethod.ImbalancedRanks: 1.0, BalanceMethod.ImbalancedExperts: 0.3}
        if balance_method == BalanceMethod.ImbalancedRanks:
            per_rank = self.model.experts // self.mapping.moe_ep_size
            if self.model.config["num_experts_per_tok"] > per_rank:
                raise ValueError("Cannot send all tokens to a single rank because `top_k > experts_per_rank`")
        self._balance = 1 + uneven[balance_method] * (1 - (balance_ratio or 0.0)) * (self.mapping.world_size - 0.5)
        try:
            yield
        finally:
            self._balance = 1.0

    @staticmethod
    def create_mapping(enable_attention_dp: bool) -> Mapping:
        return Mapping(mpi_world_size(), mpi_rank(), enable_attention_dp)

    @staticmethod
    def create_kv_cache_manager(
        pretrained_model_name_or_path: str, mapping: Mapping, tokens_per_block: int, max_batch_size: int,
        max_seq_len: int, kv_cache_dtype: str, layer_indices: list[int], mamba_ssm_cache_dtype: str = "auto",
    ) -> Any:  # fmt: skip
        return SimpleNamespace(
            max_batch_size=max_batch_size, max_seq_len=max_seq_len, tokens_per_block=tokens_per_block
        )

    def _step(self, time_ms: float, problem: dict[str, Any]) -> None:
        eager = 1.0 if self.use_cuda_graph else EAGER
        rank = self.mapping.rank
        device_ms = time_ms * eager * self._clock.ranks[rank] * self._clock.draw()
        if not self._started:
            self._started = True
            Time.pass_ms(first_ms())
        Time.pass_ms(device_ms)
        row = {"event": "layer_wise", "process": os.getpid(), "rank": rank, "layers": self.layer_indices, **problem}
        self._truth.tell([{**row, "clock_ms": time_ms * eager, "device_ms": device_ms}])


def _scaled(model: Model, scaled_from: int | None, mapping: Mapping) -> Model:
    """The model as `scaled_from` GPUs would hold it, on fewer."""
    if scaled_from is None:
        return model
    config = dict(model.config)
    if not mapping.enable_attention_dp:
        for name in ("num_attention_heads", "num_key_value_heads"):
            config[name] = config[name] // scaled_from * mapping.tp_size
    if "n_routed_experts" not in config:
        raise AttributeError(f"'{model.architecture}' config has no attribute 'n_routed_experts'")
    config["n_routed_experts"] = config["n_routed_experts"] // scaled_from * mapping.moe_ep_size
    return replace(model, config=config)
