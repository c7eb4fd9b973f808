"""A history of 2,000 series over 365 nights: time, memory, one more night, and the page in a browser.

python benchmarks/history_scale.py [--series 2000] [--nights 365] [--chromium PATH] [--json]

Makes run folders and a CSV table in a temporary folder from a fixed seed; each measurement is a process of its own, as
a user runs it. Exits 1 when a bar is missed. `benchmarks/README.md` says what the numbers are.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
BARS = {"whole_s": 60.0, "memory_gb": 1.5, "one_more_s": 10.0, "page_mb": 15.0}
START = datetime(2025, 3, 1, 2, 0, tzinfo=timezone.utc)

#: Runs the command line and prints its wall time and the largest memory that it held.
TIMED = """
import json, resource, sys, time
started = time.perf_counter()
from harness.cli.main import run
code = run(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
told = {"code": int(code), "s": time.perf_counter() - started, "kib": used.ru_maxrss}
told["cpu_s"] = used.ru_utime + used.ru_stime
print(json.dumps(told), file=sys.stderr)
"""


def values(series: int, nights: int) -> np.ndarray:
    """Step times in ms, nights x series: noise of 0.5 % between processes; some step, drift, fail or stop."""
    rng = np.random.default_rng(20261130)
    levels = rng.uniform(0.5, 50, series)
    made = levels * np.exp(rng.normal(0, 0.005, (nights, series)))
    kinds = rng.random(series)
    for at in np.flatnonzero(kinds < 0.05):  # a step of 3 to 8 %
        made[rng.integers(20, nights) :, at] *= rng.uniform(1.03, 1.08)
    for at in np.flatnonzero((kinds > 0.05) & (kinds < 0.07)):  # an improvement
        made[rng.integers(20, nights) :, at] *= 0.94
    for at in np.flatnonzero((kinds > 0.07) & (kinds < 0.09)):  # single nights that stand out
        made[rng.integers(0, nights, 5), at] *= 1.1
    made[rng.random(made.shape) < 0.02] = np.nan
    return made


def write_csv(path: Path, made: np.ndarray, drivers: list[str]) -> None:
    """One row for each series and night."""
    nights, series = made.shape
    with path.open("w", encoding="utf-8") as file:
        file.write("run_started,commit,variant,batch,host,driver,status,step_ms\n")
        for night in range(nights):
            day = (START + timedelta(days=night)).isoformat()
            rows = (
                f"{day},c{night:04d},variant-{at % 200:03d},{2 ** (at // 200)},node-{at % 4},{drivers[night]},"
                + ("failed,\n" if np.isnan(made[night, at]) else f"ok,{made[night, at]:.5g}\n")
                for at in range(series)
            )
            file.writelines(rows)


def write_runs(root: Path, made: np.ndarray, first: int, last: int) -> None:
    """One run folder for each night, as a run on a device leaves it."""
    sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY)]
    from history_runs import write_run

    for night in range(first, last):
        started = START + timedelta(days=night)
        driver = "570.10" if night < made.shape[0] // 2 else "580.20"
        write_run(root / started.strftime("%Y-%m-%d"), started, made[night], driver=driver)


def timed(*arguments: object) -> dict[str, float]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-c", TIMED, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY, check=False)
    lines = done.stderr.strip().splitlines()
    if done.returncode or not lines:
        raise SystemExit(done.stderr)
    told: dict[str, float] = json.loads(lines[-1])
    if told["code"] not in {0, 1, 3}:
        raise SystemExit(done.stderr)
    return told


def in_browser(page: Path, chromium: str) -> dict[str, float]:
    """Open the page, pick a series, scroll to the end, search; times in s and what Chromium complains about."""
    sys.path.insert(0, str(REPOSITORY / "tests"))
    from browser import Browser

    with Browser(chromium, timeout_s=120) as browser:
        started = time.perf_counter()
        browser.show(page, 1400, 1000, "light")
        browser.wait("document.querySelectorAll('.row').length > 0")
        opened = time.perf_counter() - started
        interactions = {
            "pick_s": "document.querySelector('.row').click(),"
            " document.querySelectorAll('#detail tbody tr').length > 0",
            "scroll_s": "document.getElementById('rows').scrollTop = 1e9, document.querySelectorAll('.row').length > 0",
            "search_s": "(() => { const find = document.getElementById('find'); find.value = 'variant-007';"
            " find.dispatchEvent(new Event('input')); return document.querySelectorAll('.row').length > 0 })()",
        }
        found = {"open_s": opened}
        for name, script in interactions.items():
            started = time.perf_counter()
            if not browser.eval(script):
                raise SystemExit(f"{name}: the page does not react")
            found[name] = time.perf_counter() - started
        if browser.complaints:
            raise SystemExit(f"Chromium complains: {browser.complaints}")
        heap = browser.eval("performance.memory ? performance.memory.usedJSHeapSize / 1e6 : 0")
        return {**found, "heap_mb": float(heap)}


def measure(series: int, nights: int, chromium: str | None) -> dict[str, dict[str, float]]:
    """Everything that is printed."""
    made = values(series, nights)
    drivers = ["570.10" if night < nights // 2 else "580.20" for night in range(nights)]
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="history-scale-") as name:
        folder = Path(name)
        write_csv(folder / "history.csv", made, drivers)
        found["one CSV table"] = _row(timed("history", folder / "history.csv", "--out", folder / "csv"), folder / "csv")
        root = folder / "runs"
        write_runs(root, made, 0, nights - 1)
        found["run folders, first time"] = _row(timed("history", root, "--out", folder / "out"), folder / "out")
        write_runs(root, made, nights - 1, nights)
        found["run folders, one more night"] = _row(timed("history", root, "--out", folder / "out"), folder / "out")
        found["run folders, without page"] = _row(timed("history", root), None)
        found["size"] = {"input_mb": sum(one.stat().st_size for one in root.rglob("*") if one.is_file()) / 1e6}
        if chromium:
            found["Chromium"] = in_browser(folder / "out" / "history.html", chromium)
    return found


def _row(told: dict[str, float], out: Path | None) -> dict[str, float]:
    page = (out / "history.html").stat().st_size / 1e6 if out else float("nan")
    return {"s": told["s"], "cpu_s": told["cpu_s"], "memory_gb": told["kib"] * 1024 / 1e9, "page_mb": page}


def missed(found: dict[str, dict[str, float]]) -> list[str]:
    """Bars that are not held."""
    wrong = []
    for name, row in found.items():
        limit_s = BARS["one_more_s"] if name == "run folders, one more night" else BARS["whole_s"]
        wrong += [f"{name}: {row['s']:.1f} s, at most {limit_s:g}"] if row.get("s", 0) > limit_s else []
        for what in ("memory_gb", "page_mb"):
            value = row.get(what, 0)
            wrong += [f"{name}: {what} {value:.2f}, at most {BARS[what]:g}"] if value > BARS[what] else []
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=2000)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.series, options.nights, options.chromium)
    wrong = missed(found)
    if options.json:
        print(json.dumps({"measured": found, "missed": wrong}, indent=2))
    else:
        print(f"{options.series:,} series x {options.nights} nights, {os.cpu_count()} processors\n")
        for name, row in found.items():
            print(
                f"{name:30}" + "".join(f"  {what} {value:.2f}" for what, value in row.items() if not math.isnan(value))
            )
        print("\n" + "\n".join(wrong or ["all bars held"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
