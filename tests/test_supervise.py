"""Fault drill: real worker processes that go wrong in every way, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import workers
from workers import LIMITS, Run, alive, job, none_left, pids_in

from harness.errors import EnvironmentUnfit
from harness.runner.exits import Signature
from harness.runner.family import LOG_HEAD_BYTES, LOG_TAIL_BYTES, own_pids
from harness.runner.keeper import descendants
from harness.runner.limits import Limits
from harness.runner.messages import Measured, Message, Opened, Preparing, Unanswered
from harness.runner.supervise import Ended, run_worker

#: Short where something hangs; start-up stays long, as importing takes what it takes.
IMPATIENT = Limits(startup_s=60, idle_s=3, arm_s=3, stop_s=0.5)


def drill(folder: Path, limits: Limits = LIMITS, **options: Any) -> Run:
    """Run a worker with faults; whatever happens, none of its processes lives afterwards."""
    run = Run(folder, job(folder / "pids", **options), limits=limits)
    pids = pids_in(folder / "pids")
    assert pids, run.ended
    assert alive(pids) == []
    assert descendants(os.getpid()) == set()
    return run


def test_a_worker_without_faults_answers_every_arm(tmp_path: Path) -> None:
    run = drill(tmp_path)
    assert (run.ended.status, run.ended.reason, run.ended.returncode) == ("done", "", 0)
    assert run.ended.in_flight is None
    kinds = [message.kind for message in run.messages]
    assert kinds[:7] == ["opened", *["preparing", "prepared"] * 3]
    assert kinds[-1] == "done"
    assert run.measured == {10, 20, 40}
    for message in run.messages:
        if isinstance(message, Measured):
            # The double says as many ms as the batch is large.
            assert set(message.measurement.times_ms) == {message.number / 10}
            assert message.measurement.op_times[0].time_us == 10.0


@pytest.mark.parametrize(
    ("fault", "status", "reason", "returncode"),
    [
        ("kill", "crash", "killed by SIGKILL", -9),
        ("segfault", "crash", "killed by SIGSEGV in segfault (faulty_backend.py:", -11),
        ("abort", "crash", "killed by SIGABRT in abort (faulty_backend.py:", -6),
        ("memory", "oom", "MemoryError", 1),
        ("torch_memory", "oom", "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", 1),
        ("cpu_memory", "oom", "RuntimeError: [enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't", 1),
        ("bug", "crash", "ZeroDivisionError: a bug of the backend", 1),
        ("leave", "crash", "SystemExit: 0", 0),
        ("vanish", "crash", "exited with code 0 before it was done", 0),
    ],
)
def test_a_fault_in_one_arm_has_its_class_and_is_blamed_on_that_arm(
    tmp_path: Path, fault: str, status: str, reason: str, returncode: int
) -> None:
    run = drill(tmp_path, take=fault, batch=2, after=3)
    assert (run.ended.status, run.ended.returncode) == (status, returncode)
    assert run.ended.reason.startswith(reason)
    assert run.ended.in_flight == 20
    assert run.measured == set()


@pytest.mark.parametrize("fault", ["kill", "memory"])
def test_what_was_measured_before_a_fault_is_delivered(tmp_path: Path, fault: str) -> None:
    run = drill(tmp_path, op_times=fault, batch=2)
    assert run.measured | {run.ended.in_flight} <= {10, 20, 40}
    assert run.ended.in_flight == 20
    assert 20 not in run.measured


def test_while_an_arm_is_made_ready_it_is_to_blame(tmp_path: Path) -> None:
    assert drill(tmp_path, prepare="kill", batch=4).ended.in_flight == 40


def test_before_any_arm_nobody_is_to_blame(tmp_path: Path) -> None:
    run = drill(tmp_path, open="segfault")
    assert (run.ended.status, run.ended.in_flight, run.messages) == ("crash", None, [])


def test_an_unfit_machine_is_told_as_such(tmp_path: Path) -> None:
    ended = drill(tmp_path, open="unfit").ended
    assert (ended.status, ended.reason) == ("unfit", "the device is on holiday")


@pytest.mark.parametrize(
    ("place", "fault", "status", "reason"),
    [
        ("prepare", "unsupported", "unsupported", "no kernel for this shape"),
        ("prepare", "too_big", "oom", "does not fit into 1 GiB"),
        ("take", "invalid", "invalid", "it did less than it was asked"),
    ],
)
def test_an_arm_that_cannot_be_answered_leaves_the_others_alone(
    tmp_path: Path, place: str, fault: str, status: str, reason: str
) -> None:
    run = drill(tmp_path, batch=2, **{place: fault})
    assert run.ended.status == "done"
    assert run.measured == {10, 40}
    assert [message for message in run.messages if isinstance(message, Unanswered)] == [
        Unanswered(20, status, reason)  # type: ignore[arg-type]
    ]


class TestHangs:
    def test_at_the_start(self, tmp_path: Path) -> None:
        run = drill(tmp_path, replace(IMPATIENT, startup_s=5), open="hang")
        assert run.ended.status == "timeout"
        assert run.ended.reason.startswith("the backend was not open after 5 s")

    def test_while_an_arm_is_made_ready(self, tmp_path: Path) -> None:
        run = drill(tmp_path, IMPATIENT, prepare="hang", batch=2)
        assert (run.ended.status, run.ended.in_flight) == ("timeout", 20)
        assert run.ended.reason.startswith("not ready to be timed after 3 s; it was in hang (faulty_backend.py:")

    def test_in_the_middle(self, tmp_path: Path) -> None:
        run = drill(tmp_path, IMPATIENT, take="hang", batch=4, after=3)
        assert (run.ended.status, run.ended.in_flight) == ("timeout", 40)
        assert run.ended.reason.startswith("not a word for 3 s; it was in hang (faulty_backend.py:")
        assert run.ended.returncode == -signal.SIGTERM

    def test_deaf_to_sigterm(self, tmp_path: Path) -> None:
        run = drill(tmp_path, IMPATIENT, take="hang_deaf", batch=4)
        assert (run.ended.status, run.ended.returncode) == ("timeout", -signal.SIGKILL)

    def test_after_the_last_answer_costs_no_answer(self, tmp_path: Path) -> None:
        run = drill(tmp_path, IMPATIENT, close="hang")
        assert (run.ended.status, run.measured) == ("done", {10, 20, 40})
        assert run.ended.reason.startswith("after its last answer: did not exit within 3 s")

    def test_of_the_listener_are_no_hangs_of_the_worker(self, tmp_path: Path) -> None:
        """A supervisor that was stopped or slow for longer than the limit first hears what was said meanwhile."""
        said: list[Message] = []

        def slowly(message: Message) -> None:
            said.append(message)
            if message == Preparing(20):
                time.sleep(IMPATIENT.idle_s + 0.5)

        ended = run_worker(job(sleep_ms=1), folder=tmp_path, log_name="w.log", on_message=slowly, limits=IMPATIENT)
        assert ended.status == "done"
        assert sum(isinstance(message, Measured) for message in said) == 3

    def test_beyond_the_time_budget(self, tmp_path: Path) -> None:
        run = Run(tmp_path, job(tmp_path / "pids", take="hang"), deadline_s=time.monotonic() + 4)
        assert (run.ended.status, run.ended.reason) == ("budget", "the time budget of the run is used up")
        assert none_left(pids_in(tmp_path / "pids"))


def test_a_crash_after_the_last_answer_costs_no_answer(tmp_path: Path) -> None:
    run = drill(tmp_path, close="segfault")
    assert (run.ended.status, run.measured, run.ended.in_flight) == ("done", {10, 20, 40}, None)
    assert run.ended.reason.startswith("after its last answer: killed by SIGSEGV")


def test_of_a_flood_the_log_keeps_beginning_and_end(tmp_path: Path) -> None:
    run = drill(tmp_path, take="flood", batch=1, after=5)
    assert (run.ended.status, run.measured) == ("done", {10, 20, 40})
    log = run.ended.log.read_bytes()
    assert log.startswith(b"the first line\nflood flood ")
    assert log.endswith(b"flood \nthe last line\n")
    assert b"bytes of a longer log are left out here]" in log
    assert LOG_HEAD_BYTES + LOG_TAIL_BYTES < len(log) < LOG_HEAD_BYTES + LOG_TAIL_BYTES + 100


def test_half_a_line_costs_itself(tmp_path: Path) -> None:
    run = drill(tmp_path, op_times="half_line", batch=4)
    assert (run.ended.status, run.ended.in_flight, run.ended.not_understood) == ("crash", 40, 1)
    assert 40 not in run.measured


def test_garbage_between_messages_costs_itself(tmp_path: Path) -> None:
    run = drill(tmp_path, open="garbage")
    assert (run.ended.status, run.measured) == ("done", {10, 20, 40})
    assert run.ended.not_understood == 4


@pytest.mark.parametrize(("session", "fault"), [("same", {}), ("own", {}), ("own", {"take": "kill"})])
def test_children_do_not_outlive_their_worker(tmp_path: Path, session: str, fault: dict[str, str]) -> None:
    run = drill(tmp_path, replace(LIMITS, stop_s=0.2), children=session, **fault)
    assert len(pids_in(tmp_path / "pids")) == 3
    assert run.ended.survivors == ()
    assert run.ended.status == ("crash" if fault else "done")


def test_a_log_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    (tmp_path / "w.log").symlink_to("/dev/full")
    run = drill(tmp_path, take="flood", batch=1, after=5)
    assert (run.ended.status, run.measured) == ("done", {10, 20, 40})
    assert "No space left on device" in run.ended.log_error
    assert run.ended.log_tail.endswith("the last line\n")


def test_a_crash_on_a_full_disk_keeps_its_reason(tmp_path: Path) -> None:
    (tmp_path / "w.log").symlink_to("/dev/full")
    assert drill(tmp_path, take="segfault").ended.reason.startswith("killed by SIGSEGV in segfault")


def test_a_job_that_cannot_be_written_starts_nothing(tmp_path: Path) -> None:
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); import workers; from pathlib import Path\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "from harness.errors import EnvironmentUnfit\n"
        "try: workers.Run(Path(sys.argv[2]), workers.job(Path(sys.argv[2]) / 'pids'))\n"
        "except EnvironmentUnfit as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, str(workers.TESTS), str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "w.job.json: cannot be written: the limit on the size of a file is reached" in said
    assert list(tmp_path.iterdir()) == []


def test_what_the_caller_raises_ends_the_worker_and_is_raised(tmp_path: Path) -> None:
    def journal_is_full(message: Message) -> None:
        if isinstance(message, Measured):
            raise EnvironmentUnfit("the journal takes no more")

    with pytest.raises(EnvironmentUnfit, match="takes no more"):
        run_worker(
            job(tmp_path / "pids", children="own"), folder=tmp_path, log_name="w.log", on_message=journal_is_full,
            limits=replace(LIMITS, stop_s=0.2),
        )  # fmt: skip
    pids = pids_in(tmp_path / "pids")
    assert len(pids) == 3
    assert alive(pids) == []


def test_failures_that_only_the_backend_knows(tmp_path: Path) -> None:
    known = Signature("a bug of the backend", "unfit", "this version has a bug", "take another")
    ended = Run(tmp_path, job(take="bug"), signatures=[known]).ended
    assert (ended.status, ended.reason, ended.advice) == ("unfit", "this version has a bug", "take another")


def test_what_a_worker_is_born_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole environment and what the job adds, no stdin, an own session, no packages of the current folder."""
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise RuntimeError('a package of the same name')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INHERITED", "yes")
    asked = job()
    run = Run(tmp_path, replace(asked, environment={**asked.environment, "ADDED": "too"}))
    assert isinstance(run.messages[0], Opened)
    assert run.messages[0].facts.details == {"stdin": "", "leads_session": True, "inherited": "yes", "added": "too"}


