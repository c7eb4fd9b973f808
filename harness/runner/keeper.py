"""The process between the supervisor and a worker: it holds the worker's whole family, and ends it.

`harness.runner.family` runs it as a script, with the standard library alone, so that it starts in milliseconds; while
the worker measures and writes nothing, it sleeps. It is a child subreaper (prctl(2), PR_SET_CHILD_SUBREAPER, since
Linux 3.4): whatever the worker leaves behind, in sessions of its own too, becomes its child, is found and is ended. The
supervisor holds the writing end of a pipe. When that closes, because the supervisor wants it or because it was killed,
the family ends. The worker dies with its keeper (PR_SET_PDEATHSIG).

The worker's stdout and stderr pass through here into one log: the first part goes to the file at once, the last part at
the end, and what a flood puts between them is left out and counted. A full disk costs lines of the log, not the worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: What an ordinary user may enlarge a pipe to, unless /proc/sys/fs/pipe-max-size says otherwise (pipe(7)).
_PIPE_BYTES = 1 << 20
#: Bytes of the end of the log that the supervisor is told.
_REPORTED_BYTES = 32 << 10
#: Processes that outlive SIGKILL by this hang in the kernel, in a driver for example; they are named and given up.
KILL_WAIT_S = 20.0


def descendants(root: int) -> set[int]:
    """Return the processes that descend from `root`, without it; with those that ended and were not waited for."""
    children: dict[int, list[int]] = {}
    for folder in os.scandir("/proc"):
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The second field is the name in parentheses, which may hold anything.
                fields = Path(folder.path, "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    found: set[int] = set()
    left = [root]
    while left:
        new = children.get(left.pop(), [])
        found.update(new)
        left.extend(new)
    return found


class Log:
    """A file of the first `head` bytes written, a line that counts those left out, and the last `tail` bytes.

    Writing never fails: where the file takes no more, `error` says why, and the last bytes are still in memory.
    """

    def __init__(self, path: str, head: int, tail: int) -> None:
        self.error = ""
        self._head, self._tail = head, tail
        self._recent = b""
        self._last: deque[bytes] = deque()
        self._held = self._left_out = 0
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            self.error = str(error)

    def write(self, data: bytes) -> None:
        """Take some more."""
        now, later = data[: self._head], data[self._head :]
        if now:
            self._head -= len(now)
            self._put(now)
            self._recent = (self._recent + now)[-_REPORTED_BYTES:]
        if later:
            self._last.append(later)
            self._held += len(later)
            while self._last and self._held - len(self._last[0]) >= self._tail:
                dropped = len(self._last.popleft())
                self._held -= dropped
                self._left_out += dropped

    def close(self) -> bytes:
        """Write the last bytes and return the end of them."""
        last = b"".join(self._last)
        surplus = max(0, len(last) - self._tail)
        left_out = self._left_out + surplus
        if left_out:
            self._put(f"\n[{left_out} bytes of a longer log are left out here]\n".encode())
        self._put(last[surplus:])
        if not self.error:
            os.close(self._file)
        return (self._recent + last)[-_REPORTED_BYTES:]

    def _put(self, data: bytes) -> None:
        try:
            while data and not self.error:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.error = str(error)
            os.close(self._file)


class Keeper:
    """One worker with its family and its log. `settings` is what the supervisor passes as JSON:

    `command` to run, `keep`: file descriptors that it inherits, `log`, `head` and `tail` of the log in bytes, `grace_s`
    between SIGTERM and SIGKILL, `life` and `report`: the two pipes to the supervisor.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._life, self._report = int(settings["life"]), int(settings["report"])
        self._grace_s = float(settings["grace_s"])
        for descriptor in (self._life, self._report):
            os.set_inheritable(descriptor, False)
        self._returncode: int | None = None
        self._stopping = False
        self._log = Log(settings["log"], settings["head"], settings["tail"])
        self._wake = _wake_on_signals()
        self._output, output = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(output, True)
        with contextlib.suppress(OSError):
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._worker = _start(settings["command"], output, settings["keep"])
        for descriptor in (output, *settings["keep"]):
            os.close(descriptor)
        self._poll = select.poll()
        for descriptor in (self._life, self._wake, self._output):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Wait for the worker, or for the word to stop; end the whole family; tell the supervisor how it went."""
        while self._returncode is None and not self._stopping:
            self._turn(None)
        survivors = self._end_family()
        while self._read_output():
            pass
        tail = self._log.close()
        report = {
            "returncode": self._returncode,
            "survivors": sorted(survivors),
            "log_error": self._log.error,
            "tail": tail.decode(errors="replace"),
        }
        with contextlib.suppress(BrokenPipeError):
            os.write(self._report, json.dumps(report).encode())

    def _turn(self, timeout_ms: int | None) -> None:
        for descriptor, _ in self._poll.poll(timeout_ms):
            if descriptor == self._output:
                self._read_output()
            elif descriptor == self._life:
                self._stopping = True
                self._poll.unregister(descriptor)
            elif signal.SIGTERM in os.read(descriptor, 4096):
                self._stopping = True
        self._reap()

    def _read_output(self) -> bool:
        try:
            data = os.read(self._output, _PIPE_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._log.write(data)
        else:
            with contextlib.suppress(KeyError):
                self._poll.unregister(self._output)
        return bool(data)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._worker:
                    self._returncode = os.waitstatus_to_exitcode(ended[1])

    def _end_family(self) -> set[int]:
        """End everything that descends from here, politely first; return what could not be ended."""
        alive: set[int] = set()
        for number, limit_s in ((signal.SIGTERM, self._grace_s), (signal.SIGKILL, KILL_WAIT_S)):
            until = time.monotonic() + limit_s
            told: set[int] = set()
            while (alive := descendants(os.getpid())) and time.monotonic() < until:
                for pid in alive - told:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                told |= alive
                self._turn(10)
            if not alive:
                break
        return alive


def _wake_on_signals() -> int:
    """Return a descriptor from which the numbers of signals can be read, so that waiting needs no polling."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    # Handlers, not SIG_IGN, which the worker would inherit.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _start(command: list[str], output: int, keep: list[int]) -> int:
    """Start the worker in a session of its own, without stdin, to die with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keeper = os.getpid()
    worker = os.fork()
    if worker:
        return worker
    try:
        os.setsid()
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == keeper:
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            for descriptor, standard in ((os.open("/dev/null", os.O_RDONLY), 0), (output, 1), (output, 2)):
                os.dup2(descriptor, standard)
            for descriptor in keep:
                os.set_inheritable(descriptor, True)
            os.execv(command[0], command)  # noqa: S606  # no shell is wanted
    except OSError as error:
        os.write(2, f"{command[0]}: cannot be run: {error}\n".encode())
    finally:
        os._exit(127)


if __name__ == "__main__":
    Keeper(json.loads(sys.argv[1])).run()
