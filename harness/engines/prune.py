"""Making room in a store: what unfinished builds left, then the engines that were not wanted for longest."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from harness.engines.places import disk_bytes, retire, writing
from harness.engines.sealed import remove
from harness.engines.store import BUILDING, ENGINE, LLM_ARGS, PLANS, EngineStore
from harness.files.locks import LOCK_NAME, FolderInUse


@dataclass(frozen=True, slots=True)
class Held:
    """What the store holds under one key, in bytes on disk."""

    key: str
    engine_bytes: int
    """Engine, settings and plans; files shared with an engine wanted later count there."""
    unfinished_bytes: int
    last_wanted_s: float
    """When the engine was last built or asked for, in seconds since 1970; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed and what is left."""

    removed: tuple[Held, ...]
    unfinished: tuple[Held, ...]
    in_use: tuple[str, ...]
    """Keys that another process is writing."""
    kept: int
    kept_bytes: int


def holdings(store: EngineStore) -> list[Held]:
    """What the store holds, the engine wanted last first."""
    counted: set[tuple[int, int]] = set()
    wanted = sorted(store.keys(), key=lambda key: (-_last_wanted_s(store, key), key))
    found = []
    for key in wanted:
        home = store.home(key)
        engine = disk_bytes((home / name for name in (ENGINE, LLM_ARGS, PLANS)), counted)
        unfinished = disk_bytes(_unfinished(home), counted)
        found.append(Held(key, engine, unfinished, _last_wanted_s(store, key)))
    return found


def prune(store: EngineStore, keep_bytes: int, *, dry_run: bool = False) -> Pruned:
    """Remove unfinished builds, then engines until at most `keep_bytes` are left, those not wanted for longest first.

    What another process is writing stays. Raises EnvironmentUnfit where the store may not be written.
    """
    removed, unfinished, in_use = [], [], []
    kept = kept_bytes = 0
    full = False
    for held in holdings(store):
        full = full or kept_bytes + held.engine_bytes > keep_bytes
        has_engine = held.last_wanted_s > 0
        goes = has_engine and full
        try:
            if not dry_run:
                _clear(store, held.key, engine_too=goes)
        except FolderInUse:
            in_use.append(held.key)
            goes = False
        else:
            unfinished += [held] if held.unfinished_bytes else []
        removed += [held] if goes else []
        if has_engine and not goes:
            kept += 1
            kept_bytes += held.engine_bytes
    return Pruned(tuple(removed), tuple(unfinished), tuple(in_use), kept, kept_bytes)


def _clear(store: EngineStore, key: str, *, engine_too: bool) -> None:
    home = store.home(key)
    if not engine_too and not _unfinished(home) and store.engine_path(key).exists():
        return
    with writing(store.root, home, wait=False):
        for leftover in _unfinished(home):
            remove(leftover)
        if engine_too:
            retire(home / ENGINE)
            remove(home / LLM_ARGS)
            remove(home / PLANS)
    with contextlib.suppress(OSError):  # not empty, or wanted again
        home.rmdir()


def _unfinished(home: Path) -> list[Path]:
    """What a build that did not come to its end left."""
    hidden = (found for parent in (home, home / LLM_ARGS, home / PLANS) for found in parent.glob(".*"))
    return [path for path in (home / BUILDING, *hidden) if path.exists() and path.name != LOCK_NAME]


def _last_wanted_s(store: EngineStore, key: str) -> float:
    try:
        return store.engine_path(key).stat().st_mtime
    except OSError:
        return 0.0
