"""Put a new run in the place of an old one, which stays as it was until the new one is whole."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import files
from harness.errors import Interrupted, UnreadableInput, UsageError
from harness.results.store import (
    JOURNAL_FILE,
    LOGS_FOLDER,
    OPS_FILE,
    RECORDS_FILE,
    RUN_FILES,
    Attempt,
    is_run,
    read_attempts,
    refuse_foreign,
)

#: Provenances that can be made again at no cost; only such a run may be replaced.
REPRODUCIBLE = {"composed", "modelled"}

_ASIDE = ".replacing"


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """Yield the folder to price into; when the block ends well, its run takes the place of the one in `out`.

    Only the files of a run are replaced, whatever else `out` holds; `out` is locked from before it is looked at. Raises
    UsageError where the old run holds rows that cannot be made again, or that cannot be read.
    """
    if out.is_dir():
        with files.folder_lock(out):
            if is_run(out):
                _check_replaceable(out)
                with _beside(out) as aside:
                    yield aside
                return
    yield out


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    aside = out / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    try:
        try:
            yield aside
        except (Interrupted, KeyboardInterrupt):
            raise Interrupted(f"interrupted; the run in {out} is as it was") from None
        _move(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _move(aside: Path, out: Path) -> None:
    try:
        if (aside / LOGS_FOLDER).is_dir():
            shutil.rmtree(out / LOGS_FOLDER, ignore_errors=True)
            (aside / LOGS_FOLDER).replace(out / LOGS_FOLDER)
        for name in RUN_FILES:
            if (aside / name).exists():
                (aside / name).replace(out / name)
    except KeyboardInterrupt:  # five renames: better to finish them than to mix two runs
        _move(aside, out)
        raise
    except OSError as error:
        raise files.write_error(out, error) from error


def _check_replaceable(out: Path) -> None:
    refuse_foreign(out)
    try:
        attempts, damage = _attempts(out)
    except UnreadableInput as error:
        attempts, damage = [], [str(error)]
    if damage:
        raise UsageError(f"{damage[0]}; --replace throws nothing away that it cannot read: take another --out")
    rows = Counter(attempt.record.provenance for attempt in attempts)
    kept = [f"{count} {provenance}" for provenance, count in rows.items() if provenance not in REPRODUCIBLE]
    if kept:
        raise UsageError(f"{out} holds {', '.join(kept)} rows, which --replace never throws away; take another --out")


def _attempts(out: Path) -> tuple[list[Attempt], list[str]]:
    """The rows of a run; none where it was interrupted before it had any."""
    tables = [name for name in (RECORDS_FILE, OPS_FILE) if (out / name).exists()]
    return read_attempts(out) if tables or (out / JOURNAL_FILE).exists() else ([], [])
