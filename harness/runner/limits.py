"""How long a worker may take for what it is doing."""

from __future__ import annotations

from dataclasses import dataclass

from harness.runner.messages import Done, Failed, Measured, Message, Opened, Prepared, Preparing, Progress, Unanswered


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one worker, in seconds."""

    startup_s: float = 900.0
    """Until the backend is open: imports, the engine, compilation."""
    idle_s: float = 120.0
    """Without a word while sampling, where progress comes every second or after every single iteration."""
    arm_s: float = 900.0
    """For making one arm ready; and, times the number of arms, for sampling them."""
    stop_s: float = 5.0
    """Between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit that applies now."""

    at_s: float
    """On the clock of `time.monotonic()`."""
    reason: str


class Watch:
    """Which limit applies, from the messages so far. Times are those of `time.monotonic()`."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._limits = limits
        self._prepared = 0
        self._sampling = Limit(float("inf"), "")
        self._limit = Limit(now_s + limits.startup_s, f"the backend was not open after {limits.startup_s:g} s")

    @property
    def limit(self) -> Limit:
        """The limit that comes first."""
        return min(self._limit, self._sampling, key=lambda limit: limit.at_s)

    def note(self, message: Message, now_s: float) -> None:
        """Take note of a message that came now."""
        limits = self._limits
        silent = Limit(now_s + limits.idle_s, f"not a word for {limits.idle_s:g} s")
        if isinstance(message, Preparing):
            self._sampling = Limit(float("inf"), "")
            self._limit = Limit(now_s + limits.arm_s, f"not ready to be timed after {limits.arm_s:g} s")
        elif isinstance(message, Prepared):
            self._prepared += 1
            total_s = limits.arm_s * self._prepared
            self._sampling = Limit(now_s + total_s, f"sampling of {self._prepared} arms took more than {total_s:g} s")
            self._limit = silent
        elif isinstance(message, Opened | Progress | Measured | Unanswered):
            self._limit = silent
        elif isinstance(message, Done | Failed):
            self._sampling = Limit(float("inf"), "")
            self._limit = Limit(now_s + limits.idle_s, f"did not exit within {limits.idle_s:g} s of its last word")
