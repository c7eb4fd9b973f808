"""One process at a time in a folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from harness.errors import EnvironmentUnfit
from harness.files.atomic import write_error
from harness.files.paths import checked_path

LOCK_NAME = ".lock"

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class FolderInUse(EnvironmentUnfit):
    """Another process holds the folder; `holder` says which one, where and since when."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.holder = holder
        super().__init__(f"{folder}: in use by {holder}; wait until it has ended, or write to another folder")


@contextlib.contextmanager
def folder_lock(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold `folder` (created if missing) for this process while the block runs.

    The lock is the kernel's (flock), so that it ends with its process, however that ends. Raises FolderInUse that names
    the process and host that hold the folder, and EnvironmentUnfit where the file system has no locks.
    """
    path = checked_path(folder) / LOCK_NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _acquire(path)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise EnvironmentUnfit(
                f"{path.parent}: this file system has no file locks; write to another one (Lustre: mount with -o flock)"
            ) from error
        raise write_error(path.parent, error) from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """Lock `path` and write into it who holds it; return the open descriptor."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, descriptor):
                os.ftruncate(descriptor, 0)
                started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()} since {started}".encode())
                return descriptor
        except BlockingIOError as error:
            holder = os.pread(descriptor, 400, 0).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise FolderInUse(path.parent, holder) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed the file between our open and our lock


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
