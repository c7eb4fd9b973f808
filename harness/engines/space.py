"""Is there room: disk and memory that a build takes against what there is, said before it starts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.engines.engine_spec import EngineSpec
from harness.engines.places import disk_bytes
from harness.engines.store import BUILDING, EngineStore
from harness.errors import EnvironmentUnfit

#: Room for manifests, settings, and what several engines begin at once.
_SPARE_BYTES = 16 << 20

_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_space(store: EngineStore, specs: Sequence[EngineSpec]) -> int:
    """Return the bytes of disk that building `specs` one after the other takes.

    What earlier, unfinished builds of them wrote is there already. Raises EnvironmentUnfit where disk or memory are too
    small, with both sizes and what to do.
    """
    if not specs:
        return 0
    there = sum(disk_bytes([store.home(spec.key) / BUILDING]) for spec in specs)
    needed = max(0, sum(spec.disk_bytes for spec in specs) - there) + _SPARE_BYTES
    place = _existing(store.root)
    free = shutil.disk_usage(place).free
    if needed > free:
        engines = "1 engine needs" if len(specs) == 1 else f"{len(specs)} engines need"
        raise EnvironmentUnfit(
            f"{store.root}: {engines} {gigabytes(needed)} of disk and "
            f"{gigabytes(free)} are free; make room (`trtllm-harness engines prune --keep-gb N`), "
            "take another --store, or build fewer at a time"
        )
    _check_memory(specs)
    return needed


def _check_memory(specs: Sequence[EngineSpec]) -> None:
    needed = max((spec.weights.memory_bytes for spec in specs if spec.weights), default=0)
    available = available_memory_bytes()
    if available is not None and needed > available:
        raise EnvironmentUnfit(
            f"writing the weights needs {gigabytes(needed)} of memory and {gigabytes(available)} are available; "
            "use a larger machine, or --weights none"
        )


def available_memory_bytes() -> int | None:
    """Memory that this process may take (Linux: MemAvailable, a cgroup's limit); None where the system does not say."""
    meminfo = (line.split() for line in _lines(Path("/proc/meminfo")))
    sizes = [int(words[1]) * 1024 for words in meminfo if words[0] == "MemAvailable:"]
    for path in _MEMORY_LIMITS:
        sizes += [int(line) for line in _lines(path) if line.isdigit()]
    return min(sizes, default=None)


def gigabytes(size: float) -> str:
    """A size for people: `12.3 GB`, `4.5 MB` or `800 kB`, of 1000s."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.0f} kB" if size >= 1e3 else f"{size:.0f} bytes"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next((folder for folder in (path, *path.absolute().parents) if folder.is_dir()), Path("/"))