def _while_it_hangs(tmp_path: Path, act: Callable[[list[int]], None]) -> Ended:
    """Run a worker that hangs in an arm, and do something with its processes when all are there."""
    file = tmp_path / "pids"

    def on_message(message: Message) -> None:
        if message == Preparing(40):
            act(pids_in(file))

    asked = job(file, children="own", prepare="hang", batch=4)
    return run_worker(
        asked, folder=tmp_path, log_name="w.log", on_message=on_message, limits=replace(IMPATIENT, arm_s=60)
    )


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_when_the_keeper_is_killed_its_family_goes_too(tmp_path: Path) -> None:
    ended = _while_it_hangs(tmp_path, lambda pids: os.kill(_parent(pids[0]), signal.SIGKILL))
    assert (ended.status, ended.reason) == ("crash", "its keeper process was killed")
    assert (ended.returncode, ended.in_flight) == (None, 40)
    assert none_left(pids_in(tmp_path / "pids"))


def test_own_pids_are_all_of_a_workers_processes(tmp_path: Path) -> None:
    seen: list[set[int]] = []

    def look(pids: list[int]) -> None:
        seen.append(own_pids())
        os.kill(pids[0], signal.SIGKILL)

    _while_it_hangs(tmp_path, look)
    assert {os.getpid(), *pids_in(tmp_path / "pids")} <= seen[0]
    assert own_pids() == {os.getpid()}


