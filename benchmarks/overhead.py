"""What the harness adds to every iteration that it times: the worker's loop around arms that do nothing.

python benchmarks/overhead.py [RUN]

RUN is the folder of a measured run, such as one of suites/cpu-smoke.yaml; without it that suite is measured first where
PyTorch is installed. Exits 1 where the cost is more than 1 % of the shortest step in it.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from random import Random

from harness.backends.base import ArmFacts, OpTime, Taken
from harness.errors import HarnessError
from harness.results.store import read_attempts
from harness.runner.policy import SamplingPolicy
from harness.runner.sampling import sample_rounds
from harness.runner.worker import Voice, WatchedArm

ARMS = 4
REPEATS = 5
LIMIT_PCT = 1.0
SUITE = "model_configs/suites/cpu-smoke.yaml"
#: Out of reach of these times, so that every look of the stop rule is taken, to the last sample.
POLICY = SamplingPolicy(target_pct=1e-9, budget_s=3600.0)


class IdleArm:
    """Runs nothing, and notes when."""

    facts = ArmFacts(layers_run=1)

    def __init__(self, seed: int, starts_ns: list[int]) -> None:
        draw = Random(seed)
        self._taken = [Taken((draw.lognormvariate(0.0, 0.05),)) for _ in range(1000)]
        self._next = 0
        self._starts_ns = starts_ns

    def take(self, count: int) -> Taken:
        assert count == 1
        self._starts_ns.append(time.perf_counter_ns())
        self._next += 1
        return self._taken[self._next - 1]

    def op_times(self) -> list[OpTime]:
        return []

    def close(self) -> None:
        pass


def one_run(seed: int) -> list[float]:
    """From the start of each iteration to that of the next, in µs; the iterations themselves take no time."""
    starts_ns: list[int] = []
    with Path(os.devnull).open("wb") as nowhere:
        voice = Voice(nowhere.fileno())
        arms = {number: WatchedArm(number, IdleArm(seed + number, starts_ns), voice) for number in range(ARMS)}
        for _ in sample_rounds(arms, dict.fromkeys(arms, "decode"), POLICY, Random(seed), tell=voice.progress):
            pass
    return [(after - before) / 1000 for before, after in pairwise(starts_ns)]


def shortest_step_ms(run: Path) -> tuple[float, str]:
    """Least median of the iterations of one process, as they were timed, and which it was."""
    attempts, _ = read_attempts(run)
    medians = [
        (statistics.median(attempt.samples.times_ms), f"{attempt.record.variant}, {attempt.record.coordinates}")
        for attempt in attempts
        if attempt.samples and attempt.samples.times_ms
    ]
    if not medians:
        sys.exit(f"{run}: no measured rows")
    return min(medians)


def measured_now(folder: Path) -> Path | None:
    """Measure the suite, where that can be done."""
    if not Path(SUITE).is_file() or importlib.util.find_spec("torch") is None:
        return None
    code = "from harness.cli.main import entry_point; entry_point()"
    subprocess.run([sys.executable, "-c", code, "run", SUITE, "--on", "torch", "--out", str(folder)], check=True)
    return folder


def main() -> None:
    """Print the cost, and its share of the shortest step."""
    one_run(0)  # imports what the stop rule needs
    gaps = [gap for seed in range(1, REPEATS + 1) for gap in one_run(seed)]
    mean_us = statistics.fmean(gaps)
    print(f"{ARMS} arms, {REPEATS} times {len(gaps) // REPEATS + 1} iterations that do nothing")
    print(f"an iteration costs {statistics.median(gaps):8.2f} µs (median)")
    print(f"                   {mean_us:8.2f} µs (mean: warm-up, order of rounds and stop rule included)")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(sys.argv[1]) if len(sys.argv) > 1 else measured_now(Path(folder) / "run")
        if run is None:
            print(f"no run given, and {SUITE} cannot be measured here: no share")
            return
        try:
            step_ms, which = shortest_step_ms(run)
        except HarnessError as error:
            sys.exit(str(error))
    share_pct = mean_us / 1000 / step_ms * 100
    print(f"shortest step      {step_ms * 1000:8.0f} µs ({which})")
    print(f"share of it        {share_pct:8.3f} %  (at most {LIMIT_PCT:g} % wanted)")
    sys.exit(share_pct > LIMIT_PCT)


if __name__ == "__main__":
    main()
