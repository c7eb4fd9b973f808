"""Paths as people give them, checked before anything is opened."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import UsageError

#: Bytes of one name and of a whole path: NAME_MAX, and PATH_MAX without its NUL (limits.h of Linux).
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4095


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return `path`; raise UsageError where no file can have it: it is blank, holds a NUL byte or is too long."""
    text = os.fspath(path)
    if not text.strip():
        raise UsageError("an empty path names no file")
    if "\0" in text:
        raise UsageError(f"{text[:80]!r}: a path holds no NUL byte")
    try:
        size = len(os.fsencode(text))
        long = next((name for name in text.split("/") if len(os.fsencode(name)) > MAX_NAME_BYTES), None)
    except UnicodeEncodeError:
        raise UsageError(f"{text[:80]!a}: cannot be a path in this locale; try LC_ALL=C.UTF-8") from None
    if long is not None:
        raise UsageError(f"'{long[:40]}…': the name is too long: a file's name has up to {MAX_NAME_BYTES} bytes")
    if size > MAX_PATH_BYTES:
        raise UsageError(f"'{text[:40]}…': the path is too long: {size} bytes, where {MAX_PATH_BYTES} are the limit")
    return Path(text)
