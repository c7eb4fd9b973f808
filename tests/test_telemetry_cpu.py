"""With real processes; others may keep the machine busy meanwhile, so that only what we start ourselves is compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from harness.runner.telemetry import open_telemetry
from harness.runner.telemetry.cpu import CpuReader

#: Starts a process that computes, in a session of its own, and ends: what it started belongs to nobody here.
_ORPHAN = """
import subprocess, sys
busy = "import time\\nwhile time.process_time() < 60: pass"
nowhere = subprocess.DEVNULL
child = subprocess.Popen([sys.executable, "-c", busy], start_new_session=True, stdout=nowhere, stderr=nowhere)
print(child.pid, flush=True)
"""


@pytest.fixture
def stranger() -> Iterator[psutil.Process]:
    """A busy process that does not descend from this one."""
    started = subprocess.run([sys.executable, "-c", _ORPHAN], check=True, capture_output=True, text=True, timeout=60)
    pid = int(started.stdout)
    try:
        process = psutil.Process(pid)
        assert process.ppid() != os.getpid()
        yield process
    finally:
        os.kill(pid, signal.SIGKILL)


def used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def wait_until_it_used(process: psutil.Process, seconds: float) -> None:
    until = used_s(process) + seconds
    while used_s(process) < until:
        time.sleep(0.02)


def test_a_busy_stranger_is_foreign_and_the_same_process_is_not_where_it_is_ours(stranger):
    without, with_it = CpuReader(set), CpuReader(lambda: {stranger.pid})
    first, first_with = without.read(), with_it.read()
    before_s = used_s(stranger)
    wait_until_it_used(stranger, 0.6)
    after_s = used_s(stranger)
    last, last_with = without.read(), with_it.read()
    its_s = after_s - before_s
    foreign_s = (last.busy_s - first.busy_s) - (last.own_s - first.own_s)
    assert foreign_s >= its_s - 0.1
    ours_s = (last_with.own_s - first_with.own_s) - (last.own_s - first.own_s)
    assert ours_s == pytest.approx(its_s, abs=0.2)
    assert first_with.threads == first.threads + 1


def test_a_busy_stranger_makes_a_row_noisy(stranger):
    telemetry = open_telemetry(None, set)
    telemetry.start()
    try:
        start_s, before_s = time.monotonic(), used_s(stranger)
        wait_until_it_used(stranger, 1.0)
        end_s, its_s = time.monotonic(), used_s(stranger) - before_s
        row = telemetry.summary([(start_s, end_s)])
    finally:
        telemetry.close()
    assert row.telemetry_valid, row.telemetry_note
    assert row.foreign_cpus is not None
    # The look reaches beyond the samples by the period of readings at most.
    assert row.foreign_cpus * (end_s - start_s + 2.5) >= its_s - 0.1
    assert ("noisy" in row.flags) == (row.foreign_cpus > 0.25)
    assert row.load_average is not None
    assert row.foreign_processes is None


def test_what_a_child_used_stays_ours_after_it_has_ended():
    reader = CpuReader(set)
    first = reader.read()
    code = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert reader.read().own_s - first.own_s >= 0.45


def test_a_list_of_processes_that_cannot_be_had_is_a_failure_of_the_reading_only():
    def broken() -> set[int]:
        raise OSError("gone")

    assert CpuReader(broken).read().failures == ("processor time: OSError('gone')",)


def test_a_process_that_has_ended_is_no_failure():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(timeout=60)
    reading = CpuReader(lambda: {ended.pid}).read()
    assert reading.failures == ()
    assert reading.busy_s > 0
