"""Progress of long steps: a line written over on a terminal, a plain line per tenth elsewhere."""

from __future__ import annotations

import shutil
import sys

import click


class Meter:
    """Tells on standard error how far a step is; nothing where it is quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._rewrites = sys.stderr.isatty()
        self._prefix = ""
        self._tenth = -1
        self._shown = False

    def begin(self, what: str) -> None:
        """Name what the following steps belong to."""
        self._prefix, self._tenth = what, -1
        if self._rewrites:
            self._show(what)

    def __call__(self, done: int, total: int, what: str) -> None:
        """Say that `done` of `total` steps are done and which comes next."""
        text = f"{self._prefix}: {done}/{total} {what}"
        if self._rewrites:
            self._show(text)
            return
        tenth = done * 10 // max(total, 1)
        if tenth > self._tenth and not self._quiet:
            self._tenth = tenth
            click.echo(text, err=True)

    def wait(self, holder: str) -> None:
        """Say for whom one waits."""
        if not self._quiet:
            self.clear()
            click.echo(f"{self._prefix}: waiting for {holder}, which builds it", err=True)

    def clear(self) -> None:
        """Take the line away, so that something else can be printed."""
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
            self._shown = False

    def _show(self, text: str) -> None:
        if not self._quiet:
            click.echo(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", nl=False, err=True)
            self._shown = True
