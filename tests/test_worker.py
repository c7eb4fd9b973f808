"""The worker's own part, without a supervisor: what it says, in which order, and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.faulty_backend import FaultyBackend, OutOfMemoryError
from workers import TESTS, job

from harness.backends.base import Arm
from harness.errors import EnvironmentUnfit, MissingExtra
from harness.runner.messages import Done, Failed, Measured, Message, MessageReader, Progress
from harness.runner.worker import LastWords, Voice, WatchedArm, describe, failure_of, run


class Ear:
    """The other end of a worker's pipe."""

    def __init__(self) -> None:
        self._reading, writing = os.pipe()
        self.cell = os.memfd_create("cell")
        os.truncate(self.cell, 8)
        self.voice = Voice(writing, self.cell)

    def heard(self) -> list[Message]:
        return MessageReader().feed(os.read(self._reading, 1 << 20))

    @property
    def running(self) -> int:
        return int.from_bytes(os.pread(self.cell, 8, 0), sys.byteorder, signed=True)


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield Ear()


def test_a_job_is_opened_prepared_sampled_and_done(ear: Ear) -> None:
    run(job(), FaultyBackend(), ear.voice)
    heard = [message for message in ear.heard() if not isinstance(message, Progress)]
    kinds = [message.kind for message in heard]
    assert kinds == ["opened", *["preparing", "prepared"] * 3, *["measured"] * 3, "done"]
    measured = {message.number: message.measurement for message in heard if isinstance(message, Measured)}
    assert {number: one.times_ms for number, one in measured.items()} == {
        10: (1.0,) * 5, 20: (2.0,) * 5, 40: (4.0,) * 5,
    }  # fmt: skip
    assert measured[40].rounds == (0, 1, 2, 3, 4)


def test_a_job_without_arms_says_what_would_answer(ear: Ear) -> None:
    run(job(batches=()), FaultyBackend(), ear.voice)
    assert [message.kind for message in ear.heard()] == ["opened", "done"]


def test_the_arm_that_runs_is_in_the_cell(ear: Ear) -> None:
    backend = FaultyBackend()
    backend.options = {}
    arm: Arm = WatchedArm(30, backend.prepare(job().arms[0].case, "layer"), ear.voice)
    for number, act in ((30, lambda: arm.take(1)), (30, arm.op_times), (30, arm.close)):
        ear.voice.runs(7)
        act()
        assert ear.running == number


def test_signs_of_life_come_when_nothing_was_said_for_a_while(ear: Ear) -> None:
    ear.voice.tell(Done())
    ear.voice.progress(1, 5, 2)
    assert ear.heard() == [Done()]
    ear.voice._due_s = 0.0
    ear.voice.progress(1, 6, 3)
    ear.voice.progress(1, 7, 4)
    assert ear.heard() == [Progress(1, 6, 3)]


def test_an_exception_has_the_last_word_and_goes_on(ear: Ear) -> None:
    with pytest.raises(ZeroDivisionError), LastWords(ear.voice):
        raise ZeroDivisionError("a bug\nin two lines")
    assert ear.heard() == [Failed("crash", "ZeroDivisionError: a bug in two lines")]


def test_the_class_of_an_exception() -> None:
    assert failure_of(MemoryError()) == "oom"
    assert failure_of(OutOfMemoryError("CUDA out of memory")) == "oom"
    assert failure_of(EnvironmentUnfit("no GPU")) == "unfit"
    assert failure_of(MissingExtra("torch", "--on torch")) == "unfit"
    assert failure_of(RuntimeError("a bug")) == "crash"
    assert describe(EnvironmentUnfit("no GPU here")) == "no GPU here"
    assert describe(MemoryError()) == "MemoryError"


def _as_a_program(folder: Path, **options: Any) -> tuple[int, list[str], str]:
    path = folder / "job.json"
    path.write_text(job(**options).to_json())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    ended = subprocess.run(
        [sys.executable, "-m", "harness.runner.worker", str(path), "--fd", "1"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    return ended.returncode, [json.loads(line)["kind"] for line in ended.stdout.splitlines()], ended.stderr


def test_as_a_program_it_exits_0_when_done(tmp_path: Path) -> None:
    returncode, kinds, log = _as_a_program(tmp_path)
    assert (returncode, kinds[0], kinds[-1], log) == (0, "opened", "done", "")


def test_as_a_program_it_exits_1_with_a_traceback_in_the_log(tmp_path: Path) -> None:
    returncode, kinds, log = _as_a_program(tmp_path, take="bug")
    assert (returncode, kinds[-1]) == (1, "failed")
    assert log.endswith("ZeroDivisionError: a bug of the backend\n")


def test_a_backend_that_is_not_there_is_an_unfit_machine(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    text = job().to_json().replace("doubles.faulty_backend:FaultyBackend", "doubles.nowhere:Backend")
    path.write_text(text)
    command = [sys.executable, "-m", "harness.runner.worker", str(path), "--fd", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    said = json.loads(ended.stdout)
    assert (said["kind"], said["status"]) == ("failed", "unfit")
    assert "no backend 'doubles.nowhere:Backend'" in said["reason"]
