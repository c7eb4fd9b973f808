"""What TensorRT-LLM's logger writes to stdout, at the level of `TLLM_LOG_LEVEL`, and simulated time."""

from __future__ import annotations

import datetime as dt
import os
import sys

_LEVELS = ("internal_error", "error", "warning", "info", "verbose", "debug")
_START = dt.datetime(2026, 1, 1, 10, 0, 0, tzinfo=dt.timezone.utc)


class Time:
    """The double's own time; it passes without waiting."""

    now_ms: float = 0.0

    @classmethod
    def pass_ms(cls, time_ms: float) -> None:
        cls.now_ms += time_ms

    @classmethod
    def stamp(cls, form: str, ago_ms: float = 0.0) -> str:
        return (_START + dt.timedelta(milliseconds=cls.now_ms - ago_ms)).strftime(form)


def write(text: str) -> None:
    """One write, so that lines of several processes do not mix."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def shows(level: str) -> bool:
    """The default level is `error`."""
    chosen = os.environ.get("TLLM_LOG_LEVEL", "error").lower()
    return _LEVELS.index(level) <= (_LEVELS.index(chosen) if chosen in _LEVELS else 1)


def line(text: str, level: str = "info", tag: str = "") -> str:
    """A line as the logger writes it: `[01/01/2026-10:00:00] [TRT-LLM] [I] text`."""
    mark = "V" if level in {"verbose", "debug"} else level[0].upper()
    return f"[{Time.stamp('%m/%d/%Y-%H:%M:%S')}] [TRT-LLM] [{mark}] {tag}{text}"


def log(text: str, level: str = "info", tag: str = "") -> None:
    if shows(level):
        write(line(text, level, tag))
