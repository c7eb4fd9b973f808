"""Append-only files of lines that survive a crash, a full disk and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import UnreadableInput
from harness.files.atomic import sync_folder, write_error

if TYPE_CHECKING:
    from typing_extensions import Self


class JournalFile:
    """An append-only file of lines, each on disk before `append` returns.

    Opening it cuts off what a crash left after the last complete line; `dropped_bytes` says how much that was. One
    process writes a journal at a time: hold `folder_lock` meanwhile. Raises as `write_atomic` does.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._descriptor = -1
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._descriptor).st_size
            whole = _end_of_last_line(self._descriptor, size)
            self.dropped_bytes = size - whole
            if self.dropped_bytes:
                os.ftruncate(self._descriptor, whole)
            sync_folder(self.path.parent)
        except OSError as error:
            self.close()
            raise write_error(self.path, error) from error

    def append(self, *lines: str) -> None:
        """Write lines (without their newlines) and wait until the device has them; all of them count, or none."""
        if any("\n" in line for line in lines):
            raise ValueError("a line of a journal holds no newline")
        rest = memoryview("".join(f"{line}\n" for line in lines).encode())
        start = os.fstat(self._descriptor).st_size
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError as error:
            self._cut(start)
            raise write_error(self.path, error) from error
        finally:
            if rest:  # Ctrl-C between two halves of a line
                self._cut(start)

    def _cut(self, size: int) -> None:
        # Where even this fails, readers still ignore what follows the last newline.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, size)

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end_of_last_line(descriptor: int, size: int, block: int = 1 << 16) -> int:
    """Return how many bytes lead up to and include the last newline, searching backwards."""
    end = size
    while end > 0:
        start = max(0, end - block)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


class JournalLines(NamedTuple):
    """The complete lines of a journal, None for one that is not UTF-8, and how many bytes of an incomplete last one."""

    lines: list[str | None]
    dropped_bytes: int


def read_journal(path: str | os.PathLike[str]) -> JournalLines:
    """Read the complete lines of a journal, while it is being written or after a crash.

    A damaged byte costs its line and no other. Raises UnreadableInput where the file is missing or unreadable.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UnreadableInput(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error
    *whole, torn = content.split(b"\n")
    return JournalLines([_decoded(line) for line in whole], len(torn))


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
