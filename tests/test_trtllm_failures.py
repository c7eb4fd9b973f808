"""Failures of TensorRT-LLM are recognised by what they write."""

from __future__ import annotations

import re

import pytest

from harness.backends.registry import known_failures
from harness.backends.trtllm.failures import failure_facts, recognise, signatures
from harness.runner.exits import SIGNATURES, classify, match_signature

OOM_AT_START = """\
Traceback (most recent call last):
  File "py_executor_creator.py", line 110, in observe_creation_stage
    raise RuntimeError(explanation) from e
RuntimeError: Executor creation failed due to insufficient GPU memory.

The following component could not be created: KV cache
Total GPU memory (GiB): 178.35
Free GPU memory before component creation attempt (GiB): 2.11

Previously created components and free GPU memory before/after creation (GiB):
Model: 176.00 / 2.11

Please refer to the TensorRT LLM documentation for information on how to control the memory usage through TensorRT LLM
"""
MPI_ABORT = """\
--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD
with errorcode 1.
"""
#: What is written → class, status, reason.
WRITTEN = [
    (OOM_AT_START, "oom at start", "oom", "out of GPU memory while creating KV cache: 2.11 of 178.35 GiB were free"),
    (OOM_AT_START + MPI_ABORT, "oom at start", "oom", "out of GPU memory while creating KV cache"),
    (
        "[E] Executor creation failed due to insufficient GPU memory.\n",
        "oom at start",
        "oom",
        "Executor creation failed",
    ),
    (
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. GPU 3 has a total capacity "
            "of 7.70 GiB of which 42.69 MiB is free. Including non-PyTorch memory"
        ),
        "oom",
        "oom",
        "out of GPU memory: 48.00 MiB asked for, 42.69 MiB of 7.70 GiB free on GPU 3",
    ),
    ("[TensorRT-LLM][ERROR] CUDA runtime error in cudaMalloc: out of memory", "oom", "oom", "CUDA runtime error"),
    ("torch.AcceleratorError: CUDA error: out of memory", "oom", "oom", "CUDA error: out of memory"),
    (
        (
            "RuntimeError: Executor creation failed with NCCL error: [TensorRT-LLM][ERROR] Failed, NCCL error "
            "/src/a.cpp:9 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'"
        ),
        "NCCL start",
        "crash",
        "NCCL could not start: [TensorRT-LLM][ERROR] Failed, NCCL error",
    ),
    ("RuntimeError: Failed, NCCL error /src/a.cpp:9 'remote process exited'", "NCCL", "crash", "Failed, NCCL error"),
    (
        "[TensorRT-LLM][ERROR] Assertion failed: Head size 72 is not supported by MMHA.",
        "head size",
        "crash",
        "head size 72",
    ),
    (
        "terminate called\nUnsupported HeadDim for BMM2-N 192",
        "head size",
        "crash",
        "no attention kernel for head size 192",
    ),
    (
        "RuntimeError: [CutlassFp4GemmRunner][GEMM Dispatch] Arch unsupported for CUTLASS FP4 GEMM",
        "FP4 on an older GPU",
        "crash",
        "CUTLASS FP4 GEMM",
    ),
    ("E fp8 blockscale gemm only support Hopper", "FP8 block scales with CUTLASS", "crash", "only support Hopper"),
    (
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for TorchLlmArgs\n"
            "moe_config.speed\n  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]\n"
        ),
        "settings refused",
        "crash",
        "this TensorRT-LLM has no setting moe_config.speed",
    ),
    (
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for MoeConfig\nbackend\n"
            "  Input should be 'AUTO', 'CUTLASS' or 'TRTLLM' [type=literal_error, input_value='WIDEEP']\n"
        ),
        "settings refused",
        "crash",
        "refuses a setting: Input should be 'AUTO', 'CUTLASS' or 'TRTLLM'",
    ),
    (
        "AssertionError: in_features 232 must be divisible by scaling_vector_size 16",
        "divisibility",
        "crash",
        "in_features 232",
    ),
    ("There are not enough slots available in the system to satisfy the 4", "slots", "unfit", "not enough slots"),
    ("mpirun has detected an attempt to run as root.\n", "root", "unfit", "attempt to run as root"),
    ("RuntimeError: cannot load MPI library", "MPI missing", "unfit", "cannot load MPI library"),
    (MPI_ABORT, "MPI abort", "crash", "rank 3 ended all others"),
    (
        "mpirun noticed that process rank 1 with PID 71 on node gpu7 exited on signal 6 (Aborted).",
        "MPI abort",
        "crash",
        "process rank 1 with PID 71 on node gpu7 exited on signal 6",
    ),
    ("[gpu7:71] Caught signal 7 (Bus error: nonexistent physical address)", "shared memory", "crash", "signal 7"),
    ("RuntimeError: madvise(MADV_HUGEPAGE) failed.", "shared memory", "crash", "MADV_HUGEPAGE"),
    ("ValueError: Has nan, please fix weights initialization", "layer-wise check", "crash", "Has nan"),
    ("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url", "hub", "unfit", "429"),
    ("OSError: Can't load tokenizer for '/m/x'.", "tokenizer", "crash", "Can't load tokenizer"),
    (
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "extension module",
        "unfit",
        "TensorRT-LLM cannot be loaded: libcuda.so.1",
    ),
    ("[E] Event loop terminated with error: boom", "executor ended", "crash", "Event loop terminated with error: boom"),
]


