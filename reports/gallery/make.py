"""Make one entry of the committed gallery from a run: `make gallery`.

    python reports/gallery/make.py reports/demo reports/gallery/demo

Writes `demo.md` (the findings of report.md), `demo.csv` (a line per claim and GPU), `demo.png` (the first page of
index.html in headless Chromium) and `demo-decode.png` (its study of group size in decode).
"""

from __future__ import annotations

import csv
import shutil
import sys
from dataclasses import fields
from pathlib import Path

from harness.analysis.claims import Verdict, judge
from harness.report import write_report
from harness.results.store import Run, read_run

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from browser import Browser

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def pictures(page: Path, target: Path) -> None:
    """Photograph the first page of a report and its study of group size in decode."""
    with Browser(next(filter(None, map(shutil.which, CHROMIUM)))) as browser:
        browser.show(page, 1280, 1100, "light")
        browser.wait("document.documentElement.dataset.plots === 'drawn'")
        browser.screenshot(target.with_suffix(".png"))
        browser.eval("document.getElementById('study-2').scrollIntoView({behavior: 'instant'})")
        browser.screenshot(target.with_name(f"{target.name}-decode.png"))


def write_verdicts(run: Run, path: Path) -> None:
    """One line per claim and GPU, without the figures behind it."""
    columns = [field.name for field in fields(Verdict) if field.name not in {"figures", "attempt_ids", "caveats"}]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for study in run.studies:
            for said in judge(study, run.records, run.ops):
                table.writerow([getattr(said, column) for column in columns])


def main(run_folder: Path, target: Path) -> None:
    """Write the files of one gallery entry."""
    run = read_run(run_folder)
    page = write_report([run], run_folder)
    head, findings, *_ = (run_folder / "report.md").read_text().split("\n## ")
    target.with_suffix(".md").write_text(f"{head}\n## {findings}")
    write_verdicts(run, target.with_suffix(".csv"))
    pictures(page, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
