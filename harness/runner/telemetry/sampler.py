"""The thread that looks at the machine at regular times, and never ends without saying so."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from harness.runner.telemetry.cpu import CpuReader, CpuReading
from harness.runner.telemetry.nvml import Gpu, GpuReading, GpuState
from harness.runner.telemetry.stretches import Timed

#: Time between two looks at clocks, power and the energy counter, which itself moves about every 20 to 100 ms.
PERIOD_S = 0.05
#: Time between two looks at processors, processes, MIG mode and memory errors: they cost more and change less.
SLOW_PERIOD_S = 1.0
#: Looks are spaced so that they take at most this share of one processor, on GPUs as on processors.
_COST_SHARE = 0.03
#: Readings kept, an hour of them.
_KEPT = 72_000
#: How long `look` waits for a driver that does not answer.
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read up to now, oldest first."""

    gpus: tuple[Gpu, ...]
    readings: tuple[tuple[GpuReading, ...], ...]
    """Of each GPU."""
    states: tuple[tuple[GpuState, ...], ...]
    """Of each GPU."""
    cpu: tuple[CpuReading, ...]
    period_s: float = PERIOD_S
    """Time between two looks at the GPUs, as it really is."""
    problem: str = ""
    """Why there will be no more; empty while all is well."""

    def reach(self, until_s: float) -> bool:
        """Whether everything was looked at after `until_s`."""
        kinds: list[Sequence[Timed]] = [*self.readings, *self.states, self.cpu]
        return all(kind and kind[-1].time_s >= until_s for kind in kinds)


class Sampler:
    """Looks at GPUs and processors, in a thread of its own, until closed."""

    def __init__(self, gpus: Sequence[Gpu], cpu: CpuReader, period_s: float = PERIOD_S) -> None:
        self._gpus = tuple(gpus)
        self._cpu = cpu
        self._least_s = period_s if gpus else SLOW_PERIOD_S
        self._period_s = self._least_s
        self._readings: tuple[deque[GpuReading], ...] = tuple(deque(maxlen=_KEPT) for _ in gpus)
        self._states: tuple[deque[GpuState], ...] = tuple(deque(maxlen=_KEPT) for _ in gpus)
        self._cpu_readings: deque[CpuReading] = deque(maxlen=_KEPT)
        self._problem = ""
        self._looking = threading.Lock()
        self._closed = threading.Event()
        self._next_slow_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """Take the first readings and go on in a thread."""
        self._look(slow=True)
        self._thread.start()

    def look(self, until_s: float) -> Readings:
        """All readings, up to one after `until_s`, so that what was measured until then lies between readings."""
        running = self._thread.ident is not None and not self._closed.is_set()
        if running and not self._thread.is_alive():
            self._problem = self._problem or "the thread that reads the machine has ended"
        # The thread may be stuck in the driver, with the lock.
        if not self._looking.acquire(timeout=_PATIENCE_S):
            empty: tuple[tuple[()], ...] = ((),) * len(self._gpus)
            problem = f"the driver has not answered for {_PATIENCE_S:g} s"
            return Readings(self._gpus, empty, empty, (), self._period_s, problem)
        try:
            readings = self._readings_now()
            if running and not readings.reach(until_s):
                self._look(slow=True)
                readings = self._readings_now()
            return readings
        finally:
            self._looking.release()

    def close(self) -> bool:
        """End the thread; False where a driver that hangs keeps it. That does not keep the process."""
        self._closed.set()
        if self._thread.ident:
            self._thread.join(timeout=_PATIENCE_S)
        return not self._thread.is_alive()

    def _readings_now(self) -> Readings:
        return Readings(
            self._gpus,
            tuple(map(tuple, self._readings)),
            tuple(map(tuple, self._states)),
            tuple(self._cpu_readings),
            self._period_s,
            self._problem,
        )

    def _run(self) -> None:
        pause_s = self._least_s
        try:
            while not self._closed.wait(pause_s):
                started = time.monotonic()
                with self._looking:
                    cost_s = self._look(slow=started >= self._next_slow_s)
                pause_s = max(self._least_s, cost_s / _COST_SHARE)
                self._period_s = pause_s + time.monotonic() - started
        except BaseException as error:  # a thread's death is silent otherwise
            self._problem = f"the thread that reads the machine has ended: {error!r}"
            raise

    def _look(self, *, slow: bool) -> float:
        """Take readings; returns what that cost, in processor seconds of this thread."""
        started = time.thread_time()
        for gpu, readings in zip(self._gpus, self._readings, strict=True):
            readings.append(gpu.reading())
        cost_s = time.thread_time() - started
        if slow:
            for gpu, states in zip(self._gpus, self._states, strict=True):
                states.append(gpu.state())
            self._cpu_readings.append(self._cpu.read())
            slow_cost_s = time.thread_time() - started
            self._next_slow_s = time.monotonic() + max(SLOW_PERIOD_S, slow_cost_s / _COST_SHARE)
        return cost_s