@pytest.mark.parametrize(
    ("text", "name", "status", "reason"), WRITTEN, ids=[f"{i} {row[1]}" for i, row in enumerate(WRITTEN)]
)
def test_what_is_written_tells_the_failure(text: str, name: str, status: str, reason: str) -> None:
    log = f"loading\n[TRT-LLM] [I] warm-up done\n{text}\nmore lines of the log\n"
    known = recognise(log)
    assert known is not None
    assert (known.fact.name, known.fact.status) == (name, status)
    assert reason in known.reason
    # The supervisor of a worker, which has only the signatures, says the same.
    found = classify(-6, log, signatures=signatures())
    assert (found.status, found.reason, found.advice) == (status, known.reason, known.fact.advice)


def test_every_fact_has_an_example_here() -> None:
    met = {known.fact for text, *_ in WRITTEN if (known := recognise(text))}
    assert {fact.name for fact in failure_facts()} == {fact.name for fact in met}


def test_figures_are_in_gib() -> None:
    known = recognise(OOM_AT_START)
    assert known is not None
    assert known.sizes_gib == {"total": 178.35, "free": 2.11}
    assert known.fact.stage == "start"


def test_what_is_said_after_every_failure_explains_none() -> None:
    cause = "RuntimeError: madvise(MADV_HUGEPAGE) failed.\n"
    for log in (cause + MPI_ABORT, MPI_ABORT + cause):
        found = match_signature(signatures(), log)
        assert found is not None
        assert "MADV_HUGEPAGE" in found.reason


@pytest.mark.parametrize("text", ["", "all well", "KeyError: 'x'", "out of patience", "Head size 128 is fine"])
def test_other_logs_are_not_recognised(text: str) -> None:
    assert recognise(text) is None
    assert match_signature(signatures(), text) is None


def test_the_runner_asks_for_the_signatures_of_a_backend_by_its_name() -> None:
    assert known_failures("trtllm") == signatures()
    assert known_failures("torch") == known_failures("package.module:Class") == ()


def test_no_pattern_takes_long_on_a_full_log() -> None:
    log = ("[TRT-LLM] [I] " + "x = 1, " * 200 + "\n") * 23
    assert all(not list(re.finditer(one.pattern, log, re.MULTILINE)) for one in (*signatures(), *SIGNATURES))
