"""A backend that answers with made-up times and misbehaves where it is told to; each process starts and is real.

Options: `open`, `prepare`, `take`, `op_times` or `close` = a name of FAULTS, which happens there. `batch`: only to
cases of this batch, else to all. `after`: at this iteration of the arm, else at the first. `sleep_ms`: how long an
iteration takes. `pids`: a file to which the pid of every process is appended. `children`: `same` or `own`, the session
of processes that are started with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.backends.base import ArmFacts, BackendFacts, CannotAnswer, OpTime, Setting, Taken
from harness.errors import EnvironmentUnfit
from harness.spec.case import Case
from harness.spec.study import Level

FLOOD_BYTES = 1 << 28


class OutOfMemoryError(RuntimeError):
    """As PyTorch's, which is `torch.OutOfMemoryError` of class name `OutOfMemoryError`."""


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    time.sleep(3600)


def hang_deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(3600)


def memory() -> None:
    bytearray(1 << 62)


def torch_memory() -> None:
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def cpu_memory() -> None:
    raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to")


def flood() -> None:
    """Write as fast as the pipe takes it, with a first and a last line."""
    chunk = b"flood " * (1 << 17)
    os.write(1, b"the first line\n")
    for _ in range(FLOOD_BYTES // len(chunk)):
        os.write(2, chunk)
    os.write(1, b"\nthe last line\n")


def half_line() -> None:
    """Die in the middle of a message, which a worker killed while it writes does."""
    os.write(int(sys.argv[sys.argv.index("--fd") + 1]), b'{"kind": "measured", "num')
    kill()


def garbage() -> None:
    os.write(int(sys.argv[sys.argv.index("--fd") + 1]), b'no message\n{"kind": "progress"}\n[]\n\xff\n')


def unfit() -> None:
    raise EnvironmentUnfit("the device is on holiday")


def bug() -> None:
    raise ZeroDivisionError("a bug of the backend")


def leave() -> None:
    sys.exit(0)


def vanish() -> None:
    os._exit(0)


def abort() -> None:
    os.abort()


def unsupported() -> None:
    raise CannotAnswer("no kernel for this shape")


def invalid() -> None:
    raise CannotAnswer("it did less than it was asked", "invalid")


def too_big() -> None:
    raise CannotAnswer("does not fit into 1 GiB", "oom")


FAULTS = {
    one.__name__: one
    for one in (
        kill, segfault, hang, hang_deaf, memory, torch_memory, cpu_memory, flood, half_line, garbage, unfit, bug, leave,
        vanish, abort, unsupported, invalid, too_big,
    )
}  # fmt: skip


class FaultyArm:
    def __init__(self, backend: FaultyBackend, batch: int) -> None:
        self._backend, self._batch = backend, batch
        self._taken = 0

    @property
    def facts(self) -> ArmFacts:
        return ArmFacts(layers_run=1, details={"batch": self._batch})

    def take(self, count: int) -> Taken:
        due = int(self._backend.options.get("after", 1))
        if self._taken < due <= self._taken + count:
            self._backend.fault("take", self._batch)
        self._taken += count
        time.sleep(count * float(self._backend.options.get("sleep_ms", 0)) / 1000)
        return Taken((float(self._batch),) * count)

    def op_times(self) -> list[OpTime]:
        self._backend.fault("op_times", self._batch)
        return [OpTime("layer.attn.qkv_proj", 10.0)]

    def close(self) -> None:
        self._backend.fault("close", self._batch)


class FaultyBackend:
    name = "faulty"

    def open(self, setting: Setting) -> BackendFacts:
        self.options = setting.options
        self.note(os.getpid())
        if "children" in self.options:
            self._start_children(own_session=self.options["children"] == "own")
        self.fault("open")
        details = {
            "stdin": sys.stdin.read(),
            "leads_session": os.getsid(0) == os.getpid(),
            "inherited": os.environ.get("INHERITED", ""),
            "added": os.environ.get("ADDED", ""),
        }
        return BackendFacts(provenance="simulated", versions="faulty 1", device="none", details=details)

    def prepare(self, case: Case, _level: Level) -> FaultyArm:
        batch: int = case.workload.batch
        self.fault("prepare", batch)
        return FaultyArm(self, batch)

    def close(self) -> None:
        pass

    def fault(self, place: str, batch: int | None = None) -> None:
        name, options = self.options.get(place), self.options
        if name is not None and (batch is None or options.get("batch", batch) == batch):
            FAULTS[str(name)]()

    def note(self, pid: int) -> None:
        if "pids" in self.options:
            with Path(str(self.options["pids"])).open("a", encoding="ascii") as file:
                file.write(f"{pid}\n")

    def _start_children(self, *, own_session: bool) -> None:
        """A child, deaf to SIGTERM, that has a child of its own; the one between them ends, so that it is an orphan."""
        deaf = (
            "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); "
        )
        grandchild = f"{deaf} time.sleep(3600)"
        starts = f"subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session={own_session})"
        for code in (grandchild, f"import subprocess, sys; {starts}"):
            command = [sys.executable, "-c", code]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=own_session)
            assert child.stdout is not None
            self.note(int(child.stdout.readline()))
