"""The stop rule on traces: samples it takes, reasons it gives, and how often its interval holds the median.

python benchmarks/sampling.py [--replays N] [--json]

Exits 1 when a bar is missed. `benchmarks/README.md` says what is replayed and what that shows. To let a new recording
take part, add it to `tests/traces/record.py` and to `sampling_traces.steady`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random

import numpy as np
from sampling_traces import Array, Draw, Trace, drift, steady, step, stretch

from harness.backends.base import ArmFacts, OpTime, Taken
from harness.backends.measurement import Measurement
from harness.runner.median import dependence, median_interval
from harness.runner.sampling import SamplingPolicy, sample_rounds

#: Warm-up is not what is asked about here.
POLICY = SamplingPolicy(warmup_decode=0, warmup_prefill=0, max_warmup=0)
FIXED = 200
MIN_COVERAGE_PCT = 93.0
#: A trace recorded beside more load than this is flagged `noisy` in a run, and decides nothing whatever its interval.
NOISY_CPUS = 0.25


class Replay:
    """An arm whose times are known beforehand."""

    facts = ArmFacts(layers_run=1)

    def __init__(self, times: Array) -> None:
        self._times, self._next = times.tolist(), 0

    def take(self, count: int) -> Taken:
        """The next ones."""
        self._next += count
        return Taken(tuple(self._times[self._next - count : self._next]))

    def op_times(self) -> list[OpTime]:
        """None."""
        return []

    def close(self) -> None:
        """Nothing to free."""


def sampled(times: Array) -> Measurement:
    """What the harness makes of these times, by the code that runs in a worker; time stands still."""
    arms = {0: Replay(times)}
    ((_, measurement),) = sample_rounds(arms, {0: "decode"}, POLICY, Random(0), clock=lambda: 0.0)
    assert isinstance(measurement, Measurement)
    return measurement


@dataclass(frozen=True)
class Row:
    """Many replays of one trace. Widths are half-widths of the 95 % interval, in % of the median, and medians."""

    trace: str
    foreign_cpus: float | None
    iqr_pct: float
    tau: float
    """Samples / independent samples, as 200 samples show it."""
    samples: float
    """Median."""
    to_target: float
    """Median samples of the replays that reached the target; infinite where fewer than half of them did."""
    reasons_pct: dict[str, float]
    no_interval_pct: float
    """Replays whose samples bound no median; they count as neither covered nor missed."""
    width_pct: float
    coverage_pct: float
    fixed_width_pct: float
    fixed_coverage_pct: float


def replay(trace: Trace, replays: int) -> Row:
    """Sample a trace over and over, each time another stretch of it."""
    samples, to_target, reasons, widths, fixed_widths = [], [], Counter[str](), [], []
    covered, fixed_covered, spreads, taus = [], [], [], []
    for seed in range(replays):
        times = trace.draw(np.random.default_rng(seed), POLICY.max_samples)
        measurement = sampled(times)
        reasons[measurement.stop_reason] += 1
        samples.append(len(measurement.times_ms))
        first, third = np.percentile(times, (25, 75))
        spreads.append(100 * (third - first) / trace.median)
        taus.append(dependence(times[:FIXED], float(np.median(times[:FIXED]))))
        to_target.append(samples[-1] if measurement.stop_reason == "precise" else np.inf)
        for taken, width, inside in (
            (measurement.times_ms, widths, covered),
            (times[:FIXED], fixed_widths, fixed_covered),
        ):
            interval = median_interval(taken)
            if interval:
                width.append(interval.half_width_pct)
                inside.append(interval.low <= trace.median <= interval.high)
    return Row(
        trace=trace.name,
        foreign_cpus=trace.foreign_cpus,
        iqr_pct=float(np.median(spreads)),
        tau=float(np.median(taus)),
        samples=float(np.median(samples)),
        to_target=float(np.median(to_target)),
        reasons_pct={reason: 100 * count / replays for reason, count in reasons.items()},
        no_interval_pct=100 * (replays - len(widths)) / replays,
        width_pct=float(np.median(widths)),
        coverage_pct=float(100 * np.mean(covered)),
        fixed_width_pct=float(np.median(fixed_widths)),
        fixed_coverage_pct=float(100 * np.mean(fixed_covered)),
    )


@dataclass(frozen=True)
class Unsteady:
    """Replays of a trace without one median."""

    trace: str
    reasons_pct: dict[str, float]
    samples: float


def unsteady(name: str, draw: Draw, replays: int) -> Unsteady:
    """How sampling ends where the times go somewhere."""
    ended = [sampled(draw(np.random.default_rng(seed), POLICY.max_samples)) for seed in range(replays)]
    reasons = Counter(one.stop_reason for one in ended)
    shares = {reason: 100 * count / replays for reason, count in reasons.items()}
    return Unsteady(name, shares, float(np.median([len(one.times_ms) for one in ended])))


def overhead_us() -> float:
    """What sampling costs beside the arm, µs per sample: stop rule, order of the arms, bookkeeping."""
    times = np.random.default_rng(0).normal(1, 0.02, POLICY.max_samples)
    costs = []
    for _ in range(20):
        start = time.perf_counter()
        taken = len(sampled(times).times_ms)
        costs.append((time.perf_counter() - start) / taken * 1e6)
    return float(np.median(costs))


def print_rows(rows: Sequence[Row]) -> None:
    columns = (
        "busy",
        "IQR %",
        "tau",
        "samples",
        "precise",
        "settled",
        "none",
        "width %",
        "covers",
        "width %",
        "covers",
    )
    print(f"{'':32} {'others':>6}{'':16}{'adaptive: reasons in % of replays':>50}{f'fixed {FIXED}':>17}")
    print(f"{'trace':32} " + " ".join(f"{column:>7}" for column in columns))
    for row in rows:
        busy = "–" if row.foreign_cpus is None else f"{row.foreign_cpus:.1f}"
        precise, settled = (row.reasons_pct.get(reason, 0.0) for reason in ("precise", "settled"))
        figures = (
            row.iqr_pct,
            row.tau,
            row.samples,
            precise,
            settled,
            row.no_interval_pct,
            row.width_pct,
            row.coverage_pct,
        )
        digits = (2, 1, 0, 1, 1, 1, 2, 1, 2, 1)
        figures += (row.fixed_width_pct, row.fixed_coverage_pct)
        printed = " ".join(f"{figure:7.{digit}f}" for figure, digit in zip(figures, digits, strict=True))
        print(f"{row.trace:32} {busy:>7} {printed}")


def missed(rows: Sequence[Row]) -> list[str]:
    """Bars that were not reached."""
    found = []
    median = float(np.median([row.to_target for row in rows]))
    if not median < FIXED:
        found.append(f"the median trace needs {median:.0f} samples to reach the target, not fewer than {FIXED}")
    overall = float(np.mean([row.coverage_pct for row in rows]))
    if overall < MIN_COVERAGE_PCT:
        found.append(f"the interval holds the median in {overall:.1f} % of all replays, not {MIN_COVERAGE_PCT} %")
    found += [
        f"{row.trace}: the interval holds the median in {row.coverage_pct:.1f} % of replays, not {MIN_COVERAGE_PCT} %"
        for row in rows
        if row.coverage_pct < MIN_COVERAGE_PCT and (row.foreign_cpus or 0) <= NOISY_CPUS
    ]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replays", type=int, default=500, help="of every trace")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    arguments = parser.parse_args()
    rows = [replay(trace, arguments.replays) for trace in steady()]
    moving = [
        unsteady(name, draw, arguments.replays)
        for name, draw in (
            ("step of 10 % at sample 15", step(10, 15)),
            ("step of 10 % at sample 150", step(10, 150)),
            ("drift of 5 % in 100 samples", drift(5)),
            ("drift of 20 % in 100 samples", drift(20)),
            ("recorded: step", stretch("step")),
            ("recorded: drift", stretch("drift")),
        )
    ]
    cost_us = overhead_us()
    if arguments.json:
        print(json.dumps({"steady": [asdict(r) for r in rows], "moving": [asdict(m) for m in moving], "us": cost_us}))
    else:
        print(f"{arguments.replays} replays of each trace; target {POLICY.target_pct} %, fixed rule {FIXED} samples\n")
        print_rows(rows)
        print(f"\nmedian over the traces of samples to the target: {np.median([row.to_target for row in rows]):.0f}")
        print(f"coverage: {np.mean([row.coverage_pct for row in rows]):.1f} % over all traces, ", end="")
        quiet = [row.coverage_pct for row in rows if (row.foreign_cpus or 0) <= NOISY_CPUS]
        print(
            f"lowest {min(quiet):.1f} % of those not recorded under load\n\nWithout one median: share of reasons in %"
        )
        for one in moving:
            shares = ", ".join(f"{reason} {share:.1f}" for reason, share in sorted(one.reasons_pct.items()))
            print(f"{one.trace:32} {one.samples:4.0f} samples: {shares}")
        print(f"\nsampling costs {cost_us:.0f} µs per sample beside the arm")
    failures = missed(rows)
    for failure in failures:
        print(f"missed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
