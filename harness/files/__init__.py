"""Files: atomic writes, journals, locks and YAML, each the one way of doing it.

What is read back is whole or absent. A file is written under another name, synced and renamed; a journal is appended
line by line and counts up to its last complete line; a folder is written by one process at a time. Every failure of the
operating system becomes an error of `harness.errors` that names the path and says what to do.
"""

from __future__ import annotations

from harness.files.atomic import atomic_writer, write_atomic, write_error
from harness.files.documents import dump_yaml, parse_yaml, read_json, read_yaml
from harness.files.journal import JournalFile, JournalLines, read_journal
from harness.files.locks import folder_lock
from harness.files.paths import checked_path

__all__ = [
    "JournalFile",
    "JournalLines",
    "atomic_writer",
    "checked_path",
    "dump_yaml",
    "folder_lock",
    "parse_yaml",
    "read_journal",
    "read_json",
    "read_yaml",
    "write_atomic",
    "write_error",
]