class Parent:
    """A process of its own that supervises a worker which hangs in arm 40; ready when it does."""

    def __init__(self, folder: Path) -> None:
        options = {"prepare": "hang", "batch": 4, "children": "own"}
        command = [sys.executable, workers.__file__, str(folder), json.dumps(options)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stdout is not None
        self.said: list[list[Any]] = []
        while self.said[-1:] != [["preparing", 40]]:
            self.said.append(json.loads(self.process.stdout.readline()))
        self.family = [*descendants(self.process.pid)]
        assert set(pids_in(folder / "pids")) <= set(self.family)

    def finish(self) -> int:
        rest, _ = self.process.communicate(timeout=60)
        self.said += [json.loads(line) for line in rest.splitlines()]
        return self.process.returncode


def test_ctrl_c_in_the_parent(tmp_path: Path) -> None:
    parent = Parent(tmp_path)
    parent.process.send_signal(signal.SIGINT)
    assert parent.finish() == 0
    assert parent.said[-1] == ["ended", "interrupted"]
    assert alive(parent.family) == []


def test_ctrl_c_twice_in_the_parent(tmp_path: Path) -> None:
    parent = Parent(tmp_path)
    parent.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    parent.process.send_signal(signal.SIGINT)
    parent.finish()
    assert none_left(parent.family)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_parent_is_killed_its_family_goes_too(tmp_path: Path, number: signal.Signals) -> None:
    parent = Parent(tmp_path)
    parent.process.send_signal(number)
    assert parent.finish() == -number
    assert none_left(parent.family)
