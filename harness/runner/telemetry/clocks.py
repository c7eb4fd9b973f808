"""Locked GPU clocks: only on request, and given back on every way out.

A note in the run folder is written before the first lock and removed after the last release, so that a run that was
killed is made good by the next one in that folder. NVML has no way to read a lock back: one that somebody else had set
before is replaced, and gone afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from harness import files
from harness.errors import EnvironmentUnfit, HarnessError
from harness.runner.telemetry.nvml import NotOffered, Nvml, NvmlAbsent, QueryFailed

CLOCKS_NOTE = "locked-clocks.json"
#: nvml.h: NVML_CLOCK_LIMIT_ID_TDP, the clock that the GPU holds at its rated power.
_TDP = 0xFFFFFF01
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def locked_clocks(
    folder: Path, gpu_uuids: Sequence[str], *, mhz: int | None = None, nvml: Any = None
) -> Iterator[None]:
    """Hold the SM clocks of `gpu_uuids` at `mhz`, by default at the clock of their rated power, inside the block.

    They are released when the block ends, however it does, and on SIGTERM and SIGHUP (when entered in the main
    thread), which then take their course. After SIGKILL, `restore_left_clocks(folder)` does it. Raises
    EnvironmentUnfit where the driver refuses, most often because only root may; nothing stays locked then.
    """
    try:
        library = Nvml(nvml)
    except NvmlAbsent as error:
        raise EnvironmentUnfit(f"--lock-clocks: {error}") from error
    lock = _Lock(library, folder)
    try:
        with _released_on_signals(lock):
            try:
                lock.take(gpu_uuids, mhz)
                yield
            finally:
                lock.release()
    finally:
        library.close()


def restore_left_clocks(folder: Path, *, nvml: Any = None) -> str:
    """Release the clocks that an earlier run in `folder` locked and could not release; says what was done, or "".

    Raises EnvironmentUnfit where they are locked on this host and cannot be released: what is measured now would be at
    those clocks. A note of another host is left alone, and the text returned says so.
    """
    path = folder / CLOCKS_NOTE
    if not path.exists():
        return ""
    note: Any = files.read_json(path)
    uuids, host = tuple(note["gpus"]), note["host"]
    if host != platform.node():
        return f"{path}: clocks may still be locked on {host}; there, `{_commands(uuids)}` releases them"
    try:
        library = Nvml(nvml)
    except NvmlAbsent as error:
        raise EnvironmentUnfit(f"{path}: clocks of an earlier run cannot be released: {error}") from error
    try:
        _Lock(library, folder, uuids).release()
    finally:
        library.close()
    return f"released the clocks of {', '.join(uuids)}, which an earlier run left locked"


class _Lock:
    """GPUs whose clocks are locked, by UUID, and the note of them."""

    def __init__(self, library: Nvml, folder: Path, locked: Sequence[str] = ()) -> None:
        self._library = library
        self._note = folder / CLOCKS_NOTE
        self._locked = list(locked)
        self._releasing = threading.RLock()

    def take(self, uuids: Sequence[str], mhz: int | None) -> None:
        clock = _TDP if mhz is None else mhz
        try:
            gpus = [self._library.gpu(uuid) for uuid in uuids]
        except NvmlAbsent as error:
            raise EnvironmentUnfit(f"--lock-clocks: {error}") from error
        note = {"gpus": [gpu.uuid for gpu in gpus], "host": platform.node(), "clock_mhz": mhz}
        files.write_atomic(self._note, json.dumps(note) + "\n")
        for gpu in gpus:
            # Before the call: a signal may come between it and the next line, and releasing too much does no harm.
            self._locked.append(gpu.uuid)
            try:
                self._library.call("lock the clocks", "nvmlDeviceSetGpuLockedClocks", gpu.handle, clock, clock)
            except (NotOffered, QueryFailed) as error:
                self._locked.remove(gpu.uuid)
                raise _refused(gpu.uuid, error, mhz) from error

    def release(self) -> None:
        """Release all that is locked. Raises EnvironmentUnfit where the driver refuses; the note then stays."""
        with self._releasing:
            refused = []
            for uuid in list(self._locked):
                try:
                    handle = self._library.gpu(uuid).handle
                    self._library.call("release the clocks", "nvmlDeviceResetGpuLockedClocks", handle)
                    self._locked.remove(uuid)
                except (NvmlAbsent, NotOffered, QueryFailed) as error:
                    refused.append(f"{uuid} ({error})")
            if refused:
                raise EnvironmentUnfit(
                    f"clocks stay locked: {', '.join(refused)}; as root, `{_commands(self._locked)}` releases them; "
                    f"then delete {self._note}"
                )
            self._note.unlink(missing_ok=True)


@contextlib.contextmanager
def _released_on_signals(lock: _Lock) -> Iterator[None]:
    """Release before a signal ends the process; one that something else handles or ignores is left to that."""
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number in _SIGNALS if main and signal.getsignal(number) is signal.SIG_DFL]

    def handle(number: int, _frame: FrameType | None) -> None:
        try:
            lock.release()
        except HarnessError as error:
            os.write(2, f"{error}\n".encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is handle:
                signal.signal(number, signal.SIG_DFL)


def _refused(uuid: str, error: Exception, mhz: int | None) -> EnvironmentUnfit:
    if isinstance(error, QueryFailed) and error.kind == "NVMLError_NoPermission":
        why = "only root may, or a container with the capability SYS_ADMIN"
    elif isinstance(error, NotOffered):
        why = "this GPU or driver does not offer it"
    else:
        why = str(error) if mhz is None else f"{error}; `nvidia-smi -q -d SUPPORTED_CLOCKS` lists what it takes"
    return EnvironmentUnfit(f"--lock-clocks: the clocks of {uuid} cannot be locked: {why}; leave it out")


def _commands(uuids: Sequence[str]) -> str:
    return f"nvidia-smi -i {','.join(uuids)} --reset-gpu-clocks"
