"""A worker with everything that descends from it, as the supervisor holds it: started, listened to, and ended."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentUnfit
from harness.runner import keeper
from harness.runner.keeper import KILL_WAIT_S, descendants
from harness.runner.messages import Job

#: Of the worker's log, the first and the last part are kept.
LOG_HEAD_BYTES = 8 << 20
LOG_TAIL_BYTES = 2 << 20

#: Environment variable by which the family is known when its keeper was killed.
_MARK = "TRTLLM_HARNESS_WORKER"
#: Starts the worker without the current folder on its path, where a package may have the name of one that it needs.
_BOOT = (
    "import sys; root = sys.argv.pop(1); sys.path[:1] = [root] if root else []; "
    "from harness.runner.worker import main; main()"
)
#: The folder of a checkout, which comes first; an installed package is found as every other one.
_ROOT = Path(__file__).resolve().parents[2]
_FIRST = "" if _ROOT.name in {"site-packages", "dist-packages"} else str(_ROOT)
_CHUNK = 1 << 20
#: How long a keeper may take to notice and to report, beside what it grants the family.
_KEEPER_S = 10.0


@dataclass(frozen=True, slots=True)
class Report:
    """What the keeper says at the end; `returncode` is None where it was killed before it could."""

    returncode: int | None = None
    survivors: tuple[int, ...] = ()
    log_error: str = ""
    tail: str = ""


def own_pids() -> set[int]:
    """Return this process and all that descend from it: with every worker's family, what is ours on this machine."""
    return {os.getpid(), *descendants(os.getpid())}


class Family:
    """A job's worker under a keeper, started at once. Raises EnvironmentUnfit where no process can be started."""

    def __init__(self, job: Job, job_file: Path, log: Path, stop_s: float) -> None:
        self._stop_s = stop_s
        self._mark = secrets.token_hex(8)
        self._said = b""
        self._over = False
        with contextlib.ExitStack() as theirs:
            self._life: int | None
            life, self._life = _pipe(theirs, they_read=True)
            report, self._report = _pipe(theirs, they_read=False)
            messages, self._messages = _pipe(theirs, they_read=False)
            cell = os.memfd_create("arm that runs")
            theirs.callback(os.close, cell)
            os.write(cell, struct.pack("q", -1))
            self._cell = mmap.mmap(cell, 8)
            worker = [sys.executable, "-u", "-X", "faulthandler", "-c", _BOOT, _FIRST, str(job_file)]
            settings = {
                "command": [*worker, "--fd", str(messages), "--cell", str(cell)],
                "keep": [messages, cell],
                "log": str(log),
                "head": LOG_HEAD_BYTES,
                "tail": LOG_TAIL_BYTES,
                "grace_s": stop_s,
                "life": life,
                "report": report,
            }
            environment = {**_environment(job.environment), _MARK: self._mark}
            self._keeper = _start_keeper(settings, environment, (life, report, messages, cell))
        self._poll = select.poll()
        for descriptor in (self._report, self._messages):
            os.set_blocking(descriptor, False)
            self._poll.register(descriptor, select.POLLIN)

    @property
    def running(self) -> int | None:
        """Number of the arm that was made ready or ran last; None before the first."""
        number = int(struct.unpack("q", self._cell[:8])[0])
        return None if number < 0 else number

    def is_over(self) -> bool:
        """Whether the keeper has said its last word; no process is left then, unless it was killed."""
        return self._over

    def wait(self, timeout_s: float) -> bytes:
        """Return what the worker says next; nothing where the time is up or the keeper spoke."""
        said = b""
        for descriptor, _ in self._poll.poll(min(timeout_s, 3600.0) * 1000):
            data = _read(descriptor)
            if data == b"":
                self._poll.unregister(descriptor)
            if descriptor == self._messages:
                said = data or b""
            elif data:
                self._said += data
            else:
                self._over = True
        return said

    def end(self) -> Report:
        """End every process and return what the keeper has to say; what the worker said meanwhile is left to `rest`."""
        self._stop()
        with contextlib.suppress(KeyError):
            self._poll.unregister(self._messages)
        until = time.monotonic() + self._stop_s + KILL_WAIT_S + _KEEPER_S
        while not self._over and (left_s := until - time.monotonic()) > 0:
            self.wait(left_s)
        if not self._over:
            self._keeper.kill()
        self._keeper.wait()
        try:
            said = json.loads(self._said)
        except ValueError:
            return Report(survivors=self._end_marked())
        return Report(**{**said, "survivors": tuple(said["survivors"])})

    def rest(self) -> bytes:
        """Return what the worker said and nobody has read."""
        parts = []
        while part := _read(self._messages):
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Let go without waiting; where `end` was not called, the keeper ends what is left by itself."""
        self._stop()
        for descriptor in (self._report, self._messages):
            os.close(descriptor)

    def _stop(self) -> None:
        if self._life is not None:
            os.close(self._life)
            self._life = None

    def _end_marked(self) -> tuple[int, ...]:
        """End the processes of a family that lost its keeper: they carry its mark in their environment."""
        until = time.monotonic() + _KEEPER_S
        while (alive := _marked(f"{_MARK}={self._mark}".encode())) and time.monotonic() < until:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return tuple(sorted(alive))


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, whole, as drivers and libraries read many variables, and what the job adds.

    What it adds to PYTHONPATH comes before what is there.
    """
    environment = {**os.environ, **added}
    places = [one["PYTHONPATH"] for one in (added, os.environ) if one.get("PYTHONPATH")]
    if places:
        environment["PYTHONPATH"] = os.pathsep.join(places)
    return environment


def _start_keeper(
    settings: dict[str, object], environment: dict[str, str], theirs: Iterable[int]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            # Neither the environment nor site-packages concern it.
            [sys.executable, "-I", "-S", keeper.__file__, json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            pass_fds=tuple(theirs),
            start_new_session=True,
        )
    except OSError as error:
        raise EnvironmentUnfit(f"no process can be started: {error}") from error


def _pipe(theirs: contextlib.ExitStack, *, they_read: bool) -> tuple[int, int]:
    """A pipe: their end, which is closed here with `theirs`, and ours."""
    reading, writing = os.pipe()
    their, our = (reading, writing) if they_read else (writing, reading)
    theirs.callback(os.close, their)
    return their, our


def _read(descriptor: int) -> bytes | None:
    """What can be read at once: None where there is nothing, nothing where there will be nothing more."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None


def _marked(mark: bytes) -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found
