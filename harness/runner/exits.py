"""Why a worker ended: its exit status and the end of its log, in a class, a sentence and what may help."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.backends.signature import Failure, Signature

__all__ = [
    "SIGNATURES",
    "ExitClass",
    "Signature",
    "classify",
    "match_signature",
    "oom_kills",
    "signal_name",
    "where_it_was",
]


@dataclass(frozen=True, slots=True)
class ExitClass:
    """Class of an exit."""

    status: Failure
    reason: str
    advice: str = ""


_LESS = "a smaller batch or KVSL, or fewer arms in one group, needs less memory"

#: Failures that are not of one backend. Sources: CPython's MemoryError and numpy's subclass of it; PyTorch's
#: c10/core/impl/alloc_cpu.cpp ("can't allocate memory", "not enough memory") and c10/cuda/CUDACachingAllocator.cpp
#: ("CUDA out of memory"); libstdc++'s bad_alloc; cudaGetErrorString of cudaErrorInsufficientDriver, cudaErrorNoDevice
#: and cudaErrorDevicesUnavailable.
SIGNATURES = (
    Signature(r"^(\w+\.)*_?(Array)?MemoryError\b.*", "oom", advice=_LESS),
    Signature(r"^(\w+\.)*OutOfMemoryError\b.*", "oom", advice=_LESS),
    Signature(r"^.*CUDA out of memory.*", "oom", advice=_LESS),
    Signature(r"^.*DefaultCPUAllocator: (can't allocate memory|not enough memory).*", "oom", advice=_LESS),
    Signature(r"^.*\bstd::bad_alloc\b.*", "oom", advice=_LESS),
    Signature(
        r"^.*CUDA driver version is insufficient for CUDA runtime version.*", "unfit", advice="update the driver"
    ),
    Signature(r"^.*no CUDA-capable device is detected.*", "unfit", advice="see nvidia-smi and CUDA_VISIBLE_DEVICES"),
    Signature(
        r"^.*CUDA-capable device\(s\) is/are busy or unavailable.*",
        "unfit",
        advice="see nvidia-smi for who uses the GPU",
    ),
)

#: Signal → what usually sends it.
_SIGNALS = {
    signal.SIGKILL: "kill -9, or a memory limit of the container or the batch system",
    signal.SIGBUS: "a shared-memory file system that is full, as Docker's is at 64 MB: see --shm-size, --ipc=host",
    signal.SIGILL: "a library built for another processor",
    signal.SIGXCPU: "the limit on processor time: see `ulimit -t`",
    signal.SIGXFSZ: "the limit on the size of a file: see `ulimit -f`",
    signal.SIGTERM: "the batch system, or a person",
}

#: Top of the stack that `faulthandler` writes, of the thread that holds the interpreter.
_STACK = re.compile(
    r"^(?:Current t|T)hread 0x.*\(most recent call first\):\n  File \"(.*)\", line (\d+) in (.*)$", re.MULTILINE
)
#: Last line of a traceback: the exception.
_EXCEPTION = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+(\S.*)$", re.MULTILINE)


def classify(
    returncode: int | None, tail: str, *, signatures: Iterable[Signature] = (), oom_killed: bool = False
) -> ExitClass:
    """Say why a worker ended before it was done.

    `returncode` as of `subprocess`: minus the number of the signal that ended it; None where it is not known. `tail` is
    the end of its log. `signatures` of the backend come before those that are known here; among several that match,
    what was written last counts. `oom_killed` says that the kernel killed something for want of memory meanwhile.
    """
    for known in (tuple(signatures), SIGNATURES):
        found = match_signature(known, tail)
        if found:
            return found
    if returncode is not None and returncode < 0:
        return _by_signal(-returncode, tail, oom_killed=oom_killed)
    exceptions = _EXCEPTION.findall(tail)
    if exceptions:
        return ExitClass("crash", exceptions[-1])
    if returncode is None:
        return ExitClass("crash", "its keeper process was killed")
    return ExitClass("crash", f"exited with code {returncode} before it was done")


def match_signature(signatures: Iterable[Signature], text: str) -> ExitClass | None:
    """Return the class of the signature that matches last in `text`, or None; general ones only where no other does."""
    found: tuple[tuple[bool, int], ExitClass] | None = None
    for one in signatures:
        for match in re.finditer(one.pattern, text, re.MULTILINE):
            rank = (not one.general, match.start())
            if found is None or rank >= found[0]:
                found = rank, ExitClass(one.status, _reason(one, match), one.advice)
    return found[1] if found else None


def _reason(signature: Signature, match: re.Match[str]) -> str:
    if not signature.reason:
        return match[0].strip()
    return signature.reason.format_map({name: value or "" for name, value in match.groupdict().items()})


def where_it_was(tail: str) -> str:
    """Return ` in FUNCTION (FILE:LINE)` from the last stack that `faulthandler` wrote, or nothing."""
    current = [match for match in _STACK.finditer(tail) if match[0].startswith("Current")]
    stacks = current or list(_STACK.finditer(tail))
    if not stacks:
        return ""
    file, line, function = stacks[-1].groups()
    return f" in {function} ({Path(file).name}:{line})"


def _by_signal(number: int, tail: str, *, oom_killed: bool) -> ExitClass:
    name = signal_name(number)
    if number == signal.SIGKILL and oom_killed:
        return ExitClass("oom", "killed by the kernel for want of memory (SIGKILL)", _LESS)
    usual = _SIGNALS.get(signal.Signals(number)) if name.startswith("SIG") else None
    return ExitClass("crash", f"killed by {name}{where_it_was(tail)}", f"usual cause: {usual}" if usual else "")


def signal_name(number: int) -> str:
    """Return `SIGSEGV` for 11; a number for a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def oom_kills() -> int | None:
    """Return how often the kernel killed for want of memory since it started, of memory control groups too.

    From the `oom_kill` line of /proc/vmstat (Linux 4.13); None where it is not told.
    """
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
