from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runner.keeper import Log, descendants


def test_a_short_log_is_whole(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), head=4, tail=3)
    log.write(b"abcdef")
    assert log.close() == b"abcdef"
    assert (tmp_path / "log").read_bytes() == b"abcdef"


def test_of_a_long_log_the_middle_is_left_out_and_counted(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), head=4, tail=3)
    for letter in b"abcdefghij":
        log.write(bytes([letter]))
    assert log.close() == b"abcdefghij"[:4] + b"hij"
    assert (tmp_path / "log").read_bytes() == b"abcd\n[3 bytes of a longer log are left out here]\nhij"


@given(parts=st.lists(st.binary(max_size=9)), head=st.integers(0, 20), tail=st.integers(0, 20))
def test_a_log_keeps_what_it_says(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], head: int, tail: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    log = Log(str(path), head, tail)
    for part in parts:
        log.write(part)
    log.close()
    whole, kept = b"".join(parts), path.read_bytes()
    missing = len(whole) - head - tail
    if missing <= 0:
        assert kept == whole
    else:
        line = b"\n[%d bytes of a longer log are left out here]\n" % missing
        assert kept == whole[:head] + line + whole[head + missing :]


def test_a_log_that_cannot_be_written_says_why_and_keeps_its_end(tmp_path: Path) -> None:
    for path, why in (("/dev/full", "No space left on device"), (str(tmp_path / "no" / "folder"), "No such file")):
        log = Log(path, head=4, tail=3)
        log.write(b"abcdef")
        assert log.close() == b"abcdef"
        assert why in log.error


def test_descendants_are_children_and_theirs() -> None:
    code = (
        "import subprocess, sys; sleeper = subprocess.Popen(['sleep', '60'])\n"
        "print(sleeper.pid, flush=True); sys.stdin.read(); sleeper.kill()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    assert {child.pid, grandchild} <= descendants(os.getpid())
    assert descendants(child.pid) == {grandchild}
    assert os.getpid() in descendants(os.getppid())
    child.communicate("")
    assert descendants(child.pid) == set()
