"""The tables of verdicts in `docs/studies.md`, written from a run of the demo.

    python -m harness.report.verdict_table reports/demo docs/studies.md

Each table stands between `<!-- verdicts: STUDY -->` and `<!-- end -->`; what is between them is replaced. A test
compares the page with a run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness import files
from harness.analysis.claims import Verdict, judge
from harness.report.content import system_names
from harness.report.markdown import table_lines
from harness.report.tables import Column, Table, table
from harness.results.store import read_run

_BLOCK = re.compile(r"(?P<open><!-- verdicts: (?P<study>\S+) -->\n).*?(?P<close><!-- end -->)", re.DOTALL)


def verdict_table(verdicts: Sequence[Verdict], systems: Mapping[str, str]) -> Table:
    """A row for each claim, a column for each GPU: verdict, number, and why there is none."""
    gpus = list(dict.fromkeys(verdict.system for verdict in verdicts))
    rows: dict[str, dict[str, Verdict]] = {}
    for verdict in verdicts:
        rows.setdefault(verdict.claim_id, {})[verdict.system] = verdict
    columns = [Column("Claim"), *(Column(systems.get(gpu, gpu)) for gpu in gpus)]
    cells = [
        [next(iter(on.values())).statement, *(_cell(on[gpu]) if gpu in on else "" for gpu in gpus)]
        for on in rows.values()
    ]
    return table("Verdicts", columns, cells)


def _cell(verdict: Verdict) -> str:
    said = f"**{verdict.verdict}**" + (f" {verdict.key}" if verdict.key else "")
    return f"{said}, {verdict.reason}" if verdict.reason else said


def fill(text: str, verdicts_of: Callable[[str], Sequence[Verdict]]) -> str:
    """Return a page with the tables of all its blocks made anew; `verdicts_of` gives those of a study by name."""

    def block(match: re.Match[str]) -> str:
        verdicts = verdicts_of(match["study"])
        lines = table_lines(verdict_table(verdicts, system_names([verdict.system for verdict in verdicts])))
        return match["open"] + "\n".join(lines) + "\n" + match["close"]

    return _BLOCK.sub(block, text)


def main(run_folder: Path, page: Path) -> None:
    """Fill the tables of `page` from a run."""
    run = read_run(run_folder)
    found = {study.name: judge(study, run.records, run.ops, run.samples) for study in run.studies}
    files.write_atomic(page, fill(page.read_text(encoding="utf-8"), found.__getitem__))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
