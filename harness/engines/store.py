"""The engine store: one folder a key, shared by processes and users.

    STORE/KEY/engine/           what TensorRT-LLM loads, sealed by manifest.json
    STORE/KEY/llm_args/NAME/    settings of the LLM API for it; the end of NAME is a hash of their content
    STORE/KEY/plans/NAME/       TensorRT plans of it, sealed likewise
    STORE/KEY/building/         an engine on its way

KEY is a hash of everything that decides the content, so a folder is written once and only ever replaced where it is
damaged. Settings and plans stand beside the engine: a new workload makes new settings and leaves the weights alone.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.engines.engine_spec import EngineSpec, Progress, no_progress
from harness.engines.manifest import Engine, Manifest, describe, read_engine
from harness.engines.places import OnWait, publish, writing
from harness.engines.sealed import MANIFEST_FILE, FileEntry, damage, digest, finish, remove, seal, sha256_of
from harness.errors import UnreadableInput, UsageError

ENGINE = "engine"
BUILDING = "building"
LLM_ARGS = "llm_args"
PLANS = "plans"

#: Smaller files are not worth a look for one with the same content in another engine.
_SHARED_FROM_BYTES = 1 << 20

_KEY = re.compile("[0-9a-f]{16}")
_DIGEST_DIGITS = 12

Outcome = Literal["built", "kept", "rebuilt"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What there is of an engine: nothing, a whole one, or a damaged one."""

    engine: Engine | None = None
    damage: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it can be used."""
        return self.engine is not None and not self.damage


@dataclass(frozen=True, slots=True)
class Built:
    """An engine that is there now, and what that took. `damage` is why it was built anew."""

    engine: Engine
    outcome: Outcome
    damage: tuple[str, ...] = ()


class EngineStore:
    """Engines in a folder. Reading needs no lock; writing holds one key at a time."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def home(self, key: str) -> Path:
        """The folder of everything that belongs to one engine."""
        return self.root / key

    def engine_path(self, key: str) -> Path:
        """Where an engine is, or would be."""
        return self.home(key) / ENGINE

    def keys(self) -> list[str]:
        """Every key of which there is something, sorted."""
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if _KEY.fullmatch(path.name) and path.is_dir())

    def find(self, text: str) -> str:
        """The key that `text` is the beginning of. Raises UsageError where there is none, or more than one."""
        fitting = [key for key in self.keys() if key.startswith(text) and self.engine_path(key).exists()]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(f"{self.root}: {len(fitting)} engines begin with '{text}': {', '.join(fitting)}")
        raise UsageError(
            f"{self.root}: no engine '{text}' is here; `trtllm-harness engines list` names those there are"
        )

    def inspect(self, key: str, *, contents: bool = True) -> Inspection:
        """Look at an engine; without `contents`, names and sizes only."""
        return _inspect(self.engine_path(key), key, contents)

    def get(self, key: str) -> Engine:
        """The engine of a key, for use. Raises UsageError where there is none, UnreadableInput where it is damaged."""
        found = self.inspect(key, contents=False)
        if found.damage:
            raise UnreadableInput(f"{self.engine_path(key)}: damaged: {'; '.join(found.damage)}; build it again")
        if found.engine is None:
            raise UsageError(f"{self.root}: engine {key} is not here; build it first")
        self.touch(key)
        return found.engine

    def touch(self, key: str) -> None:
        """Note that an engine is wanted, so that `prune` removes others first. No matter where one may not write."""
        with contextlib.suppress(OSError):
            os.utime(self.engine_path(key))

    def build(self, spec: EngineSpec, progress: Progress = no_progress, on_wait: OnWait | None = None) -> Built:
        """Return the engine of `spec`, built where it is not there or damaged.

        One process builds a key while the others wait for it. Killed at any moment it leaves no engine that is
        accepted, and the next build goes on from there. Raises EnvironmentUnfit where the disk is full or not writable.
        """
        found = self.inspect(spec.key)
        if found.engine and found.is_whole:
            self.touch(spec.key)
            return Built(found.engine, "kept")
        with writing(self.root, self.home(spec.key), on_wait) as file_mode:
            found = self.inspect(spec.key)
            if found.engine and found.is_whole:  # built while we waited
                return Built(found.engine, "kept")
            engine = self._make(spec, file_mode, progress)
        return Built(engine, "rebuilt" if found.damage else "built", found.damage)

    def _make(self, spec: EngineSpec, file_mode: int, progress: Progress) -> Engine:
        building, target = self.home(spec.key) / BUILDING, self.engine_path(spec.key)
        if _inspect(building, spec.key, contents=True).is_whole:  # an earlier build ended just before its last step
            publish(building, target)
            return read_engine(target)
        if not spec.weights:
            remove(building)
        building.mkdir(exist_ok=True)
        try:
            manifest = self._fill(building, spec, file_mode, progress)
        except BaseException:
            if not spec.weights:  # weights are kept, to go on from
                remove(building)
            raise
        publish(building, target)
        return Engine(target, manifest)

    def _fill(self, building: Path, spec: EngineSpec, file_mode: int, progress: Progress) -> Manifest:
        remove(building / MANIFEST_FILE)
        write_files(building, spec.files)
        details = spec.weights.write(building, progress) if spec.weights else {}
        origin = spec.origin.model_copy(update={"details": dict(details)})

        def described(entries: tuple[FileEntry, ...]) -> Manifest:
            self._share(building, entries)
            return describe(spec.key, spec.inputs, spec.variant, spec.architecture, origin, spec.notes, entries)

        return seal(building, file_mode, described)

    def _share(self, folder: Path, entries: tuple[FileEntry, ...]) -> None:
        """Replace large files by links to files of other engines with the same content."""
        wanted = {(entry.sha256, entry.bytes): entry.name for entry in entries if entry.bytes >= _SHARED_FROM_BYTES}
        for key in self.keys() if wanted else ():
            engine = self.inspect(key, contents=False).engine
            for entry in engine.manifest.files if engine else ():
                name = wanted.get((entry.sha256, entry.bytes))
                twin = self.engine_path(key) / entry.name
                # Where it cannot be linked or was just pruned, our own copy stays.
                with contextlib.suppress(OSError):
                    if name and sha256_of(twin) == entry.sha256:
                        link = folder / ".link"
                        remove(link)
                        link.hardlink_to(twin)
                        link.replace(folder / name)
                        del wanted[entry.sha256, entry.bytes]

    def add_settings(
        self, key: str, name: str, texts: Mapping[str, str], on_wait: OnWait | None = None
    ) -> tuple[Path, Outcome]:
        """Put LLM-API settings (file → text) beside an engine; return their folder and what that took.

        The folder is called `name` and the hash of the texts, so that equal settings are one folder and a change of
        their files shows.
        """
        folder = self.home(key) / LLM_ARGS / f"{name}-{_digest(texts)}"
        if settings_are_whole(folder):
            return folder, "kept"
        existed = folder.exists()

        def fill(building: Path, file_mode: int) -> None:
            write_files(building, texts)
            finish(building, file_mode)

        self.place(key, folder, fill, settings_are_whole, on_wait)
        return folder, "rebuilt" if existed else "built"

    def place(
        self,
        key: str,
        folder: Path,
        fill: Callable[[Path, int], None],
        is_whole: Callable[[Path], bool],
        on_wait: OnWait | None = None,
    ) -> None:
        """Fill a folder that belongs to an engine, aside, and rename it into place unless another process was first.

        `fill` is given the folder and the mode of finished files.
        """
        with writing(self.root, self.home(key), on_wait) as file_mode:
            if is_whole(folder):
                return
            building = folder.with_name(f".{BUILDING}")
            remove(building)
            building.mkdir(parents=True)
            try:
                fill(building, file_mode)
                publish(building, folder)
            finally:
                remove(building)

    def settings(self, key: str) -> list[Path]:
        """Folders of LLM-API settings beside an engine, sorted by name."""
        return _folders(self.home(key) / LLM_ARGS)

    def plans(self, key: str) -> list[Path]:
        """Folders of TensorRT plans beside an engine, sorted by name."""
        return _folders(self.home(key) / PLANS)


def _inspect(path: Path, key: str, contents: bool) -> Inspection:
    if not path.exists():
        return Inspection()
    try:
        engine = read_engine(path)
    except UsageError:
        return Inspection(None, (f"{MANIFEST_FILE} is missing",))
    except UnreadableInput as error:
        return Inspection(None, (str(error),))
    wrong = damage(path, engine.manifest, contents=contents)
    if engine.key != key:
        wrong = (f"{MANIFEST_FILE} is that of engine {engine.key}", *wrong)
    return Inspection(engine, wrong)


def settings_are_whole(folder: Path) -> bool:
    """Whether the files of a settings folder are those that its name says."""
    try:
        texts = {
            path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
            for path in folder.rglob("*")
            if path.is_file()
        }
    except (OSError, UnicodeDecodeError):
        return False
    return bool(texts) and folder.name.endswith(f"-{_digest(texts)}")


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write text files into a folder that nobody reads yet."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(path)  # what an earlier try left is read-only once it was sealed
        path.write_text(text, encoding="utf-8")


def _digest(texts: Mapping[str, str]) -> str:
    return digest(dict(texts))[:_DIGEST_DIGITS]


def _folders(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))
