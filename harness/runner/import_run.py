"""Take reports of other tools into a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import files
from harness.errors import UnreadableInput, UsageError
from harness.results.imports import ImportRow, attempt_of, read_report
from harness.results.imports.csv_files import REQUESTS_FILE, TABLE_FILE, requests_csv, table_csv
from harness.results.imports.records import NO_MODEL, STUDY
from harness.results.store import is_run
from harness.runner.plan import Plan
from harness.runner.run_parts import claimed, journalling, now_text
from harness.spec.study import Study, Suite

_TITLE = "Reports of other tools"


def run_import(paths: Sequence[Path], out: Path) -> list[ImportRow]:
    """Read every file and write those that can be read as a run; return the row of each file, in their order.

    Beside the run lie `imports.csv`, the table of all files, and `requests.csv` where a file tells of requests. Raises
    UsageError where a file is named twice or `out` holds a run, UnreadableInput where no file can be read.
    """
    resolved = [path.resolve() for path in paths]
    twice = [str(path) for path, one in zip(paths, resolved, strict=True) if resolved.count(one) > 1]
    if twice:
        raise UsageError(f"{' and '.join(twice)} are the same file; name each file once")
    if is_run(out):
        raise UsageError(f"{out} already holds a run; take another --out")
    rows = [read_report(path) for path in paths]
    readable = [row for row in rows if row.status != "unreadable"]
    if not readable:
        raise UnreadableInput("\n".join(f"{row.file}: {'; '.join(row.notes)}" for row in rows))
    _write(rows, readable, out)
    return rows


def _write(rows: list[ImportRow], readable: list[ImportRow], out: Path) -> None:
    with claimed(out, resume=True, anew="") as claim:
        if is_run(out):  # since it was looked at
            raise UsageError(f"{out} already holds a run; take another --out")
        with journalling(claim, _plan(rows), {"imported": [row.file for row in rows]}, "imported") as folder:
            now = now_text()
            folder.append(attempt_of(row, f"{claim.run_id}.{number:06d}", now) for number, row in enumerate(readable))
            files.write_atomic(out / TABLE_FILE, table_csv(rows))
            if any(row.requests for row in rows):
                files.write_atomic(out / REQUESTS_FILE, requests_csv(rows))


def _plan(rows: Sequence[ImportRow]) -> Plan:
    """A plan without steps: nothing here ran."""
    models = list(dict.fromkeys(str(row.values["model"]) for row in rows if "model" in row.values))
    study = Study(
        name=STUDY,
        title=_TITLE,
        about="Imported: " + ", ".join(row.file for row in rows if row.status != "unreadable") + ".",
        level="serve",
        variant=", ".join(models) or NO_MODEL,
    )
    suite = Suite(name=STUDY, title=_TITLE, about=study.about, studies=(STUDY,))
    return Plan(suite, (study,), ())
