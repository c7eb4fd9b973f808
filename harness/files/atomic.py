"""Writing a file so that a reader finds the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.errors import EnvironmentUnfit, HarnessError, UsageError
from harness.files.paths import checked_path

_REMEDIES = {
    errno.ENOSPC: "no space left on the device; free some, or write to another one",
    errno.EDQUOT: "the disk quota is used up; free some space, or write to another place",
    errno.EFBIG: "the limit on the size of a file is reached; see `ulimit -f`",
    errno.EROFS: "the file system is read-only; write to another place",
    errno.EACCES: "permission denied; write to a folder that is yours",
    errno.EPERM: "operation not permitted; write to a folder that is yours",
    errno.EIO: "the device reports an input/output error; write to another one",
    errno.ESTALE: "the network file system lost this file; mount it again, or write to another place",
}
_WRONG_PATHS = {
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "a symbolic link leads back to itself",
}


def write_error(path: str | os.PathLike[str], error: OSError) -> HarnessError:
    """Return the error to raise where writing `path` failed: what is wrong, and what to do about it."""
    number = error.errno or 0
    if number in _WRONG_PATHS:
        return UsageError(f"{os.fspath(path)}: cannot be written: {_WRONG_PATHS[number]}")
    return EnvironmentUnfit(
        f"{os.fspath(path)}: cannot be written: {_REMEDIES.get(number, error.strerror or str(error))}"
    )


def write_atomic(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write `content` (text as UTF-8) to `path`, which holds either the old or the new content at any moment.

    Creates missing folders. Raises EnvironmentUnfit where the disk is full or not writable, UsageError where the path
    cannot name a file; nothing temporary stays behind.
    """
    with atomic_writer(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def atomic_writer(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a binary file that takes the place of `path` when the block ends without an error.

    For content too large to hold in memory; raises as `write_atomic` does.
    """
    target = checked_path(path)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in `folder` durable, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
