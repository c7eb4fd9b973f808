"""Progress of a measured run: a bar written over on a terminal, a plain line per worker elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.runner.measure_run import Now

_BAR = 24


class MeasureProgress:
    """Tells on standard error which group is measured, in which replicate, and how long the rest takes."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._rewrites = sys.stderr.isatty()
        self._shown = False

    def __call__(self, now: Now) -> None:
        """Say where the run is."""
        if self._quiet:
            return
        if self._rewrites:
            filled = _BAR * now.done // max(now.total, 1)
            sampling = f", {now.samples} samples" if now.samples else ""
            text = f"[{'#' * filled}{'-' * (_BAR - filled)}] {_where(now)}{sampling}"
            click.echo(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", nl=False, err=True)
            self._shown = True
        elif now.samples is None:
            click.echo(_where(now), err=True)

    def clear(self) -> None:
        """Take the bar away, so that something else can be printed."""
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
            self._shown = False


def _where(now: Now) -> str:
    left = "" if now.left_s is None else f", about {duration_text(now.left_s)} left"
    replicate = f"replicate {now.replicate + 1}/{now.replicates}"
    cases = f" ({now.arms} case{'' if now.arms == 1 else 's'})" if now.arms else ""
    return f"measured {now.done}/{now.total}, {replicate}: {now.group}{cases}{left}"


def duration_text(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
