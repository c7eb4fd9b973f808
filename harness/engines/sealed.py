"""Sealed folders: a manifest written last says which files there are, and a folder without one counts for nothing.

A folder is filled under another name, `seal` makes every file durable, notes its SHA-256 and writes the manifest, and a
rename puts the folder where it is looked for. A reader so finds a whole folder or none, whenever the writer died, and
`damage` finds what happened to it afterwards. The manifest has a checksum of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from harness import files
from harness.errors import UnreadableInput, UsageError
from harness.files.atomic import sync_folder
from harness.spec.base import Spec, parse
from harness.version import __version__

MANIFEST_FILE = "manifest.json"

#: Layout of every manifest and of the store. A later one is refused, an earlier one would be migrated here.
SCHEMA_VERSION = 1

_READ_BYTES = 1 << 20
#: NFS keeps a file that is deleted while somebody reads it under such a name.
_NFS_LEFTOVER = ".nfs"


def _relative(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or path.as_posix() != name or name in {".", MANIFEST_FILE}:
        raise ValueError(f"{name!r} is no name of a file inside the folder")
    return name


class FileEntry(Spec):
    """One file of a sealed folder."""

    name: Annotated[str, AfterValidator(_relative)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Seal(Spec):
    """What every manifest holds. `inputs` is everything that decides the content, `key` its hash."""

    schema_version: int = SCHEMA_VERSION
    key: str
    inputs: dict[str, Any]
    files: tuple[FileEntry, ...]
    built_at: str = Field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="seconds"))
    """UTC, ISO 8601."""
    harness: str = __version__
    """Version that wrote it; no part of the key, since what matters of it is in `inputs`."""

    @property
    def total_bytes(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(entry.bytes for entry in self.files)


SealT = TypeVar("SealT", bound=Seal)


def key_of(inputs: object) -> str:
    """Return 16 hex digits that name `inputs` (plain JSON data); the order of keys does not matter."""
    return digest(inputs)[:16]


def digest(data: object) -> str:
    """SHA-256 of plain JSON data in canonical form."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_READ_BYTES):
            found.update(block)
    return found.hexdigest()


def seal(folder: Path, file_mode: int, describe: Callable[[tuple[FileEntry, ...]], SealT]) -> SealT:
    """Make every file of `folder` durable, give it `file_mode`, and write the manifest that `describe` returns.

    Hidden files are the scratch of whoever wrote the folder; they are removed last, so that up to then it can go on.
    """
    paths = finish(folder, file_mode)
    entries = (
        FileEntry(name=path.relative_to(folder).as_posix(), bytes=path.stat().st_size, sha256=found)
        for path, found in zip(paths, _hashes(paths, sha256_of), strict=True)
    )
    sealed = describe(tuple(entries))
    data = sealed.model_dump(mode="json")
    text = json.dumps({**data, "sha256": digest(data)}, indent=1, ensure_ascii=False, allow_nan=False)
    for scratch in [*folder.rglob(".*")]:
        remove(scratch)
    for inner in {path.parent for path in paths}:
        sync_folder(inner)
    files.write_atomic(folder / MANIFEST_FILE, text + "\n")
    (folder / MANIFEST_FILE).chmod(file_mode)
    return sealed


def finish(folder: Path, file_mode: int) -> list[Path]:
    """Make every file of a folder durable and give it its final mode; return them, without hidden ones."""
    names = sorted(path.relative_to(folder) for path in _files(folder))
    paths = [folder / name for name in names if not any(part.startswith(".") for part in name.parts)]
    for path in paths:
        path.chmod(file_mode)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return paths


def remove(path: Path) -> None:
    """Remove a folder or a file, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_seal(folder: Path, model: type[SealT]) -> SealT:
    """Read the manifest of a sealed folder.

    Raises UsageError where there is none, UnreadableInput where it is damaged or written by a later release.
    """
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise UsageError(f"{folder}: holds no engine: it has no {MANIFEST_FILE}")
    try:
        data = files.read_json(path)
        if not isinstance(data, dict):
            raise UnreadableInput(f"{path}: damaged: not a manifest")
        version = data.get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise UnreadableInput(
                f"{path}: written by a later release (schema {version}; this one reads {SCHEMA_VERSION})"
            )
        if data.pop("sha256", None) != digest(data):
            raise UnreadableInput(f"{path}: damaged: its checksum does not fit")
        return parse(model, data, str(path))
    except UsageError as error:
        raise UnreadableInput(f"damaged: {error}") from error


def damage(folder: Path, sealed: Seal, *, contents: bool = True) -> tuple[str, ...]:
    """Return what is wrong with the files of a sealed folder, one line each; nothing where all is as it was written.

    Without `contents` only names and sizes are compared, which takes no time; else every byte is read.
    """
    wrong = []
    listed = {entry.name: entry for entry in sealed.files}
    for path in sorted(_files(folder)):
        name = path.relative_to(folder).as_posix()
        if name not in listed and name != MANIFEST_FILE and not path.name.startswith(_NFS_LEFTOVER):
            wrong.append(f"{name}: is not in the manifest")
    sound = []
    for entry in sealed.files:
        problem = _problem(folder / entry.name, entry)
        if problem:
            wrong.append(f"{entry.name}: {problem}")
        else:
            sound.append(entry)
    if contents:
        found = _hashes([folder / entry.name for entry in sound], _hash_or_nothing)
        wrong += [
            f"{entry.name}: content changed" for entry, new in zip(sound, found, strict=True) if new != entry.sha256
        ]
    return tuple(wrong)


def _problem(path: Path, entry: FileEntry) -> str:
    try:
        status = path.lstat()
    except OSError:
        return "is missing"
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file"
    return "" if status.st_size == entry.bytes else f"has {status.st_size} bytes instead of {entry.bytes}"


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path


def _hashes(paths: list[Path], hash_one: Callable[[Path], str]) -> list[str]:
    """SHA-256 of each file; hashing lets go of the interpreter, so that several run at once."""
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(hash_one, paths))


def _hash_or_nothing(path: Path) -> str:
    with contextlib.suppress(OSError):  # what cannot be read does not have the content it should have
        return sha256_of(path)
    return ""
