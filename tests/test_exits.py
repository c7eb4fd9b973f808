from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.runner.exits import (
    ExitClass,
    Signature,
    classify,
    match_signature,
    oom_kills,
    signal_name,
    where_it_was,
)

TRACEBACK = """\
loading
Traceback (most recent call last):
  File "worker.py", line 3, in main
    run()
  File "backend.py", line 9, in run
    raise RuntimeError("the device is gone")
RuntimeError: the device is gone
"""


def test_a_signal_is_named_with_what_usually_sends_it() -> None:
    found = classify(-9, "")
    assert (found.status, found.reason) == ("crash", "killed by SIGKILL")
    assert "memory limit of the container" in found.advice
    assert classify(-11, "") == ExitClass("crash", "killed by SIGSEGV")
    assert "--shm-size" in classify(-7, "").advice


def test_a_sigkill_while_the_kernel_killed_for_memory_is_oom() -> None:
    assert classify(-9, "", oom_killed=True).status == "oom"
    assert classify(-11, "", oom_killed=True).status == "crash"


def test_the_last_exception_of_the_log_is_the_reason() -> None:
    assert classify(1, TRACEBACK) == ExitClass("crash", "RuntimeError: the device is gone")
    chained = (
        TRACEBACK
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + ('Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n    ^^^\nmpi.Abort: rank 3\n')
    )
    assert classify(1, chained).reason == "mpi.Abort: rank 3"


def test_without_any_word_the_exit_code_is_the_reason() -> None:
    assert classify(3, "all well").reason == "exited with code 3 before it was done"
    assert classify(None, "").reason == "its keeper process was killed"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("MemoryError", "oom"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 4.00 EiB for an array", "oom"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", "oom"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: not enough memory: you tried", "oom"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "oom"),
        ("RuntimeError: CUDA error: no CUDA-capable device is detected", "unfit"),
        ("torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "unfit"),
    ],
)
def test_known_failures_are_known_whatever_the_exit(line: str, status: str) -> None:
    for returncode in (1, -6, None):
        found = classify(returncode, f"before\n{line}\nafter\n")
        assert (found.status, found.reason) == (status, line)
        assert found.advice


def test_signatures_of_the_backend_come_first() -> None:
    known = Signature(r"^RuntimeError: the device is gone$", "unfit", "the GPU fell off the bus", "reboot the node")
    assert classify(-6, "std::bad_alloc\n" + TRACEBACK, signatures=[known]) == ExitClass(
        "unfit", "the GPU fell off the bus", "reboot the node"
    )


def test_of_several_signatures_what_was_written_last_counts() -> None:
    early, late = Signature("early", "crash"), Signature("late", "oom")
    for order in ([early, late], [late, early]):
        found = match_signature(order, "it was early\nit was late\n")
        assert found == ExitClass("oom", "late")
    assert match_signature([early], "never") is None


def test_where_a_process_was_is_read_from_what_faulthandler_writes(tmp_path: Path) -> None:
    script = tmp_path / "hanging.py"
    script.write_text(
        "import faulthandler, threading, time\n"
        "def elsewhere():\n"
        "    time.sleep(60)\n"
        "threading.Thread(target=elsewhere, daemon=True).start()\n"
        "def here():\n"
        "    faulthandler.dump_traceback(all_threads=True)\n"
        "here()\n"
    )
    written = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stderr
    assert "hanging.py" in written
    assert where_it_was(written) == " in here (hanging.py:6)"
    assert where_it_was("nothing of the kind") == ""


def test_signals_without_a_name_have_a_number() -> None:
    assert signal_name(15) == "SIGTERM"
    assert signal_name(50) == "signal 50"


def test_kills_of_the_kernel_are_counted_where_it_tells() -> None:
    counted = oom_kills()
    assert counted is None or counted >= 0
