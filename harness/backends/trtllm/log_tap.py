"""Reads along what this process and its children write to stdout, for lines about iterations; all of it goes on."""

from __future__ import annotations

import os
import sys
import threading
import time

from harness.backends.trtllm.iteration_log import is_iteration_line

_STDOUT = 1
_CHUNK = 1 << 16


class LogTap:
    """Lies between stdout and where it led, from `LogTap()` on; processes that are started later write into it too."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._lock = threading.Lock()
        sys.stdout.flush()
        self._before = os.dup(_STDOUT)
        read, write = os.pipe()
        os.dup2(write, _STDOUT)
        os.close(write)
        # A child that outlives this process keeps the pipe open; it is not waited for.
        threading.Thread(target=self._follow, args=(read,), name="iteration log", daemon=True).start()

    def take(self, settle_s: float) -> list[str]:
        """Return the lines about iterations since the last call, once none has come for this long."""
        taken: list[str] = []
        while True:
            time.sleep(settle_s)
            with self._lock:
                fresh, self._lines = self._lines, []
            if not fresh:
                return taken
            taken += fresh

    def close(self) -> None:
        """Let stdout lead where it led before."""
        sys.stdout.flush()
        os.dup2(self._before, _STDOUT)

    def _follow(self, read: int) -> None:
        rest = b""
        while data := os.read(read, _CHUNK):
            _write_all(self._before, data)
            *lines, rest = (rest + data).split(b"\n")
            found = [text for line in lines if is_iteration_line(text := line.decode(errors="replace"))]
            if found:
                with self._lock:
                    self._lines += found
        os.close(read)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
