"""The tables that documents take from data files of this backend.

`python -m harness.backends.trtllm.document docs/trtllm-evidence.md docs/gpu-node.md` puts the current ones into the
files; a test keeps them in step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from harness.backends.trtllm.evidence import evidence_table
from harness.backends.trtllm.failures import failure_facts
from harness.errors import UsageError
from harness.files import write_atomic


def failure_table() -> str:
    """Return a Markdown table of the failures that are recognised, one row a class and advice."""
    rows = ["| failure | status of the row | when | what helps |", "|---|---|---|---|"]
    seen = set()
    for fact in failure_facts():
        row = f"| {fact.name} | `{fact.status}` | {fact.stage} | {' '.join(fact.advice.split())} |"
        if row not in seen:
            rows.append(row)
        seen.add(row)
    return "\n".join(rows)


#: Name of a place in a document → what stands there.
TABLES: dict[str, Callable[[], str]] = {"evidence": evidence_table, "failures": failure_table}


def with_tables(text: str) -> str:
    """Return a document with the current tables in their places; raise UsageError where it has no place for any."""
    found = False
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, opened, rest = text.partition(begin)
        _, closed, tail = rest.partition(end)
        if opened and closed:
            found = True
            text = f"{head}{begin}\n{table()}\n{end}{tail}"
    if not found:
        raise UsageError(f"the document has no place for {' or '.join(TABLES)}: <!-- evidence: begin --> …")
    return text


if __name__ == "__main__":
    for file in sys.argv[1:]:
        write_atomic(file, with_tables(Path(file).read_text(encoding="utf-8")))
