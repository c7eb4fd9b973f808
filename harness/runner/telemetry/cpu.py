"""The processors: how busy the machine is, how much of that is ours, load and clock.

Busy time and clock come through psutil; our own time from one pass over /proc (proc(5)), because asking psutil for
descendants costs ten times as much, and what reads the machine must not load it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    """One look at the processors. `busy_s` and `own_s` only count up; their differences are processor seconds."""

    time_s: float
    """`time.monotonic()` when it was begun."""
    busy_s: float = 0.0
    """Of all processors together, what a hypervisor took for others (steal) included."""
    own_s: float = 0.0
    """Of this process, the processes given and their descendants, those that ended included."""
    threads: int = 0
    """Of the processes given and their descendants, without this process."""
    clock_mhz: float | None = None
    load_average: float | None = None
    """Of one minute."""
    failures: tuple[str, ...] = ()


class _Process(NamedTuple):
    parent: int
    used_s: float
    """By itself and the children that it has waited for."""
    threads: int


class CpuReader:
    """Reads the processors. `own_pids` names the processes that are measured, whoever started them."""

    def __init__(self, own_pids: Callable[[], Iterable[int]]) -> None:
        self._roots = own_pids
        self.own_pids: set[int] = set()
        """Every process that was found to be ours up to now, those that ended included."""
        self._own_s = 0.0
        self._last_used_s: float | None = None

    def read(self) -> CpuReading:
        """Look; never raises. One thread at a time."""
        started = time.monotonic()
        try:
            threads = self._count_own()
            return CpuReading(
                time_s=started,
                busy_s=_busy_s(),
                own_s=self._own_s,
                threads=threads,
                clock_mhz=_clock_mhz(),
                load_average=os.getloadavg()[0],
            )
        except Exception as error:  # noqa: BLE001 - a /proc that is not as documented must reach the record
            return CpuReading(time_s=started, failures=(f"processor time: {error!r}",))

    def _count_own(self) -> int:
        here = os.getpid()
        processes = dict(_processes())
        own = _with_descendants({here, *self._roots()}, processes)
        self.own_pids |= own
        # What an ended process used is in its parent's time once the parent has waited for it, so that the sum over
        # a tree loses nothing. One that was left to init falls out: that lowers the sum, which is no negative use.
        used_s = sum(processes[pid].used_s for pid in own)
        if self._last_used_s is not None:
            self._own_s += max(0.0, used_s - self._last_used_s)
        self._last_used_s = used_s
        return sum(processes[pid].threads for pid in own - {here})


def _processes() -> Iterator[tuple[int, _Process]]:
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path for every name doubles the cost
        if not name.isdigit():
            continue
        try:
            stat = Path(f"/proc/{name}/stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        # The command's name, in parentheses, may hold anything; state is the first field behind it.
        fields = stat.rpartition(")")[2].split()
        used = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
        yield int(name), _Process(int(fields[1]), used * tick_s, int(fields[17]))


def _with_descendants(roots: set[int], processes: dict[int, _Process]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: set[int] = set()
    to_visit = [pid for pid in roots if pid in processes]
    while to_visit:
        pid = to_visit.pop()
        if pid not in found:
            found.add(pid)
            to_visit += children.get(pid, [])
    return found


def _busy_s() -> float:
    times = psutil.cpu_times()
    # Guest time is part of user time (proc(5)); waiting for input and output is idle.
    parts = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, part, 0.0) for part in parts))


def _clock_mhz() -> float | None:
    """Clock of the processors, on average; None where the machine does not tell, as many virtual ones do not."""
    try:
        clock = psutil.cpu_freq()
        return float(clock.current) or None
    except (AttributeError, OSError, NotImplementedError, ValueError, RuntimeError):  # it may return None
        return None
