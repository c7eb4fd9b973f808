"""Writing into a store that several processes and users share: one writer a key, its permissions, renames.

What the store's folder allows its group and others, everything in it allows, whatever the umask of who writes; so a
folder made with `mkdir -m 2775` is shared by a group. Files of finished engines are read-only for all.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from harness.engines.sealed import remove
from harness.errors import HarnessError
from harness.files import folder_lock, write_error
from harness.files.atomic import sync_folder
from harness.files.locks import FolderInUse

#: Told who holds what one waits for: `process 41 on node3 since 2026-11-30 09:00:00 UTC`.
OnWait = Callable[[str], None]

_POLL_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


@contextlib.contextmanager
def writing(root: Path, folder: Path, on_wait: OnWait | None = None, *, wait: bool = True) -> Iterator[int]:
    """Hold `folder` of the store at `root` for writing; yield the mode that finished files get.

    Waits while another process holds it, having told `on_wait` once, or raises FolderInUse. Errors of the operating
    system become errors of `harness.errors`, those in the block too.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        allowed = stat.S_IMODE(root.stat().st_mode)
        # Of the whole process: nothing else is written while a store is.
        before = os.umask(0o777 & ~(allowed | 0o700))
        try:
            with _held(folder, on_wait, wait):
                yield 0o444 & (allowed | 0o400)
        finally:
            os.umask(before)
    except OSError as error:
        raise write_error(error.filename or folder, error) from error


@contextlib.contextmanager
def _held(folder: Path, on_wait: OnWait | None, wait: bool) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for attempt in itertools.count():
            try:
                stack.enter_context(folder_lock(folder))
                break
            except FolderInUse as held:
                if not wait:
                    raise
                if on_wait and not attempt:
                    on_wait(held.holder)
            except HarnessError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise  # else: pruned between the making of the folder and of its lock
            time.sleep(_POLL_S[min(attempt, len(_POLL_S) - 1)])
        yield


def publish(folder: Path, target: Path) -> None:
    """Put a finished folder at `target`, in place of what is there; a reader finds the one, nothing, or the other."""
    replaced = target.with_name(f".{target.name}.replaced")
    remove(replaced)
    if os.path.lexists(target):
        target.rename(replaced)
    folder.rename(target)
    sync_folder(target.parent)
    remove(replaced)


def retire(target: Path) -> None:
    """Remove a finished folder; it is gone at once, and never half there."""
    if not os.path.lexists(target):
        return
    replaced = target.with_name(f".{target.name}.replaced")
    remove(replaced)
    target.rename(replaced)
    sync_folder(target.parent)
    remove(replaced)


def disk_bytes(paths: Iterable[Path], counted: set[tuple[int, int]] | None = None) -> int:
    """Bytes of all files below `paths`; a file that several engines share counts once.

    `counted` holds files (device, inode) that have been counted already, and those of this call afterwards.
    """
    seen = set() if counted is None else counted
    total = 0
    for path in paths:
        for file in path.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # removed while we look
                status = file.lstat()
                if not stat.S_ISDIR(status.st_mode) and (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    total += status.st_size
    return total
