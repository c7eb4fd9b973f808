"""The table of rules in `docs/lint.md`, made from the rules themselves.

`python -m harness.lint.document docs/lint.md` puts the current table into the file; a test keeps the two in step.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.errors import UsageError
from harness.files import write_atomic
from harness.lint.facts import rulebook

BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"


def rule_table() -> str:
    """Return a Markdown table of every rule, in the order in which rules are checked."""
    rows = ["| rule | severity | what must hold | evidence, date |", "|---|---|---|---|"]
    for rule_id, info in rulebook().rules.items():
        severity = f"{info.severity}, {info.strict} with `--strict`" if info.strict else info.severity
        rows.append(f"| `{rule_id}` | {severity} | {_cell(info.says)} | {_cell(info.evidence)}, {info.read} |")
    return "\n".join(rows)


def with_table(text: str) -> str:
    """Return a document with the current table between its markers; raise UsageError where it has none."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the document has no place for the rules: {BEGIN} … {END}")
    return f"{head}{BEGIN}\n{rule_table()}\n{END}{tail}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write_atomic(name, with_table(Path(name).read_text(encoding="utf-8")))
