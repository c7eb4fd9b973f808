"""Order of TensorRT-LLM versions: `1.2.1 < 1.3.0rc7 < 1.3.0rc20 < 1.3.0`."""

from __future__ import annotations

import re
from functools import lru_cache

from harness.errors import UsageError

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:rc(\d+))?(?:\.post(\d+))?")

#: A final release comes after every candidate of it.
_FINAL = 1_000_000

VersionKey = tuple[int, int, int, int, int]


@lru_cache(maxsize=256)
def version_key(version: str) -> VersionKey:
    """Return what to compare versions by; raise UsageError for text that is no version."""
    match = _VERSION.fullmatch(version.strip())
    if not match:
        raise UsageError(f"'{version}' is no TensorRT-LLM version; write it as 1.3.0rc20 or 1.2.1")
    major, minor, patch, candidate, post = match.groups()
    return (int(major), int(minor), int(patch or 0), _FINAL if candidate is None else int(candidate), int(post or 0))


def within(version: str, since: str, before: str) -> bool:
    """Whether `since <= version < before`; an empty bound is none, and no version at all lies within any bounds."""
    if not version:
        return True
    key = version_key(version)
    return (not since or key >= version_key(since)) and (not before or key < version_key(before))
