"""Make the committed gallery from a run: `make gallery`.

    python reports/gallery/make.py reports/demo reports/gallery/demo

Writes `demo.md` (the findings of report.md), `demo.csv` (what is judged, one line a claim and GPU) and `demo.png` (the first
page of index.html in headless Chromium).
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from harness.analysis.claims import judge
from harness.errors import EnvironmentUnfit
from harness.report import write_report
from harness.results.store import Run, read_run

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --window-size=1280,1500 --virtual-time-budget=8000"
).split()


def screenshot(page: Path, picture: Path) -> None:
    """Take the first screen of a page."""
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        raise EnvironmentUnfit("the picture needs Chromium on PATH, for example Debian's package chromium")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser, *FLAGS, f"--user-data-dir={profile}", f"--screenshot={picture.resolve()}", page.resolve().as_uri()],
            check=True,
            stderr=subprocess.DEVNULL,
        )


def write_verdicts(run: Run, path: Path) -> None:
    """One line per claim and GPU."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["study", "claim", "guideline", "system", "verdict", "statement", "threshold", "finding"])
        for study in run.studies:
            for said in judge(study, run.records, run.ops):
                table.writerow(
                    [said.study, said.claim_id, said.guideline, said.system, said.verdict, said.statement, said.threshold]
                    + [said.finding]
                )


def main(run_folder: Path, target: Path) -> None:
    """Write the three files of one gallery entry."""
    run = read_run(run_folder)
    page = write_report([run], run_folder)
    head, findings, *_ = (run_folder / "report.md").read_text().split("\n## ")
    target.with_suffix(".md").write_text(f"{head}\n## {findings}")
    write_verdicts(run, target.with_suffix(".csv"))
    screenshot(page, target.with_suffix(".png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
