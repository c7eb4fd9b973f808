"""The run folder: `journal.jsonl` is the truth, Parquet its faster copy.

    study.yaml          the suite and its studies, resolved
    environment.json    versions, host, options, when
    journal.jsonl       one line per attempt: the record and its ops
    records.parquet     the journal's records and ops as tables, written when a run ends or is interrupted
    ops.parquet
    samples.parquet     raw samples of measured rows
    logs/               what the measured processes printed

An attempt is written once and never changed. Where a case was tried again, its last attempt counts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import files
from harness.errors import HarnessError, UnreadableInput, UsageError
from harness.results.record import SCHEMA_VERSION, OpRow, Record, SampleRow, arrow_schema
from harness.results.rows import from_json_row, to_json_row
from harness.spec.base import parse
from harness.spec.study import Study, Suite

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

STUDY_FILE = "study.yaml"
ENVIRONMENT_FILE = "environment.json"
JOURNAL_FILE = "journal.jsonl"
RECORDS_FILE = "records.parquet"
OPS_FILE = "ops.parquet"
SAMPLES_FILE = "samples.parquet"
LOGS_FOLDER = "logs"

#: Everything that makes a run; a folder may hold other files beside them.
RUN_FILES = (STUDY_FILE, ENVIRONMENT_FILE, JOURNAL_FILE, RECORDS_FILE, OPS_FILE, SAMPLES_FILE)

#: The tables of a run and what a row of each is.
_TABLES: dict[str, type[Record | OpRow | SampleRow]] = {RECORDS_FILE: Record, OPS_FILE: OpRow, SAMPLES_FILE: SampleRow}

#: Parquet metadata: how long the journal was when the tables were made from it, and what of it could not be read.
JOURNAL_BYTES = b"journal_bytes"
JOURNAL_DAMAGE = b"journal_damage"

#: Damaged lines that are named; the rest is counted.
_NAMED = 20

#: Run, number in the plan, the replicate where there are some, and the try where it is not the first.
_ATTEMPT_ID = re.compile(r"(?P<slot>[^.]+\.[0-9]{1,9}(\.r[0-9]{1,4})?)(\.[0-9]{1,9})?")


class LaterRelease(UnreadableInput):
    """A run, or a part of one, that a later release wrote; this one does not know what its columns mean."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one journal line holds."""

    record: Record
    ops: tuple[OpRow, ...] = ()
    samples: SampleRow | None = None

    def to_line(self) -> str:
        """The journal line; NaN and infinity are no JSON and raise ValueError."""
        data: dict[str, Any] = {"record": to_json_row(self.record), "ops": [to_json_row(op) for op in self.ops]}
        if self.samples:
            data["samples"] = to_json_row(self.samples)
        return json.dumps(data, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_line(cls, line: str | None, where: str) -> Attempt:
        """Read a journal line back (None: not UTF-8); raise LaterRelease, or UnreadableInput, naming `where`."""
        if line is None:
            raise UnreadableInput(f"{where}: not UTF-8 text")
        try:
            data = json.loads(line)
            if "\\ud" in line:
                json.dumps(data, ensure_ascii=False).encode()  # half of a surrogate pair is no text
            version = data["record"]["schema_version"]
            if version > SCHEMA_VERSION:
                raise LaterRelease(
                    f"{where}: written by a later release (schema {version}, this one reads up to {SCHEMA_VERSION})"
                )
            record = from_json_row(Record, data["record"])
            ops = tuple(from_json_row(OpRow, op) for op in data["ops"])
            samples = from_json_row(SampleRow, data["samples"]) if "samples" in data else None
            _check_ids(record, (*ops, *([samples] if samples else [])))
            return cls(record, ops, samples)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableInput(f"{where}: not a record: {str(error)[:200]}") from None


def _check_ids(record: Record, children: Iterable[OpRow | SampleRow]) -> None:
    if not _ATTEMPT_ID.fullmatch(record.attempt_id):
        raise ValueError(f"attempt_id is {record.attempt_id[:40]!r}, and not run, dot and number")
    if any(child.attempt_id != record.attempt_id for child in children):
        raise ValueError(f"attempt_id is {record.attempt_id!r}, and another in its ops or samples")


def slot_of(attempt_id: str) -> str:
    """The place in the run that an attempt fills, one for each replicate; a second try has the same slot."""
    found = _ATTEMPT_ID.fullmatch(attempt_id)
    assert found, attempt_id
    return found["slot"]


def is_replicate(attempt_id: str) -> bool:
    """Whether an attempt is one of several processes that measure the same case."""
    return ".r" in slot_of(attempt_id)


@dataclass(frozen=True)
class Run:
    """A run read back: what was asked and one row per slot."""

    path: Path
    suite: Suite
    studies: tuple[Study, ...]
    records: pd.DataFrame
    ops: pd.DataFrame
    environment: dict[str, Any] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    """What could not be read, in words."""
    samples: pd.DataFrame | None = None
    """Raw samples of measured rows, by attempt."""


class RunFolder:
    """A run being written. Attempts are durable when `append` returns; get it from `open_run`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal = files.JournalFile(path / JOURNAL_FILE)

    def append(self, attempts: Iterable[Attempt]) -> None:
        """Journal attempts durably, in one go."""
        self._journal.append(*(attempt.to_line() for attempt in attempts))

    def write_environment(self, environment: dict[str, Any]) -> None:
        """Write or replace `environment.json`."""
        files.write_atomic(self.path / ENVIRONMENT_FILE, json.dumps(environment, indent=2, sort_keys=True) + "\n")

    def close(self) -> None:
        """Close the journal and write the Parquet tables from it."""
        self._journal.close()
        write_tables(self.path)


@contextmanager
def open_run(path: Path, suite: Suite, studies: Sequence[Study]) -> Iterator[RunFolder]:
    """Open a run folder for writing, with `study.yaml` in it; the tables are written on every way out.

    Hold `files.folder_lock(path)` meanwhile, from before the journal is read. Raises as `refuse_foreign` does.
    """
    asked = {"suite": suite.to_yaml_data(), "studies": [study.to_yaml_data() for study in studies]}
    refuse_foreign(path)
    files.write_atomic(path / STUDY_FILE, files.dump_yaml(asked))
    folder = RunFolder(path)
    try:
        yield folder
    finally:
        folder.close()


def is_run(path: Path) -> bool:
    """Whether a folder holds a run: a journal, or what `study.yaml` becomes before there is one."""
    return (path / JOURNAL_FILE).is_file() or _is_of_run(path / STUDY_FILE)


def _is_of_run(study: Path, unreadable: bool = False) -> bool:
    """Whether a `study.yaml` is that of a run and not a study that somebody wrote."""
    try:
        data = files.read_yaml(study)
    except HarnessError:
        return unreadable
    return isinstance(data, dict) and {"suite", "studies"} <= data.keys()


def refuse_foreign(path: Path) -> None:
    """Raise UsageError where writing a run into a folder would overwrite files that are of no run."""
    found = [name for name in RUN_FILES if (path / name).exists()]
    if (path / JOURNAL_FILE).is_file():
        found = [name for name in found if name == STUDY_FILE and not _is_of_run(path / name, unreadable=True)]
    elif _is_of_run(path / STUDY_FILE):
        found = []
    if found:
        raise UsageError(f"{path} has a {found[0]} that is of no run and would be overwritten; take another --out")


def read_attempts(path: Path) -> tuple[list[Attempt], list[str]]:
    """Return every attempt in a run's journal, oldest first, and what of it could not be read.

    Raises UnreadableInput where there is no journal, LaterRelease where a line of it is of a later release.
    """
    journal = path / JOURNAL_FILE
    lines, dropped_bytes = files.read_journal(journal)
    attempts, damage = [], []
    for number, line in enumerate(lines, 1):
        try:
            attempts.append(Attempt.from_line(line, f"{journal}:{number}"))
        except LaterRelease:
            raise
        except UnreadableInput as error:
            damage.append(str(error))
    if len(damage) > _NAMED:
        damage[_NAMED:] = [f"{journal}: {len(damage) - _NAMED:,} more lines cannot be read"]
    if dropped_bytes:
        damage.append(f"{journal}: the last line is incomplete ({dropped_bytes} bytes ignored); its case is not done")
    return attempts, damage


def latest_attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The last attempt of every slot, in the order of the slots."""
    latest = {slot_of(attempt.record.attempt_id): attempt for attempt in attempts}
    return [latest[slot] for slot in sorted(latest)]


def write_tables(path: Path) -> None:
    """Write `records.parquet`, `ops.parquet` and `samples.parquet` from the journal."""
    import pyarrow.parquet as pq

    size = (path / JOURNAL_FILE).stat().st_size
    attempts, damage = read_attempts(path)
    tables = _tables(latest_attempts(attempts))
    told = json.dumps([text.removeprefix(f"{path}{os.sep}") for text in damage])
    for name, table in zip(_TABLES, tables, strict=True):
        metadata = {**(table.schema.metadata or {}), JOURNAL_BYTES: str(size).encode(), JOURNAL_DAMAGE: told.encode()}
        with files.atomic_writer(path / name) as file:
            pq.write_table(table.replace_schema_metadata(metadata), file)


def _tables(attempts: list[Attempt]) -> list[pa.Table]:
    """The tables of `_TABLES`, in that order."""
    import pyarrow as pa

    rows: dict[type[Record | OpRow | SampleRow], list[Any]] = {
        Record: [one.record for one in attempts],
        OpRow: [op for one in attempts for op in one.ops],
        SampleRow: [one.samples for one in attempts if one.samples],
    }
    return [
        pa.Table.from_pylist([to_json_row(row) for row in rows[kind]], arrow_schema(kind)) for kind in _TABLES.values()
    ]


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run folder. Raises UsageError where there is none, UnreadableInput where it cannot be read at all."""
    folder = Path(path)
    if not is_run(folder):
        raise UsageError(f"{folder}: holds no run; a run folder has {JOURNAL_FILE} (see `trtllm-harness run --help`)")
    suite, studies = _read_study(folder / STUDY_FILE)
    tables, damage = _read_tables(folder)
    records, ops, samples = (table.to_pandas() for table in tables)
    return Run(folder, suite, studies, records, ops, read_environment(folder), tuple(damage), samples)


def _read_study(path: Path) -> tuple[Suite, tuple[Study, ...]]:
    try:
        return _parsed_study(files.read_yaml(path), str(path))
    except UsageError as error:  # nobody typed this: the file is damaged
        raise UnreadableInput(str(error)) from None


def _parsed_study(data: Any, where: str) -> tuple[Suite, tuple[Study, ...]]:
    if not isinstance(data, dict) or not isinstance(data.get("studies"), list):
        raise UsageError(f"{where}: not the study of a run")
    suite = parse(Suite, data.get("suite"), f"{where}: suite")
    return suite, tuple(parse(Study, study, f"{where}: studies") for study in data["studies"])


def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The records of a run folder as a DataFrame."""
    return read_run(path).records


def _read_tables(folder: Path) -> tuple[list[pa.Table], list[str]]:
    """The Parquet tables where they are as long as the journal, else the journal itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    journal = folder / JOURNAL_FILE
    if not journal.is_file():
        raise UnreadableInput(f"{journal}: is missing; nothing was priced yet (go on with --resume), or it was lost")
    size = journal.stat().st_size
    try:
        tables = [pq.read_table(folder / name, memory_map=False) for name in _TABLES]
        current = all(int((table.schema.metadata or {}).get(JOURNAL_BYTES, b"-1")) == size for table in tables)
        known = all(
            table.schema.equals(arrow_schema(kind)) for table, kind in zip(tables, _TABLES.values(), strict=True)
        )
        if current and known:
            told = json.loads(tables[0].schema.metadata[JOURNAL_DAMAGE])
            return tables, [f"{folder}{os.sep}{text}" for text in told]
    except (OSError, ValueError, LookupError, pa.ArrowException):
        pass  # absent or damaged: the journal is the truth
    attempts, damage = read_attempts(folder)
    return _tables(latest_attempts(attempts)), damage


def read_environment(folder: Path) -> dict[str, Any]:
    """The environment of a run; empty where it is missing or damaged."""
    try:
        data = json.loads((folder / ENVIRONMENT_FILE).read_text(encoding="utf-8"))
        json.dumps(data, allow_nan=False, ensure_ascii=False).encode()  # infinity and half characters are no JSON
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
