"""The run folder: `journal.jsonl` is the truth, Parquet its faster copy.

    study.yaml          the suite and its studies, resolved
    environment.json    versions, host, options, when
    journal.jsonl       one line per attempt: the record and its ops
    records.parquet     the journal's records and ops as tables, written when a run ends or is interrupted
    ops.parquet

An attempt is written once and never changed. Where a case was tried again, its last attempt counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import files
from harness.errors import UnreadableInput, UsageError
from harness.results.record import SCHEMA_VERSION, OpRow, Record, arrow_schema, to_json_row
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

#: Parquet metadata: how long the journal was when the tables were made from it.
_JOURNAL_BYTES = b"journal_bytes"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one journal line holds."""

    record: Record
    ops: tuple[OpRow, ...] = ()

    def to_line(self) -> str:
        """The journal line; NaN and infinity are no JSON and raise ValueError."""
        data = {"record": to_json_row(self.record), "ops": [to_json_row(op) for op in self.ops]}
        return json.dumps(data, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_line(cls, line: str, where: str) -> Attempt:
        """Read a journal line back; raise UnreadableInput naming `where`."""
        try:
            data = json.loads(line)
            version = data["record"]["schema_version"]
            if version > SCHEMA_VERSION:
                raise UnreadableInput(
                    f"{where}: written by a later release (schema {version}, this one reads up to {SCHEMA_VERSION})"
                )
            return cls(Record(**data["record"]), tuple(OpRow(**op) for op in data["ops"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableInput(f"{where}: not a record: {error}") from None


def slot_of(attempt_id: str) -> str:
    """The place in the run that an attempt fills; a second try has the same slot."""
    run_id, number, *_ = attempt_id.split(".")
    return f"{run_id}.{number}"


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


class RunFolder:
    """A run being written. Attempts are durable when `append` returns; hold it with `open_run`."""

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
    """Hold a run folder for writing: locked, with `study.yaml` in it; the tables are written on every way out."""
    with files.folder_lock(path):
        files.write_atomic(
            path / STUDY_FILE,
            files.dump_yaml(
                {"suite": suite.to_yaml_data(), "studies": [study.to_yaml_data() for study in studies]},
            ),
        )
        folder = RunFolder(path)
        try:
            yield folder
        finally:
            folder.close()


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / JOURNAL_FILE).is_file() or (path / STUDY_FILE).is_file()


def read_attempts(path: Path) -> tuple[list[Attempt], list[str]]:
    """Return every attempt in a run's journal, oldest first, and what of it could not be read."""
    journal = path / JOURNAL_FILE
    lines, dropped_bytes = files.read_journal(journal)
    attempts, damage = [], []
    for number, line in enumerate(lines, 1):
        try:
            attempts.append(Attempt.from_line(line, f"{journal}:{number}"))
        except UnreadableInput as error:
            damage.append(str(error))
    if dropped_bytes:
        damage.append(f"{journal}: the last line is incomplete ({dropped_bytes} bytes ignored); its case is not done")
    return attempts, damage


def latest_attempts(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The last attempt of every slot, in the order of the slots."""
    latest = {slot_of(attempt.record.attempt_id): attempt for attempt in attempts}
    return [latest[slot] for slot in sorted(latest)]


def write_tables(path: Path) -> None:
    """Write `records.parquet` and `ops.parquet` from the journal."""
    import pyarrow.parquet as pq

    size = (path / JOURNAL_FILE).stat().st_size
    records, ops = _tables(latest_attempts(read_attempts(path)[0]))
    for name, table in ((RECORDS_FILE, records), (OPS_FILE, ops)):
        metadata = {**(table.schema.metadata or {}), _JOURNAL_BYTES: str(size).encode()}
        with files.atomic_writer(path / name) as file:
            pq.write_table(table.replace_schema_metadata(metadata), file)


def _tables(attempts: list[Attempt]) -> tuple[pa.Table, pa.Table]:
    import pyarrow as pa

    records = pa.Table.from_pylist([to_json_row(one.record) for one in attempts], schema=arrow_schema(Record))
    ops = pa.Table.from_pylist([to_json_row(op) for one in attempts for op in one.ops], schema=arrow_schema(OpRow))
    return records, ops


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a run folder. Raises UsageError where there is none, UnreadableInput where it cannot be read at all."""
    folder = Path(path)
    if not is_run(folder):
        raise UsageError(f"{folder}: holds no run; a run folder has {JOURNAL_FILE} (see `trtllm-harness run --help`)")
    data = files.read_yaml(folder / STUDY_FILE)
    if not isinstance(data, dict) or "suite" not in data:
        raise UnreadableInput(f"{folder / STUDY_FILE}: not the study of a run")
    where = str(folder / STUDY_FILE)
    suite = parse(Suite, data["suite"], where)
    studies = tuple(parse(Study, study, where) for study in data.get("studies", []))
    (records, ops), damage = _read_tables(folder)
    return Run(folder, suite, studies, records.to_pandas(), ops.to_pandas(), _read_environment(folder), tuple(damage))


def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The records of a run folder as a DataFrame."""
    return read_run(path).records


def _read_tables(folder: Path) -> tuple[tuple[pa.Table, pa.Table], list[str]]:
    """The Parquet tables where they are as long as the journal, else the journal itself."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = (folder / JOURNAL_FILE).stat().st_size
    try:
        tables = [pq.read_table(folder / name, memory_map=False) for name in (RECORDS_FILE, OPS_FILE)]
        current = all(int((table.schema.metadata or {}).get(_JOURNAL_BYTES, b"-1")) == size for table in tables)
        if current and tables[0].schema.equals(arrow_schema(Record)) and tables[1].schema.equals(arrow_schema(OpRow)):
            return (tables[0], tables[1]), []
    except (OSError, pa.ArrowException):
        pass  # absent or damaged: the journal is the truth
    attempts, damage = read_attempts(folder)
    return _tables(latest_attempts(attempts)), damage


def _read_environment(folder: Path) -> dict[str, Any]:
    try:
        data = json.loads((folder / ENVIRONMENT_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
