"""Make one entry of the committed gallery from a run: `make gallery`.

    python reports/gallery/make.py reports/demo reports/gallery/demo

Writes `demo.md` (the findings of report.md), `demo.csv` (a line per claim and GPU), `demo.png` (the first page of
index.html in headless Chromium) and `demo-decode.png` (its study of group size in decode).
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from harness.analysis.claims import Verdict, judge
from harness.errors import EnvironmentUnfit
from harness.report import write_report
from harness.results.store import Run, read_run

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=8000",
]


def screenshot(page: str, picture: Path, size: str) -> None:
    """Take a picture of a page as it opens, `size` in pixels."""
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        raise EnvironmentUnfit("the picture needs Chromium on PATH, for example Debian's package chromium")
    with tempfile.TemporaryDirectory() as profile:
        own = [f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={picture.resolve()}"]
        subprocess.run([browser, *FLAGS, *own, page], check=True, stderr=subprocess.DEVNULL)


def write_verdicts(run: Run, path: Path) -> None:
    """One line per claim and GPU, without the figures behind it."""
    columns = [field.name for field in fields(Verdict) if field.name not in {"figures", "attempt_ids"}]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for study in run.studies:
            for said in judge(study, run.records, run.ops):
                table.writerow([getattr(said, column) for column in columns])


def main(run_folder: Path, target: Path) -> None:
    """Write the files of one gallery entry."""
    run = read_run(run_folder)
    page = write_report([run], run_folder).resolve().as_uri()
    head, findings, *_ = (run_folder / "report.md").read_text().split("\n## ")
    target.with_suffix(".md").write_text(f"{head}\n## {findings}")
    write_verdicts(run, target.with_suffix(".csv"))
    screenshot(page, target.with_suffix(".png"), "1280,1500")
    screenshot(f"{page}#study-2", target.with_name(f"{target.name}-decode.png"), "1280,1400")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
