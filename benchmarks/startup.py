"""What `trtllm-harness --help` costs beside `python -c "import click"`: a ratio, both measured here, interleaved.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 15
ARMS = {
    'python -c "import click"': [sys.executable, "-c", "import click"],
    "trtllm-harness --help": [
        sys.executable,
        "-c",
        "from harness.cli.main import entry_point; entry_point()",
        "--help",
    ],
}


def wall_ms(command: list[str]) -> float:
    """Wall time of one process, in ms."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


def main() -> None:
    """Print the median of each arm and their ratio."""
    for command in ARMS.values():
        wall_ms(command)  # fill the page cache and the bytecode cache
    samples = {name: [] for name in ARMS}  # type: dict[str, list[float]]
    for _ in range(ROUNDS):
        for name, command in ARMS.items():
            samples[name].append(wall_ms(command))
    medians = {name: statistics.median(times) for name, times in samples.items()}
    for name, median_ms in medians.items():
        print(f"{name:<28} {median_ms:7.1f} ms  (median of {ROUNDS})")
    base, ours = medians.values()
    print(f"ratio                        {ours / base:7.2f}  (at most 2.0 wanted)")


if __name__ == "__main__":
    main()
