"""Runs one worker process: starts it, listens, enforces limits, ends its whole family, and says how it ended.

After `run_worker` returns or raises, no process of the worker lives, and every message that it finished was delivered.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import files
from harness.errors import EnvironmentUnfit
from harness.runner.exits import (
    SIGNATURES,
    ExitClass,
    Signature,
    classify,
    match_signature,
    oom_kills,
    where_it_was,
)
from harness.runner.family import Family, Report
from harness.runner.limits import Limit, Limits, Watch
from harness.runner.messages import Done, Failed, Job, Measured, Message, MessageReader, Unanswered

EndStatus = Literal["done", "crash", "oom", "timeout", "unfit", "budget", "interrupted"]

_TIMEOUT: EndStatus = "timeout"
_BUDGET: EndStatus = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a worker ended."""

    status: EndStatus
    """`done`: every arm has its answer; `budget`: the deadline of the run came."""
    reason: str = ""
    """One sentence; of a worker that is `done`, what went wrong after its last answer."""
    advice: str = ""
    """What the user can do, where that is known."""
    returncode: int | None
    """As of `subprocess`: minus the number of the signal that ended it; None where it is not known."""
    in_flight: int | None
    """Number of the arm that was being made ready or ran, and has no answer: a failure is its."""
    log: Path
    log_tail: str
    """The last 32 KiB of it, even where the disk is full."""
    log_error: str = ""
    """Why the log is not whole."""
    not_understood: int = 0
    """Lines on the pipe that were no message, half ones included."""
    survivors: tuple[int, ...] = ()
    """Processes that SIGKILL does not end, as they hang in the kernel; they may hold a device."""


def run_worker(
    job: Job,
    *,
    folder: Path,
    log_name: str,
    on_message: Callable[[Message], None],
    limits: Limits | None = None,
    signatures: Sequence[Signature] = (),
    deadline_s: float | None = None,
) -> Ended:
    """Run one worker until it ends or has to be ended, and deliver each of its messages as it comes.

    The log is `folder`/`log_name`, beside it lies the job file, `.job.json` for `.log`. `deadline_s`, on the clock of
    `time.monotonic()`, is the end of the run's budget. `signatures` are failures that the backend knows. Ctrl-C ends
    the worker and is told as `interrupted`; a second one is raised at once, and the worker's keeper ends the rest. What
    `on_message` raises is raised after the worker was ended. Raises EnvironmentUnfit where the job file cannot be
    written, where no process can be started, and on systems other than Linux.
    """
    if sys.platform != "linux":
        raise EnvironmentUnfit("measured runs need Linux, which holds their processes together")
    limits = limits or Limits()
    log = folder / log_name
    job_file = folder / f"{log_name.removesuffix('.log')}.job.json"
    files.write_atomic(job_file, job.to_json())
    kills_before = oom_kills()
    account = _Account(on_message)
    with closing(Family(job, job_file, log, limits.stop_s)) as family:
        try:
            ended_by = _follow(family, account, Watch(limits, time.monotonic()), deadline_s)
        except KeyboardInterrupt:
            ended_by = _EndedBy("interrupted", "interrupted")
        finally:
            report = family.end()
        account.take(family.rest())
        account.reader.end()
    oom_killed = kills_before is not None and (oom_kills() or 0) > kills_before
    end = ended_by or _by_itself(account, report, signatures, oom_killed=oom_killed)
    return _told(end, account, report, family.running, log)


@dataclass(frozen=True, slots=True)
class _EndedBy:
    status: EndStatus
    reason: str
    advice: str = ""


def _follow(family: Family, account: _Account, watch: Watch, deadline_s: float | None) -> _EndedBy | None:
    """Deliver messages until the worker has ended (None), or a limit or the deadline comes."""
    while not family.is_over():
        limit, status = watch.limit, _TIMEOUT
        if deadline_s is not None and deadline_s <= limit.at_s:
            limit, status = Limit(deadline_s, "the time budget of the run is used up"), _BUDGET
        left_s = limit.at_s - time.monotonic()
        said = account.take(family.wait(max(left_s, 0.0)))
        # What was said meanwhile counts: it may be us who did not listen, stopped with Ctrl-Z or kept by a slow disk.
        if left_s <= 0 and not family.is_over() and (not said or status == _BUDGET):
            return _EndedBy(status, limit.reason)
        for message in said:
            watch.note(message, time.monotonic())
    return None


def _by_itself(account: _Account, report: Report, signatures: Sequence[Signature], *, oom_killed: bool) -> _EndedBy:
    """Class of a worker that ended before anyone asked it to."""
    failed = account.failed
    if failed is None:
        found = classify(report.returncode, report.tail, signatures=signatures, oom_killed=oom_killed)
    else:
        everyone = SIGNATURES if failed.status != "unfit" else ()
        found = (
            match_signature(signatures, f"{report.tail}\n{failed.reason}")
            or match_signature(everyone, failed.reason)
            or ExitClass(failed.status, failed.reason)
        )
    return _EndedBy(found.status, found.reason, found.advice)


def _told(end: _EndedBy, account: _Account, report: Report, running: int | None, log: Path) -> Ended:
    status, reason = end.status, end.reason
    if status == "timeout":
        reason += f"; it was{where_it_was(report.tail)}" if where_it_was(report.tail) else ""
    if account.done and status != "interrupted":
        # Every arm has its answer; how the process fared afterwards is a remark.
        reason = f"after its last answer: {reason}" if report.returncode != 0 else ""
        status = "done"
    if report.survivors:
        pids = ", ".join(map(str, report.survivors))
        reason = f"{reason}; SIGKILL does not end {pids}, which may hold the device".removeprefix("; ")
    return Ended(
        status=status,
        reason=reason,
        advice=end.advice,
        returncode=report.returncode,
        in_flight=None if running in account.answered else running,
        log=log,
        log_tail=report.tail,
        log_error=report.log_error,
        not_understood=account.reader.not_understood,
        survivors=report.survivors,
    )


class _Account:
    """What a worker has said."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self.reader = MessageReader()
        self.answered: set[int] = set()
        self.failed: Failed | None = None
        self.done = False

    def take(self, data: bytes) -> list[Message]:
        """Deliver what these bytes complete, and return it."""
        messages = self.reader.feed(data)
        for message in messages:
            self._on_message(message)
            if isinstance(message, Measured | Unanswered):
                self.answered.add(message.number)
            elif isinstance(message, Failed):
                self.failed = message
            elif isinstance(message, Done):
                self.done = True
        return messages
