"""The process in which cases run: opens one backend, makes its arms ready, samples them, and says so on a pipe.

    python -m harness.runner.worker JOB.json --fd 1

stdout and stderr belong to the libraries. Everything heavy is imported by the backend.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType

from harness.backends.base import Arm, ArmFacts, Backend, CannotAnswer, OpTime, Taken
from harness.backends.measurement import Measurement
from harness.backends.registry import make_backend
from harness.backends.signature import Failure
from harness.errors import HarnessError
from harness.runner.messages import (
    Done,
    Failed,
    Job,
    Measured,
    Message,
    Opened,
    Prepared,
    Preparing,
    Progress,
    Unanswered,
    encode,
)
from harness.runner.mpi_ranks import run_under_mpirun
from harness.runner.policy import Phase
from harness.runner.sampling import sample_rounds
from harness.spec.case import Case

#: Least time between two signs of life; every one wakes the supervisor, on the machine that is being measured.
HEARTBEAT_S = 1.0


class Voice:
    """Says what happens: messages on the pipe, and in a cell of shared memory the arm that is running.

    The cell costs less than a microsecond, so it can be set before every iteration, and it outlives a killed worker.
    """

    def __init__(self, pipe: int, cell: int | None = None) -> None:
        self._pipe = pipe
        self._owner = os.getpid()
        memory = mmap.mmap(-1 if cell is None else cell, 8)
        self._cell = memoryview(memory).cast("q")
        self._due_s = 0.0

    def tell(self, message: Message) -> None:
        """Say something, all of it."""
        # A fork of this process, made by a library, has no say.
        if os.getpid() == self._owner:
            data = encode(message)
            while data:
                data = data[os.write(self._pipe, data) :]
            self._due_s = time.monotonic() + HEARTBEAT_S

    def runs(self, number: int) -> None:
        """From here on it is this arm that a crash is blamed on."""
        self._cell[0] = number

    def progress(self, number: int, samples: int, round_: int) -> None:
        """Give a sign of life where one is due."""
        if time.monotonic() >= self._due_s:
            self.tell(Progress(number, samples, round_))


class WatchedArm:
    """An arm that says when it runs."""

    def __init__(self, number: int, arm: Arm, voice: Voice) -> None:
        self._number, self._arm, self._voice = number, arm, voice

    @property
    def facts(self) -> ArmFacts:
        return self._arm.facts

    def take(self, count: int) -> Taken:
        """As the arm does."""
        self._voice.runs(self._number)
        return self._arm.take(count)

    def op_times(self) -> list[OpTime]:
        """As the arm does."""
        self._voice.runs(self._number)
        return self._arm.op_times()

    def close(self) -> None:
        """As the arm does."""
        self._voice.runs(self._number)
        self._arm.close()


class LastWords:
    """Tells of the exception that ends the worker, and lets it go on to the log."""

    def __init__(self, voice: Voice) -> None:
        self._voice = voice

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, BrokenPipeError):
            self._voice.tell(Failed(failure_of(error), describe(error)))


def failure_of(error: BaseException) -> Failure:
    """Class of an exception. PyTorch's OutOfMemoryError is known by its name, as PyTorch may not be installed."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "oom"
    return "unfit" if isinstance(error, HarnessError) else "crash"


def describe(error: BaseException) -> str:
    """The exception as one sentence; an error of this project is one already."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    if isinstance(error, HarnessError):
        return text
    return f"{name}: {text}" if text else name


def run(job: Job, backend: Backend, voice: Voice) -> None:
    """Do a job: open, prepare every arm, sample them in turn, close. Exceptions are the worker's end."""
    voice.tell(Opened(backend.open(job.setting)))
    arms = _prepare(job, backend, voice)
    phases = {arm.number: _phase(arm.case) for arm in job.arms if arm.number in arms}
    # Nothing secret; every replicate has an order of its own.
    rng = Random(f"{job.setting.seed} rounds {job.replicate}")  # noqa: S311
    for number, outcome in sample_rounds(arms, phases, job.policy, rng, tell=voice.progress):
        voice.tell(_answer(number, outcome))
        if isinstance(outcome, CannotAnswer):
            arms[number].close()
    voice.tell(Done())
    for arm in arms.values():
        arm.close()
    backend.close()


def _prepare(job: Job, backend: Backend, voice: Voice) -> dict[int, Arm]:
    arms: dict[int, Arm] = {}
    for arm in job.arms:
        voice.runs(arm.number)
        voice.tell(Preparing(arm.number))
        try:
            arms[arm.number] = WatchedArm(arm.number, backend.prepare(arm.case, arm.level), voice)
        except CannotAnswer as error:
            voice.tell(Unanswered(arm.number, error.status, error.reason))
        else:
            voice.tell(Prepared(arm.number))
    return arms


def _phase(case: Case) -> Phase:
    # What serves requests generates tokens for most of its time.
    return "prefill" if case.workload.phase == "prefill" else "decode"


def _answer(number: int, outcome: Measurement | CannotAnswer) -> Message:
    if isinstance(outcome, CannotAnswer):
        return Unanswered(number, outcome.status, outcome.reason)
    return Measured(number, outcome)


def _descriptor(text: str) -> int:
    return int(text) if text.isdigit() else os.open(text, os.O_RDWR | os.O_CLOEXEC)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do the job of a job file. Exits 0 only after every arm had its answer."""
    parser = argparse.ArgumentParser(prog="python -m harness.runner.worker", allow_abbrev=False)
    parser.add_argument("job", type=Path)
    parser.add_argument("--fd", type=_descriptor, required=True, help="descriptor or path that messages are written to")
    parser.add_argument("--cell", type=_descriptor, help="the same of 8 bytes of memory: number of the arm that runs")
    parser.add_argument("--leads", action="store_true", help="mpirun started this process, as the first of its ranks")
    given = parser.parse_args(arguments)
    faulthandler.enable()
    # A worker that is told to end says where it hangs, and then ends as if this were not here.
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)
    os.set_inheritable(given.fd, False)
    voice = Voice(given.fd, given.cell)
    with LastWords(voice):
        job = Job.from_json(given.job.read_text(encoding="utf-8"))
        if job.mpi_ranks > 1 and not given.leads:
            sys.exit(run_under_mpirun(job.mpi_ranks, given.job, given.fd, given.cell))
        run(job, make_backend(job.backend), voice)


if __name__ == "__main__":
    main()
