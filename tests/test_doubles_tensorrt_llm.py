"""The double of TensorRT-LLM: its versions accept and refuse what is known of each, on a clock that is told.

Every question runs in a process of its own, as a version is one for a whole process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import yaml

DOUBLES = Path(__file__).parent / "doubles"
LAYER_WISE = DOUBLES / "layer_wise_benchmarks"
ERAS = ("1.2.1", "1.3.0rc8", "1.3.0rc24", "1.4")
LATE = ("1.3.0rc24", "1.4")
EARLY = ("1.2.1", "1.3.0rc8")

#: How every question begins; `tell` hands its answer back.
PREAMBLE = """
import json, os, sys
from pathlib import Path
def tell(value):
    Path(os.environ["ANSWER"]).write_text(json.dumps(value, default=str))
from tensorrt_llm import LLM, SamplingParams
MODEL = os.environ["MODEL"]
ARGS = json.loads(os.environ["ARGS"])
def params(**more):
    return SamplingParams(**{"max_tokens": 32, "ignore_eos": True, "end_id": -1, **more})
def prompts(number, length, start=0):
    return [[(start + 1000 * one + at) % 1000 for at in range(length)] for one in range(number)]
"""

DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 1000,
    "hidden_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
}
MOE = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1024,
}
MLA = {
    **DENSE,
    "architectures": ["DeepseekV3ForCausalLM"],
    "n_routed_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1024,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
}
ARGS: dict[str, Any] = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "max_batch_size": 8,
    "max_num_tokens": 8192,
    "max_seq_len": 8192,
    "enable_chunked_prefill": True,
    "cuda_graph_config": {"batch_sizes": [1, 2, 4, 8], "enable_padding": False},
    "kv_cache_config": {"enable_block_reuse": False, "max_tokens": 65536},
    "enable_iter_perf_stats": True,
    "print_iter_log": True,
}


class Ended(NamedTuple):
    """How a question ended."""

    code: int
    answer: Any
    out: str
    err: str
    truth: list[dict[str, Any]]


class Double:
    """Asks questions of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0

    def model(self, config: dict[str, Any], quantisation: dict[str, Any] | None = None) -> Path:
        self.asked += 1
        made = self.folder / f"model{self.asked}"
        made.mkdir()
        (made / "config.json").write_text(json.dumps(config))
        if quantisation:
            (made / "hf_quant_config.json").write_text(json.dumps({"quantization": quantisation}))
        return made

    def environment(
        self, version: str, model: Path | str, args: dict[str, Any], more: dict[str, str]
    ) -> dict[str, str]:
        self.asked += 1
        foreign = ("TRTLLM_", "TLLM_", "OMPI_", "PMI", "SLURM_")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return {
            **clean,
            "PYTHONPATH": os.pathsep.join([str(DOUBLES), str(DOUBLES.parents[1])]),
            "PYTHONWARNINGS": "error",
            "TRTLLM_DOUBLE": version,
            "TRTLLM_DOUBLE_SEED": "7",
            "TRTLLM_DOUBLE_FORM": "together",
            "TRTLLM_DOUBLE_TRUTH": str(self.folder / f"truth{self.asked}"),
            "TRTLLM_DOUBLE_PYTHON": sys.executable,
            "TLLM_LOG_LEVEL": "INFO",
            "ANSWER": str(self.folder / f"answer{self.asked}"),
            "MODEL": str(model),
            "ARGS": json.dumps(args),
            **more,
        }

    def ask(
        self, version: str, code: str, model: Path | str = "", args: dict[str, Any] | None = None,
        timeout_s: float = 60, **more: str,
    ) -> Ended:  # fmt: skip
        model = model or self.model(DENSE)
        environment = self.environment(version, model, {**ARGS, **(args or {})}, more)
        ended = subprocess.run(
            [sys.executable, "-c", PREAMBLE + code],
            env=environment, capture_output=True, text=True, timeout=timeout_s, cwd=self.folder,
        )  # fmt: skip
        return self._ended(ended, environment)

    def _ended(self, ended: subprocess.CompletedProcess[str], environment: dict[str, str]) -> Ended:
        answer, truth = Path(environment["ANSWER"]), Path(environment["TRTLLM_DOUBLE_TRUTH"])
        return Ended(
            ended.returncode,
            json.loads(answer.read_text()) if answer.exists() else None,
            ended.stdout,
            ended.stderr,
            [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else [],
        )

    def run_layers(self, version: str, config: Path, *flags: str, model: Path, **more: str) -> Ended:
        environment = self.environment(version, model, ARGS, more)
        ended = subprocess.run(
            [LAYER_WISE / "run.sh", config, "--model", model, *flags],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        return self._ended(ended, environment)


@pytest.fixture
def double(tmp_path: Path) -> Double:
    return Double(tmp_path)


RUN = """
with LLM(MODEL, **ARGS) as llm:
    outputs = llm.generate(prompts(8, 1024), params())
    tell({"lengths": [len(one.outputs[0].token_ids) for one in outputs],
        "stats": llm.get_stats(2), "again": llm.get_stats(2)})
"""


def iterations(ended: Ended, rank: int = 0) -> list[dict[str, Any]]:
    return [row for row in ended.truth if row["event"] == "iteration" and row["rank"] == rank]


# --- What a version is ---


@pytest.mark.parametrize("version", ERAS)
def test_a_version_says_what_it_is(double: Double, version: str) -> None:
    code = """
import importlib.util, tensorrt_llm
from typing import get_args
from tensorrt_llm.llmapi import TorchLlmArgs, LlmArgs, KvCacheConfig, CudaGraphConfig, MoeConfig
tell({
    "version": tensorrt_llm.__version__, "double": tensorrt_llm.__double__,
    "engine": importlib.util.find_spec("tensorrt_llm._tensorrt_engine") is not None,
    "layer_wise": importlib.util.find_spec("tensorrt_llm.tools.layer_wise_benchmarks") is not None,
    "moe": get_args(MoeConfig.model_fields["backend"].annotation),
    "sampler": "sampler_type" in TorchLlmArgs.model_fields,
    "same": TorchLlmArgs is LlmArgs, "torch": "torch" in sys.modules, "gpu": tensorrt_llm._double.gpu_name(),
})
"""
    answer = double.ask(version, code).answer
    assert (answer["version"], answer["double"], answer["same"], answer["torch"]) == (version, True, True, False)
    assert answer["gpu"] == "NVIDIA B200"
    assert answer["engine"] == (version in EARLY)
    assert answer["layer_wise"]
    assert answer["sampler"] == (version != "1.4")
    assert ("WIDEEP" in answer["moe"], "AUTO" in answer["moe"]) == (version != "1.4", version != "1.2.1")


def test_facts_can_be_altered_and_only_facts(double: Double) -> None:
    code = """
import importlib.util
from tensorrt_llm.llmapi import TorchLlmArgs
tell([
    "max_stats_len" in TorchLlmArgs.model_fields,
    importlib.util.find_spec("tensorrt_llm.tools.layer_wise_benchmarks") is not None])
"""
    alter = "missing_field=max_stats_len; layer_wise=false"
    assert double.ask("1.4", code, TRTLLM_DOUBLE_ALTER=alter).answer == [False, False]
    assert "facts are version, schema, engine_backend" in double.ask("1.4", "", TRTLLM_DOUBLE_ALTER="moon=full").err
    assert "it can be 1.2.1, 1.3.0rc8" in double.ask("1.1", "").err


@pytest.mark.parametrize(
    ("version", "build", "backends"),
    [("1.2.1", 0, "[pytorch|_autodeploy|tensorrt]"), ("1.4", 127, "[pytorch|_autodeploy]")],
)
def test_commands_have_the_options_of_their_version(double: Double, version: str, build: int, backends: str) -> None:
    def call(*command: str) -> subprocess.CompletedProcess[str]:
        environment = double.environment(version, "", {}, {})
        return subprocess.run(
            [DOUBLES / "bin" / command[0], *command[1:]], env=environment, capture_output=True, text=True
        )

    assert backends in call("trtllm-bench", "--model", "m", "throughput", "--help").stdout
    assert call("trtllm-serve", "--help").returncode == 0
    assert call("trtllm-build", "--help").returncode == build
    refused = call("trtllm-bench", "--model", "m", "throughput", "--load_format", "dummy")
    assert (refused.returncode, "No such option" in refused.stderr) == (2, True)


# --- Statistics, log, clock ---


@pytest.mark.parametrize("version", ERAS)
def test_records_have_the_keys_of_their_version(double: Double, version: str) -> None:
    answer = double.ask(version, RUN).answer
    assert answer["lengths"] == [32] * 8
    assert answer["again"] == []
    stats = answer["stats"]
    decodes = [one for one in stats if one["inflightBatchingStats"]["numContextRequests"] == 0]
    assert [one["inflightBatchingStats"]["numGenRequests"] for one in decodes] == [8] * 31
    contexts = [one["inflightBatchingStats"]["numCtxTokens"] for one in stats if one not in decodes]
    assert contexts == [8192]
    assert stats[0]["iter"] == (2 if version in EARLY else 1)
    assert ("prevDeviceStepTimeMS" in stats[0], "schedulerMode" in stats[0]) == (version in LATE,) * 2
    assert ("gpuForwardTimeMS" in stats[0], "statsDroppedFrames" in stats[0]) == (version == "1.4",) * 2
    assert ("numGenKvTokens" in stats[0]["inflightBatchingStats"]) == (version == "1.4")
    assert stats[0]["specDecodingStats"] is None


def test_device_time_lags_one_row(double: Double) -> None:
    ended = double.ask("1.4", RUN)
    device_ms = [row["device_ms"] for row in iterations(ended)]
    assert [one["gpuForwardTimeMS"] for one in ended.answer["stats"]] == device_ms
    assert [one["prevDeviceStepTimeMS"] for one in ended.answer["stats"]] == [None, *device_ms[:-1]]
    at_once = double.ask("1.4", RUN, TRTLLM_DOUBLE_ALTER="stats_lag=0").answer["stats"]
    assert [one["prevDeviceStepTimeMS"] for one in at_once] == device_ms


def test_the_naive_reading_is_wrong(double: Double) -> None:
    """`iterLatencyMS` spans two loops with the overlap scheduler, and the first iteration takes 30 s."""
    ended = double.ask("1.3.0rc24", RUN)
    rows, stats = iterations(ended), ended.answer["stats"]
    truth_ms = statistics.median(row["device_ms"] for row in rows if row["generations"])
    latency_ms = statistics.median(one["iterLatencyMS"] for one in stats)
    assert latency_ms > 1.9 * truth_ms
    assert rows[0]["device_ms"] > 30_000
    assert [row["first"] for row in rows] == [True] + [False] * 31


def test_the_clock_is_the_roofline(double: Double) -> None:
    """Without noise, 8 sequences with 1040 cached tokens take 1.15 times what the harness' roofline says."""
    from harness.cost.decompose import decompose
    from harness.hardware import load_system
    from harness.pricing.roofline import RooflinePricer
    from harness.spec.case import Case
    from harness.spec.variant import Variant
    from harness.spec.workload import Decode

    ended = double.ask("1.4", RUN, TRTLLM_DOUBLE_NOISE="0,0,0")
    row = iterations(ended)[17]
    assert (row["generations"], row["kv_mean"], row["device_ms"]) == (8, 1040.0, row["clock_ms"])
    shape = Variant(layers=8, hidden=4096, q_heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=1000)
    case = Case(variant=shape, workload=Decode(phase="decode", batch=8, kvsl=1040), system="b200_sxm")
    pricer = RooflinePricer(load_system("b200_sxm"))
    times_ms = [op.count * limit.time_ms for op in decompose(case) if (limit := pricer.time(op.kernel))]
    assert row["clock_ms"] == pytest.approx(1.15 * sum(times_ms))


def test_a_seed_repeats_and_processes_differ(double: Double) -> None:
    def device_ms(**more: str) -> list[float]:
        ended = double.ask("1.4", RUN, model=model, **more)
        return [row["device_ms"] for row in iterations(ended)]

    model = double.model(DENSE)
    assert device_ms() == device_ms()
    assert device_ms() != device_ms(TRTLLM_DOUBLE_SEED="8")
    shared = {"TRTLLM_DOUBLE_TRUTH": str(double.folder / "shared")}
    both = [device_ms(**shared), device_ms(**shared)[32:]]
    assert len(both[0]) == len(both[1]) == 32
    assert both[0] != both[1]


LINES = {
    "elapsed": r"currank_total_requests = 0/8, elapsed_time = [\d.]+s, "
    r"timestamp = [^,]+, num_scheduled_requests: 8, states",
    "classic": r"currank_total_requests = 0/8, host_step_time = [\d.]+ms, prev_device_step_time = [\d.]+ms, "
    r"timestamp = [^,]+, num_scheduled_requests: 8, states = ",
    "util": r"num_scheduled_requests = 8, kv_cache_util = 0\.\d+, currank_total_requests = 0/8, "
    r"host_step_time = [\d.]+ms, prev_device_step_time = [\d.]+ms, timestamp = [^,]+, states = {[^}]+}$",
    "extended": r"num_scheduled_requests = 8, .*, num_active = 8, num_fetched = 0, num_dummy = 0, num_unscheduled = 0$",
}


@pytest.mark.parametrize(
    ("version", "form", "alter"),
    [
        ("1.2.1", "classic", ""),
        ("1.3.0rc8", "classic", ""),
        ("1.3.0rc24", "extended", ""),
        ("1.4", "extended", ""),
        ("1.2.1", "elapsed", "iter_log=elapsed"),
        ("1.4", "util", "iter_log=util"),
    ],
)
def test_the_iteration_log_has_the_form_of_its_version(double: Double, version: str, form: str, alter: str) -> None:
    ended = double.ask(version, RUN, TRTLLM_DOUBLE_ALTER=alter)
    lines = [line for line in ended.out.splitlines() if "iter = " in line]
    # 1 prefill, 31 decode steps, and the loop that schedules nothing.
    assert len(lines) == 33
    assert re.search(LINES[form], lines[10])
    assert ("'cached_kv_tokens': " in lines[10]) == (version in LATE)
    if form != "elapsed":
        assert ("prev_device_step_time = N/Ams" in lines[0]) == (form == "classic")
        # The line after the last iteration has its time.
        last_ms = iterations(ended)[-1]["device_ms"]
        assert f"prev_device_step_time = {last_ms}ms" in lines[-1]
    assert re.search(r"num_scheduled_requests(:| =) 0", lines[-1])


def test_nothing_is_logged_at_the_default_level(double: Double) -> None:
    assert double.ask("1.2.1", RUN, TLLM_LOG_LEVEL="").out == ""


def test_a_graph_is_filled_up_in_the_log_alone(double: Double) -> None:
    args = {"cuda_graph_config": {"batch_sizes": [8], "enable_padding": True}}
    code = RUN.replace("prompts(8", "prompts(5")
    ended = double.ask("1.2.1", code, args=args)
    assert ended.out.count("'num_generation_tokens': 8}") == 31
    assert {one["inflightBatchingStats"]["numGenRequests"] for one in ended.answer["stats"]} == {0, 5}
    assert {(row["generations"], row["padded"]) for row in iterations(ended)} == {(0, 0), (5, 8)}
    honest = double.ask("1.2.1", code, args=args, TRTLLM_DOUBLE_ALTER="graph_padding_in_log=false")
    assert honest.out.count("'num_generation_tokens': 5}") == 31


def test_a_batch_may_form_late(double: Double) -> None:
    ended = double.ask("1.3.0rc24", RUN, TRTLLM_DOUBLE_FORM="late")
    rows = iterations(ended)
    assert rows[0]["contexts"] < 8
    assert max(row["generations"] for row in rows) == 8
    assert any(row["contexts"] and row["generations"] for row in rows)
    waits = double.ask("1.3.0rc24", RUN, args={"batch_wait_timeout_iters": 10}, TRTLLM_DOUBLE_FORM="late")
    assert iterations(waits)[0]["contexts"] == 8


def test_long_prompts_come_in_chunks(double: Double) -> None:
    code = RUN.replace("prompts(8, 1024)", "prompts(2, 5000)")
    rows = iterations(double.ask("1.4", code))
    assert [(row["contexts"], row["context_tokens"], row["generations"]) for row in rows[:3]] == [
        (2, 5000 + 3136, 0),  # 3192 tokens are left of 8192: 49 units of 64
        (1, 1864, 1),
        (0, 0, 2),
    ]
    refused = double.ask(
        "1.4", code.replace("5000", "8192"), args={"enable_chunked_prefill": False, "max_num_tokens": 4096}
    )
    assert "should not exceed max_num_tokens (4096)" in refused.err


def test_the_ring_drops_the_oldest_and_the_latest_version_says_so(double: Double) -> None:
    stats = double.ask("1.4", RUN, args={"max_stats_len": 10}).answer["stats"]
    assert [one["iter"] for one in stats] == list(range(23, 33))
    assert stats[-1]["statsDroppedFrames"] == 21
    kept = double.ask("1.4", RUN, args={"max_stats_len": 10}, TRTLLM_DOUBLE_ALTER="ring_keeps=oldest").answer["stats"]
    assert [one["iter"] for one in kept] == list(range(1, 11))
    assert double.ask("1.4", RUN, args={"enable_iter_perf_stats": False}).answer["stats"] == []


def test_equal_prompts_hit_the_cache_where_reuse_is_on(double: Double) -> None:
    code = """
with LLM(MODEL, **ARGS) as llm:
    for _ in range(2):
        llm.generate(prompts(2, 1024), params(max_tokens=1))
    tell([one["kvCacheStats"]["reusedBlocks"] for one in llm.get_stats()])
"""
    assert double.ask("1.2.1", code).answer == [0, 0]
    reusing = {"kv_cache_config": {"max_tokens": 65536}}
    # The last block of 32 is computed again, so that there is something to compute.
    assert double.ask("1.2.1", code, args=reusing).answer == [0, 62]


def test_metrics_of_a_request(double: Double) -> None:
    code = """
with LLM(MODEL, **ARGS) as llm:
    out = llm.generate(prompts(1, 100)[0], params(return_perf_metrics=True))
    found = out.outputs[0].request_perf_metrics
    times = found and found.timing_metrics
    seconds = found and (times.last_token_time - times.first_token_time).total_seconds()
    tell(found and [seconds * 1000, found.first_iter, found.last_iter])
"""
    ended = double.ask("1.2.1", code, args={"return_perf_metrics": True})
    rows = iterations(ended)
    assert ended.answer == [pytest.approx(sum(row["device_ms"] for row in rows[1:]), rel=1e-4), 1, 32]
    assert double.ask("1.2.1", code).answer is None


def test_eos_is_for_the_caller_to_ignore(double: Double) -> None:
    code = """
with LLM(MODEL, **ARGS) as llm:
    def lengths(**more):
        return [len(one.outputs[0].token_ids) for one in llm.generate(prompts(8, 64), params(max_tokens=200, **more))]
    tell([lengths(), lengths(ignore_eos=False), lengths(ignore_eos=False, end_id=2)])
    try:
        llm.generate(prompts(1, 64), params(end_id=None))
    except ValueError as error:
        print(error, file=sys.stderr)
"""
    ended = double.ask("1.4", code)
    ignored, never, heard = ended.answer
    assert ignored == never == [200] * 8
    assert min(heard) < 200
    assert "tokenizer is required to reset end_id if it is None" in ended.err


def test_prompts_and_parameters_are_checked(double: Double) -> None:
    code = """
with LLM(MODEL, **ARGS) as llm:
    found = []
    for inputs, given in (([[1000]], params), (["text"], params), ([list(range(5)), [1]], lambda: [params()])):
        try:
            llm.generate(inputs, given())
        except ValueError as error:
            found.append(str(error))
    one = llm.generate({"prompt_token_ids": [1, 2, 3]}, params(max_tokens=3))
    capped = llm.generate(prompts(1, 8190), params())[0]
    tell([found, one.outputs[0].length, one.outputs[0].finish_reason, capped.outputs[0].length])
try:
    SamplingParams(max_new_tokens=3)
except TypeError as error:
    print(error, file=sys.stderr)
"""
    ended = double.ask("1.4", code)
    found, length, reason, capped = ended.answer
    assert found[0] == "Token ID out of range"
    assert found[1] == "tokenizer is required to tokenize string prompt"
    assert found[2] == "sampling_params has 1 items for 2 prompts"
    assert (length, reason, capped) == (3, "length", 2)
    assert "unexpected keyword argument 'max_new_tokens'" in ended.err


# --- What is refused ---

OPEN = "LLM(MODEL, **ARGS).shutdown(); tell('open')"


@pytest.mark.parametrize("version", ERAS)
def test_unknown_settings_are_refused_at_every_level(double: Double, version: str) -> None:
    for args in ({"max_batch": 8}, {"kv_cache_config": {"block_reuse": False}}):
        ended = double.ask(version, OPEN, args=args)
        assert ended.code == 1
        assert "validation error for TorchLlmArgs" in ended.err
        assert "Extra inputs are not permitted" in ended.err


class Refusal(NamedTuple):
    config: dict[str, Any]
    quantisation: dict[str, Any] | None
    args: dict[str, Any]
    text: str
    gpu: str = "b200_sxm"


BLOCKS = {"quant_algo": "FP8_BLOCK_SCALES", "group_size": 128, "exclude_modules": ["lm_head"]}
NVFP4 = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
REFUSALS = {
    "heads": Refusal({**DENSE, "num_attention_heads": 20}, None, {"tensor_parallel_size": 8}, "AssertionError"),
    "experts": Refusal(
        {**MOE, "num_experts": 60}, None, {"tensor_parallel_size": 8, "moe_expert_parallel_size": 8},
        "num_experts 60 must be divisible by ep_size 8",
    ),
    "mapping": Refusal(
        MOE, None, {"tensor_parallel_size": 4, "moe_expert_parallel_size": 2, "moe_tensor_parallel_size": 1},
        "but got 4 != 1 * 2",
    ),
    "nvfp4 columns": Refusal(
        {**DENSE, "hidden_size": 4104}, NVFP4, {}, "in_features 4104 must be divisible by scaling_vector_size 16"
    ),
    "blocks": Refusal(MOE, BLOCKS, {"moe_config": {"backend": "CUTLASS"}}, "fp8 blockscale gemm only support Hopper"),
    "kv": Refusal(
        DENSE, {"quant_algo": None, "kv_cache_quant_algo": "NVFP4"}, {}, "NVFP4 KV cache is only supported", "h200_sxm"
    ),
    "deepgemm": Refusal(
        MOE, BLOCKS, {"moe_config": {"backend": "DEEPGEMM"}}, "DEEPGEMM MoE backend is not supported on SM 90",
        "h200_sxm",
    ),
    "architecture": Refusal({**DENSE, "architectures": ["GptForCausalLM"]}, None, {}, "Unknown architecture"),
    "no weights": Refusal(DENSE, None, {"load_format": "auto"}, "No weight files found in"),
    "length": Refusal(DENSE, None, {"max_seq_len": 200_000}, "TLLM_ALLOW_LONG_MAX_MODEL_LEN"),
    "gpus": Refusal(
        {**DENSE, "num_key_value_heads": 32}, None, {"tensor_parallel_size": 16}, "Only 8 GPUs are available, but 16"
    ),
    "graphs": Refusal(
        DENSE, None, {"cuda_graph_config": {"batch_sizes": [1, 4], "max_batch_size": 8}}, "max_batch_size must equal"
    ),
    "helix": Refusal(
        MLA, None,
        {"context_parallel_size": 2, "cp_config": {"cp_type": "HELIX", "tokens_per_block": 32}},
        "Helix parallelism is for the generation server",
    ),
    "tokenizer": Refusal(DENSE, None, {"skip_tokenizer_init": False}, "Can't load tokenizer"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_run_is_refused(double: Double, name: str) -> None:
    one = REFUSALS[name]
    ended = double.ask(
        "1.4", OPEN, model=double.model(one.config, one.quantisation), args=one.args, TRTLLM_DOUBLE_GPU=one.gpu
    )  # fmt: skip
    assert (ended.code, ended.answer) == (1, None)
    assert one.text in ended.err


@pytest.mark.parametrize(("version", "code"), [("1.2.1", -signal.SIGABRT), ("1.3.0rc24", 1)])
def test_a_head_size_without_kernel_aborts_the_early_versions(double: Double, version: str, code: int) -> None:
    ended = double.ask(version, OPEN, model=double.model({**DENSE, "head_dim": 72}))
    assert ended.code == code
    assert "Head size 72 is not supported by MMHA" in ended.err
    assert ("Traceback" in ended.err) == (code == 1)
    always = double.ask(version, OPEN, model=double.model({**DENSE, "head_dim": 192}))
    assert (always.code, "Unsupported HeadDim for BMM2-N 192" in always.err) == (-signal.SIGABRT, True)


@pytest.mark.parametrize("version", ERAS)
def test_nvfp4_on_hopper_runs_from_the_middle_of_1_3(double: Double, version: str) -> None:
    ended = double.ask(version, RUN, model=double.model(DENSE, NVFP4), TRTLLM_DOUBLE_GPU="NVIDIA H200")
    if version in LATE:
        assert ended.answer["lengths"] == [32] * 8
    else:
        assert "FP4 Gemm not supported before Blackwell" in ended.err


@pytest.mark.parametrize("version", ERAS)
def test_wide_ep_with_a_load_balancer(double: Double, version: str) -> None:
    """WIDEEP runs in the early versions, is refused when the model is built in the next, and unknown to the last."""
    balancer = double.folder / "balancer.yaml"
    layers = {layer: [slot % 64 for slot in range(72)] for layer in range(8)}
    balancer.write_text(
        yaml.safe_dump({"num_slots": 72, "initial_global_assignments": layers, "layer_updates_per_iter": 0})
    )
    args = {
        "tensor_parallel_size": 8,
        "moe_expert_parallel_size": 8,
        "enable_attention_dp": True,
        "moe_config": {"backend": "WIDEEP", "load_balancer": str(balancer)},
    }
    model = double.model(MOE)
    ended = double.ask(version, OPEN, model=model, args=args)
    texts = {"1.3.0rc24": "WIDEEP is no longer supported", "1.4": "Input should be 'AUTO', 'CUTLASS'"}
    assert ended.answer == (None if version in texts else "open")
    assert texts.get(version, "") in ended.err
    args["moe_config"]["backend"] = "CUTLASS"  # type: ignore[index]
    assert double.ask(version, OPEN, model=model, args=args).answer == "open"
    balancer.write_text(yaml.safe_dump({"num_slots": 70}))
    assert "num_slots 70 must be divisible by ep_size 8" in double.ask(version, OPEN, model=model, args=args).err
    del layers[3]
    balancer.write_text(yaml.safe_dump({"num_slots": 72, "initial_global_assignments": layers}))
    assert "KeyError: 3" in double.ask(version, OPEN, model=model, args=args).err


def test_helix_takes_mla_alone_in_1_2(double: Double) -> None:
    args = {"context_parallel_size": 2, "cp_config": {"cp_type": "HELIX", "tokens_per_block": 32}}
    accepted = {"TRTLLM_DOUBLE_ALTER": "helix_alone=accepted"}
    assert double.ask("1.2.1", OPEN, model=double.model(MLA), args=args, **accepted).answer == "open"
    assert "only supported with MLA" in double.ask("1.2.1", OPEN, args=args, **accepted).err
    assert double.ask("1.3.0rc8", OPEN, args=args, **accepted).answer == "open"


# --- Draft tokens ---


@pytest.mark.parametrize(
    ("version", "spec"),
    [
        ("1.2.1", {"decoding_type": "MTP", "num_nextn_predict_layers": 3}),
        ("1.3.0rc24", {"decoding_type": "MTP", "max_draft_len": 3}),
        ("1.4", {"decoding_type": "MTP", "max_draft_len": 3}),
    ],
)
def test_forced_acceptance(double: Double, version: str, spec: dict[str, Any]) -> None:
    args = {"speculative_config": spec}
    forced = {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "2"}
    model = double.model(MLA)
    stats = double.ask(version, RUN, model=model, args=args, **forced).answer["stats"]
    drafts = [one["specDecodingStats"] for one in stats if one["inflightBatchingStats"]["numGenRequests"]]
    # 31 tokens after the first, 3 a step.
    assert len(drafts) == 11
    assert {(one["numDraftTokens"], one["numAcceptedTokens"], one["acceptanceLength"]) for one in drafts} == {
        (24, 16, 3.0)
    }
    fraction = double.ask(version, RUN, model=model, args=args, TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS="1.5")
    if version == "1.2.1":
        assert "invalid literal for int() with base 10: '1.5'" in fraction.err
    else:
        taken = [row["accepted"] / row["generations"] for row in iterations(fraction) if row["generations"]]
        assert 1.2 < statistics.mean(taken) < 1.8
    ignored = double.ask(
        version, RUN, model=model, args=args, TRTLLM_DOUBLE_ALTER="forced_acceptance=ignored", **forced
    )
    assert {row["accepted"] for row in iterations(ignored)} == {0}


def test_random_tokens_seldom_match_an_n_gram(double: Double) -> None:
    args = {"speculative_config": {"decoding_type": "NGram", "max_draft_len": 3}}
    stats = double.ask("1.2.1", RUN, args=args).answer["stats"]
    drafted = [one["specDecodingStats"]["numDraftTokens"] for one in stats[1:]]
    assert 0 < sum(drafted) < 24 * len(drafted)
    refused = double.ask("1.2.1", RUN, args={"speculative_config": {"decoding_type": "MTP"}})
    assert "MTP needs num_nextn_predict_layers" in refused.err


# --- Several ranks ---


def test_ranks_are_processes_and_leave_with_shutdown(double: Double) -> None:
    code = """
llm = LLM(MODEL, **ARGS)
pids = llm._ranks.pids
alive = [os.path.exists(f"/proc/{pid}") for pid in pids]
llm.generate(prompts(2, 64), params(max_tokens=4))
llm.shutdown()
tell([alive, [os.path.exists(f"/proc/{pid}") for pid in pids]])
"""
    ended = double.ask("1.2.1", code, args={"tensor_parallel_size": 4}, TLLM_PROFILE_LOG_RANKS="all")
    assert ended.answer == [[True] * 3, [False] * 3]
    assert [ended.out.count(f"global_rank = {rank},") for rank in range(4)] == [5] * 4
    rows = [row for row in ended.truth if row["event"] == "iteration" and row["iteration"] == 4]
    assert [row["rank"] for row in rows] == [0, 1, 2, 3]
    assert len({row["device_ms"] for row in rows}) == 4


def test_a_killed_leader_takes_its_ranks_along_unless_they_leak(double: Double) -> None:
    code = """
llm = LLM(MODEL, **ARGS)
tell(llm._ranks.pids)
os.kill(os.getpid(), 9)
"""
    args = {"tensor_parallel_size": 2}
    [pid] = double.ask("1.2.1", code, args=args).answer
    ends = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < ends:
        time.sleep(0.01)
    assert time.monotonic() < ends
    model = double.model(DENSE)
    environment = double.environment("1.2.1", model, {**ARGS, **args}, {"TRTLLM_DOUBLE_FAIL": "leak"})
    leader = subprocess.run([sys.executable, "-c", PREAMBLE + code], env=environment, capture_output=False)
    assert leader.returncode == -signal.SIGKILL
    leaked = psutil.Process(json.loads(Path(environment["ANSWER"]).read_text())[0])
    try:
        assert leaked.is_running()
    finally:
        leaked.kill()


def test_a_dead_rank_takes_the_leader_along(double: Double) -> None:
    code = """
llm = LLM(MODEL, **ARGS)
os.kill(llm._ranks.pids[0], 9)
llm.generate(prompts(2, 64), params(max_tokens=4))
"""
    ended = double.ask("1.2.1", code, args={"tensor_parallel_size": 2})
    assert (ended.code, "MPI_ABORT was invoked on rank 1" in ended.err) == (1, True)
    assert "Traceback" not in ended.err


def test_inherited_variables_of_a_job_leave_no_slots(double: Double) -> None:
    args = {"tensor_parallel_size": 2}
    ended = double.ask("1.2.1", OPEN, args=args, SLURM_NTASKS="1")
    assert (ended.code, "There are not enough slots available in the system" in ended.err) == (1, True)
    under_mpi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    assert "only rank 0 can start multi-node session, got 1" in double.ask("1.2.1", OPEN, args=args, **under_mpi).err
    three = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}
    assert "got 2 vs 3" in double.ask("1.2.1", OPEN, args=args, **three).err


def test_the_launcher_joins_the_ranks_of_an_mpi_job(double: Double) -> None:
    """As `mpirun -n 2 trtllm-llmapi-launch python script.py` would start them."""
    script = double.folder / "script.py"
    script.write_text(PREAMBLE + RUN)
    environment = double.environment(
        "1.2.1", double.model(DENSE), {**ARGS, "tensor_parallel_size": 2}, {"TLLM_PROFILE_LOG_RANKS": "all"}
    )
    job = {**environment, "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": f"job{os.getpid()}"}
    launcher = [sys.executable, DOUBLES / "bin" / "trtllm-llmapi-launch", sys.executable, script]
    ranks = [
        subprocess.Popen(launcher, env={**job, "OMPI_COMM_WORLD_RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert json.loads(Path(environment["ANSWER"]).read_text())["lengths"] == [32] * 8
    assert [text.count("global_rank = 0,") for text in outputs] == [33, 0]
    assert [text.count("global_rank = 1,") for text in outputs] == [0, 33]


def test_attention_dp_spreads_sequences_and_the_latest_version_records_each_rank(double: Double) -> None:
    args = {"tensor_parallel_size": 2, "moe_expert_parallel_size": 2, "enable_attention_dp": True}
    model = double.model(MOE)
    ended = double.ask("1.4", RUN.replace("prompts(8", "prompts(7"), model=model, args=args)
    stats = [one for one in ended.answer["stats"] if one["inflightBatchingStats"]["numGenRequests"]]
    counts = {(one["rank"], one["attentionDpRank"], one["inflightBatchingStats"]["numGenRequests"]) for one in stats}
    assert counts == {(0, 0, 4), (1, 1, 3)}
    device_ms = {
        (row["rank"], row["iteration"]): row["device_ms"] for row in ended.truth if row["event"] == "iteration"
    }
    assert all(one["gpuForwardTimeMS"] == device_ms[one["rank"], one["iter"]] for one in stats)
    early = double.ask("1.3.0rc24", RUN, model=model, args=args).answer["stats"]
    assert len(early) == 32


# --- Failures on demand ---


@pytest.mark.parametrize(
    ("failure", "code", "text", "traceback"),
    [
        (
            "oom:KV cache",
            1,
            "The following component could not be created: KV cache\nTotal GPU memory (GiB): 179.06",
            True,
        ),
        ("oom:Model", 1, "RuntimeError: Executor creation failed due to insufficient GPU memory.\n\n", True),
        ("torch-oom", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", True),
        ("torch-oom:run:5", 1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", True),
        ("native-abort:72", -signal.SIGABRT, "Head size 72 is not supported by MMHA.", False),
        ("nccl", 1, "Executor creation failed with NCCL error: ", True),
        ("mpi-abort", 1, "MPI_ABORT was invoked on rank 0", False),
        ("mpi-abort:run:5", 1, "MPI_ABORT was invoked on rank 0", False),
        ("shm", -signal.SIGBUS, "Caught signal 7 (Bus error", False),
        ("eplb", 1, "madvise(MADV_HUGEPAGE) failed.", True),
        ("validation", 1, "Extra inputs are not permitted", True),
        ("slots", 1, "There are not enough slots available in the system", False),
        ("root", 1, "mpirun has detected an attempt to run as root", False),
    ],
)
def test_failures_end_as_the_real_ones(double: Double, failure: str, code: int, text: str, traceback: bool) -> None:
    ended = double.ask("1.2.1", RUN, TRTLLM_DOUBLE_FAIL=failure)
    assert (ended.code, ended.answer) == (code, None)
    assert text in ended.err
    assert ("Traceback" in ended.err) == traceback


def test_a_failure_may_concern_some_models_only(double: Double) -> None:
    failure = {"TRTLLM_DOUBLE_FAIL": "nccl@num_key_value_heads=4; oom@num_key_value_heads=2"}
    assert double.ask("1.2.1", OPEN, **failure).answer == "open"
    other = double.model({**DENSE, "num_key_value_heads": 4})
    assert "NCCL" in double.ask("1.2.1", OPEN, model=other, **failure).err
    assert "failures are oom, torch-oom" in double.ask("1.2.1", OPEN, TRTLLM_DOUBLE_FAIL="flood").err


@pytest.mark.parametrize(("failure", "logged"), [("hang:start", 0), ("hang:run:5", 4)])
def test_a_hang_is_silent(double: Double, failure: str, logged: int) -> None:
    environment = double.environment("1.2.1", double.model(DENSE), ARGS, {"TRTLLM_DOUBLE_FAIL": failure})
    truth = Path(environment["TRTLLM_DOUBLE_TRUTH"])
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + "print('here', flush=True)\n" + RUN],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        lines = 0
        while lines < logged or logged == 0:
            line = process.stdout.readline()
            if line.startswith("here") and logged == 0:
                break
            lines += "iter = " in line
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        told = truth.read_text().count('"event": "iteration"') if truth.exists() else 0
        assert told == logged
    finally:
        process.kill()
        process.communicate()


def test_quiet_failures_change_what_is_answered(double: Double) -> None:
    wrong = double.ask("1.4", RUN, TRTLLM_DOUBLE_FAIL="wrong-length").answer["lengths"]
    assert min(wrong) < 32
    reused = double.ask("1.4", RUN, TRTLLM_DOUBLE_FAIL="reuse").answer["stats"]
    assert reused[0]["kvCacheStats"]["reusedBlocks"] == 8 * 16
    assert reused[0]["inflightBatchingStats"]["numCtxTokens"] == 4096
    lost = double.ask("1.4", RUN, TRTLLM_DOUBLE_FAIL="lost-stats")
    numbers = [one["iter"] for one in lost.answer["stats"]]
    assert numbers == [1, 3, 4, 5, *range(11, 33)]
    assert lost.answer["stats"][-1]["statsDroppedFrames"] == 6
    assert lost.out.count("iter = ") == 33 - 6


# --- Layer by layer ---

RESULT = re.compile(
    r"^\[RANK 0\]  batch_size (\d+)  seq_len_q (\d+)  seq_len_kv_cache (\d+)  mean [\d.]+  median ([\d.]+)  "
    r"min [\d.]+  max [\d.]+  P90 [\d.]+  \(us\)$"
)


@pytest.mark.parametrize("version", ERAS)
def test_layers_are_timed_for_every_problem_in_one_process(double: Double, version: str) -> None:
    ended = double.run_layers(
        version, LAYER_WISE / "config_gen.yaml", "--batch-size", "1,8", "--seq-len-q", "1,4",
        "--seq-len-kv-cache", "4096", "--balance-method", "NotModified", model=double.model(DENSE),
    )  # fmt: skip
    lines = ended.out.splitlines()
    assert lines[0].startswith("Namespace(model=")
    found = [match.groups() for line in lines if (match := RESULT.match(line))]
    assert [one[:3] for one in found] == [(batch, query, "4096") for batch in "18" for query in "14"]
    for batch, query, _, median_us in found:
        rows = [row for row in ended.truth if row.get("run_type") == "GEN" and row["batch"] == int(batch)]
        truth = [row["device_ms"] * 1000 for row in rows if row["q"] == int(query)]
        assert float(median_us) == pytest.approx(statistics.median(truth[-100:]), abs=0.06)


def test_the_layer_wise_command_refuses(double: Double) -> None:
    model = double.model(DENSE)
    strange = double.folder / "strange.yaml"
    strange.write_text((LAYER_WISE / "config_gen.yaml").read_text() + "batch_sizes: [1]\n")
    refused = double.run_layers("1.4", strange, model=model)
    assert "ValueError: Config batch_sizes from file are not options" in refused.err
    dense = double.run_layers("1.4", LAYER_WISE / "config_gen.yaml", model=model)
    assert "AttributeError: 'GatedMLP' object has no attribute 'experts'" in dense.err
    sparse = double.model(MOE)
    triton = double.run_layers("1.4", LAYER_WISE / "config_gen.yaml", "--moe-backend", "TRITON", model=sparse)
    assert 'Not support replace routing method for moe_backend "TRITON"' in triton.err
    flag = double.run_layers("1.2.1", LAYER_WISE / "config_gen.yaml", "--replay-file-path", "x", model=sparse)
    assert (flag.code, "unrecognized arguments" in flag.err) == (2, True)
    scaled = double.run_layers("1.4", LAYER_WISE / "config_gen.yaml", "--scaled-from", "8", model=sparse)
    assert "has no attribute 'n_routed_experts'" in scaled.err
    nan = double.run_layers("1.4", LAYER_WISE / "config_ctx.yaml", model=sparse, TRTLLM_DOUBLE_FAIL="nan")
    assert "Has nan, please fix weights initialization" in nan.err


def test_prefill_of_a_layer_with_experts(double: Double) -> None:
    ended = double.run_layers("1.3.0rc8", LAYER_WISE / "config_ctx.yaml", model=double.model(MOE))
    assert len([line for line in ended.out.splitlines() if RESULT.match(line)]) == 1
    one = double.model(MLA)
    ended = double.run_layers("1.4", LAYER_WISE / "config_gen.yaml", "--scaled-from", "8", model=one)
    assert ended.code == 0, ended.err
