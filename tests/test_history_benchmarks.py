"""The benchmark of verdicts runs, and what it says of the defaults holds on a small draw."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from command_line import REPOSITORY


def test_verdicts_hold_their_bars_on_a_few_histories() -> None:
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "verdicts.py"), "--series", "20", "--json"]
    command += ["--regime", "base", "--regime", "spikes"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["missed"] == []
    base = told["measured"]["base"]
    assert base["harness (2 %, 2 nights)"]["drift_pct"] == 100
    assert base["harness (5 %, 3 nights)"]["found_by_3_pct"] == 0  # 3 % is below its threshold
    assert told["measured"]["spikes"]["last value + 3 %"]["false_pct"] > 2
