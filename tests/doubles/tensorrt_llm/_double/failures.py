"""Failures on demand: `TRTLLM_DOUBLE_FAIL`, described in README.md."""

# ruff: noqa: T201

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

NAMES = (
    "oom", "torch-oom", "native-abort", "nccl", "hang", "wrong-length", "reuse", "lost-stats", "mpi-abort", "shm",
    "eplb", "validation", "slots", "root", "nan", "leak",
)  # fmt: skip

OOM = """Executor creation failed due to insufficient GPU memory.

The following component could not be created: {stage}
Total GPU memory (GiB): {total:.2f}
Free GPU memory before component creation attempt (GiB): {free:.2f}

Previously created components and free GPU memory before/after creation (GiB):
model: {total:.2f} / {left:.2f}
sampler: {left:.2f} / {free:.2f}

Please refer to the TensorRT LLM documentation for information on how to control the memory usage through TensorRT LLM \
configuration options. Possible options include:
  Model: reduce max_num_tokens and/or shard the model weights across GPUs by enabling pipeline and/or tensor parallelism
  KV cache: reduce free_gpu_memory_fraction or max_tokens of kv_cache_config"""

SLOTS = """--------------------------------------------------------------------------
There are not enough slots available in the system to satisfy the {ranks}
slots that were requested by the application:

  python3

Either request fewer procs for your application, or make more slots
available for use.
--------------------------------------------------------------------------"""

ROOT = """--------------------------------------------------------------------------
mpirun has detected an attempt to run as root.

Running as root is *strongly* discouraged as any mistake (e.g., in
defining TMPDIR) or bug can result in catastrophic damage to the OS
file system, leaving your system in an unusable state.
--------------------------------------------------------------------------"""

MPI_ABORT = """--------------------------------------------------------------------------
MPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD
with errorcode 1.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
You may or may not see output from other processes, depending on
exactly when Open MPI kills them.
--------------------------------------------------------------------------"""


class OutOfMemoryError(RuntimeError):
    """As PyTorch's, whose traceback says `torch.OutOfMemoryError`."""


OutOfMemoryError.__module__ = "torch"


@dataclass(frozen=True)
class Failure:
    """One that was asked for: `name:argument:when@key=value`."""

    name: str
    argument: str = ""
    when: str = ""
    key: str = ""
    value: str = ""

    def concerns(self, config: dict[str, Any]) -> bool:
        return not self.key or str(config.get(self.key)) == self.value


@lru_cache(maxsize=8)
def parse(text: str) -> tuple[Failure, ...]:
    """Read `TRTLLM_DOUBLE_FAIL`; raise ValueError for an unknown name."""
    found = []
    for part in filter(None, map(str.strip, text.split(";"))):
        what, _, condition = part.partition("@")
        name, argument, when = [*what.split(":"), "", ""][:3]
        if name not in NAMES:
            raise ValueError(f"TRTLLM_DOUBLE_FAIL={part!r}: failures are {', '.join(NAMES)}")
        key, _, value = condition.partition("=")
        found.append(Failure(name, argument, when, key, value))
    return tuple(found)


def asked(name: str, config: dict[str, Any]) -> Failure | None:
    """The failure of this name that this model is to have."""
    every = parse(os.environ.get("TRTLLM_DOUBLE_FAIL", ""))
    return next((one for one in every if one.name == name and one.concerns(config)), None)


def abort(text: str, sign: int = signal.SIGABRT) -> NoReturn:
    """Die as native code does: a line on stderr and a signal, no exception. No core is written."""
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(sign, signal.SIG_DFL)
    if sign == signal.SIGABRT:
        os.abort()
    os.kill(os.getpid(), sign)
    time.sleep(60)
    os._exit(1)


def leave(text: str) -> NoReturn:
    """Die as a process that mpirun takes down: a text on stderr, exit code 1, no traceback."""
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
    os._exit(1)


def hang() -> NoReturn:
    while True:
        time.sleep(3600)


def out_of_memory(stage: str, total_gib: float, left_gib: float) -> RuntimeError:
    """What the executor raises when a component does not fit."""
    return RuntimeError(OOM.format(stage=stage, total=total_gib, left=left_gib, free=left_gib * 0.98))


def torch_out_of_memory(total_gib: float) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of {total_gib:.2f} GiB of which "
        "1.37 GiB is free. Including non-PyTorch memory, this process has "
        f"{total_gib - 1.37:.2f} GiB memory in use."
    )


def at_start(config: dict[str, Any], total_gib: float, world: int) -> None:
    """Fail while an engine is opened, if that was asked for."""
    for name in NAMES:
        one = asked(name, config)
        if one is None or one.argument == "run":
            continue
        if name in {"slots", "root", "mpi-abort"}:
            texts = {"slots": SLOTS.format(ranks=world), "root": ROOT, "mpi-abort": MPI_ABORT.format(rank=world - 1)}
            leave(texts[name])
        if name == "hang":
            hang()
        if name == "native-abort":
            size = one.argument or "72"
            abort(f"[TensorRT-LLM][ERROR] Assertion failed: Head size {size} is not supported by MMHA.")
        if name == "shm":
            abort("[node1:4242 :0:4242] Caught signal 7 (Bus error: nonexistent physical address)", signal.SIGBUS)
        error = _error(one, total_gib)
        if error:
            raise error


def _error(one: Failure, total_gib: float) -> Exception | None:
    """What a failure at start raises, if it raises."""
    if one.name == "oom":
        return out_of_memory(one.argument or "KV cache", total_gib, total_gib * 0.07)
    if one.name == "torch-oom":
        return torch_out_of_memory(total_gib)
    if one.name == "nccl":
        return RuntimeError(
            "Executor creation failed with NCCL error: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error "
            "(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.7"
        )
    if one.name == "eplb":
        return RuntimeError("[TensorRT-LLM][ERROR] madvise(MADV_HUGEPAGE) failed.")
    return None


def at_iteration(number: int, config: dict[str, Any], total_gib: float, world: int) -> None:
    """Fail in an iteration: `hang:run:N`, `torch-oom:run:N`, `mpi-abort:run:N`."""
    for name in ("hang", "torch-oom", "mpi-abort"):
        one = asked(name, config)
        if one is None or one.argument != "run" or number < int(one.when or 1):
            continue
        if name == "hang":
            hang()
        if name == "torch-oom":
            raise torch_out_of_memory(total_gib)
        leave(MPI_ABORT.format(rank=max(0, world - 1)))
