"""Turn a report of Nsight Systems (.nsys-rep) into its SQLite export, by `nsys export` where nsys is on PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from harness.errors import EnvironmentUnfit, UnreadableInput

#: Suffixes of reports; those before 2021.4 were called .qdrep.
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")

_TAIL_LINES = 5


def export_sqlite(report: Path, folder: Path, timeout_s: float = 1800) -> Path:
    """Write the export of a report into `folder` and return its path.

    Raises EnvironmentUnfit where nsys is not on PATH, UnreadableInput where it refuses the report or takes too long.
    """
    nsys = shutil.which("nsys")
    target = folder / f"{report.stem}.sqlite"
    if nsys is None:
        raise EnvironmentUnfit(
            f"{report}: nsys is not on PATH, and only it reads such a report; where it is: "
            f"nsys export --type sqlite -o {target.name} {report.name}, and import {target.name} here"
        )
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", str(target), str(report.resolve())]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreadableInput(f"{report}: nsys export took longer than {timeout_s:.0f} s") from None
    except OSError as error:
        raise EnvironmentUnfit(f"{report}: {nsys} cannot be run: {error.strerror or error}") from error
    if done.returncode != 0 or not target.is_file():
        said = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()][-_TAIL_LINES:]
        raise UnreadableInput(f"{report}: nsys export failed with exit code {done.returncode}: {' | '.join(said)}")
    return target
