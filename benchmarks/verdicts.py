"""How often verdicts on nightly histories are wrong, and how soon they are right, beside simpler rules.

python benchmarks/verdicts.py [--series 200] [--processes 1] [--seed N] [--regime base] [--others PYTHON] [--json]

Histories of 60 nights are drawn from a fixed seed; a night is the median of 60 iterations in each of `--processes`
fresh processes. `--others` is an interpreter of a throw-away environment in which asv (0.6) or otava (apache-otava 0.8)
is installed; their own functions judge the same numbers there. Exits 1 when a bar is missed. `benchmarks/README.md`
says what the numbers are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.analysis.history.judge import judge
from harness.analysis.history.policy import Policy
from harness.analysis.history.series import Environment, Series

NIGHTS, ITERATIONS = 60, 60
BETWEEN_SD, WITHIN_SD = 0.005, 0.01
#: Nights from which on verdicts count, and the night of a step.
FIRST, STEP_AT = 5, 45
STEP, DRIFT, DRIFT_NIGHTS = 0.03, 0.06, 10
BARS = {"false_pct": 1.0, "confirmed_pct": 0.1, "found_by_2_pct": 90.0, "drift_pct": 90.0, "environment_pct": 0.0}

Array = np.ndarray
OTHERS = Path(__file__).resolve().parent / "verdicts_others.py"
OLD: Environment = (("driver", "570.10"),)
NEW: Environment = (("driver", "580.20"),)


@dataclass(frozen=True)
class History:
    """What a rule may see: nights with a value, the values in ms (less is better), their environments."""

    days: Array
    values: Array
    environments: tuple[Environment, ...]

    def until(self, count: int) -> History:
        """Its first nights."""
        return History(self.days[:count], self.values[:count], self.environments[:count])


Rule = Callable[[History], bool]


def base(rng: np.random.Generator, processes: int) -> Array:
    """Logarithms: normal between processes and between iterations."""
    between = rng.normal(0, BETWEEN_SD, (NIGHTS, processes))
    within = np.median(rng.normal(0, WITHIN_SD, (NIGHTS, processes, ITERATIONS)), axis=2)
    return np.asarray(np.median(between + within, axis=1))


def spikes(rng: np.random.Generator, processes: int) -> Array:
    """5 % of the nights are slower by 5 to 15 %."""
    made = base(rng, processes)
    hit = rng.random(NIGHTS) < 0.05
    made[hit] += rng.uniform(0.05, 0.15, int(hit.sum()))
    return made


def autocorrelated(rng: np.random.Generator, processes: int) -> Array:
    """AR(1) with 0.5 between nights, of the same standard deviation."""
    made = np.zeros(NIGHTS)
    for night in range(NIGHTS):
        before = made[night - 1] if night else rng.normal(0, BETWEEN_SD)
        made[night] = 0.5 * before + rng.normal(0, BETWEEN_SD * np.sqrt(0.75))
    return made + base(rng, processes) * np.sqrt(1 - BETWEEN_SD**2 / (BETWEEN_SD**2 + 2.6e-6))


def heavy_tails(rng: np.random.Generator, processes: int) -> Array:
    """Student's t with 3 degrees of freedom between processes, of the same standard deviation."""
    between = rng.standard_t(3, (NIGHTS, processes)) * BETWEEN_SD / np.sqrt(3)
    within = np.median(rng.normal(0, WITHIN_SD, (NIGHTS, processes, ITERATIONS)), axis=2)
    return np.asarray(np.median(between + within, axis=1))


def noisy(rng: np.random.Generator, processes: int) -> Array:
    """Six times the noise."""
    return 6 * base(rng, processes)


#: Regime → its noise and the share of nights that is missing.
REGIMES: dict[str, tuple[Callable[[np.random.Generator, int], Array], float]] = {
    "base": (base, 0.0),
    "spikes": (spikes, 0.0),
    "AR(1) 0.5": (autocorrelated, 0.0),
    "heavy tails": (heavy_tails, 0.0),
    "missing nights": (base, 0.15),
    "noisy, 3 %": (noisy, 0.0),
}


def history(logs: Array, missing: Array, environments: Sequence[Environment] | None = None) -> History:
    """A history of 10 ms, without the nights that are missing."""
    days = np.flatnonzero(~missing)
    told = environments or [OLD] * len(logs)
    return History(days, 10 * np.exp(logs[days]), tuple(told[day] for day in days))


def verdict(seen: History, policy: Policy) -> str:
    """What the harness says as of the last night."""
    count = len(seen.days)
    series = Series(
        key="", shown=(), metric="step_ms", unit="ms", direction="lower", provenance="measured",
        days=seen.days.astype(np.int64), values=seen.values, counts=np.ones(count, np.int64),
        environments=seen.environments, commits=(None,) * count, failed_days=np.zeros(0, np.int64),
    )  # fmt: skip
    return judge(series, policy, int(seen.days[-1])).verdict


def ours(policy: Policy) -> Rule:
    """The harness's rule: whether it says regression."""
    return lambda seen: verdict(seen, policy) == "regression"


def last_value(seen: History) -> bool:
    """The last night is 3 % slower than the one before."""
    return len(seen.values) > 1 and bool(seen.values[-1] > 1.03 * seen.values[-2])


def rolling_p5(seen: History) -> bool:
    """The mean of the last 3 nights is 5 % slower than the best 5 % of 90 days of such means."""
    if len(seen.values) < 6:
        return False
    means = np.convolve(seen.values[-90:], np.ones(3) / 3, mode="valid")
    return bool(means[-1] > 1.05 * np.percentile(means[:-1], 5))


@dataclass
class Tally:
    """Counts of one rule in one regime."""

    nights: int = 0
    false: int = 0
    confirmed: int = 0
    found: tuple[int, ...] = (0, 0, 0)
    series: int = 0
    drift: int = 0
    environment: int = 0
    environment_nights: int = 0
    seconds: float = 0.0
    judged: int = 0

    def row(self) -> dict[str, float]:
        """Shares in %, and the time of one judgement."""
        return {
            "false_pct": 100 * self.false / self.nights,
            "confirmed_pct": 100 * self.confirmed / self.nights,
            **{f"found_by_{night}_pct": 100 * hits / self.series for night, hits in enumerate(self.found, 1)},
            "drift_pct": 100 * self.drift / self.series,
            "environment_pct": 100 * self.environment / self.environment_nights,
            "ms": 1000 * self.seconds / self.judged,
        }


def questions(name: str, series: int, seed: int, processes: int) -> list[dict[str, list[History]]]:
    """What every rule is asked in one regime: histories, by what is asked of them."""
    make, missing_share = REGIMES[name]
    rng = np.random.default_rng([seed, list(REGIMES).index(name)])
    asked = []
    for _ in range(series):
        logs, again = make(rng, processes), make(rng, processes)
        missing = rng.random(NIGHTS) < missing_share
        missing[STEP_AT:] &= missing_share == 0 or rng.random(NIGHTS - STEP_AT) < 0  # the nights asked about are there
        quiet = history(logs, missing)
        ramp = np.clip((np.arange(NIGHTS) - STEP_AT + 1) / DRIFT_NIGHTS, 0, 1) * np.log1p(DRIFT)
        after = np.arange(NIGHTS) >= STEP_AT
        step = history(logs + np.log1p(STEP) * after, missing)
        moved = history(logs + np.log1p(0.07) * after, missing, [NEW if late else OLD for late in after])
        kept = [int((quiet.days < STEP_AT + late).sum()) for late in (1, 2, 3)]
        drifted = history(logs + ramp, missing)
        asked.append(
            {
                "quiet": [quiet.until(count) for count in range(FIRST, len(quiet.days) + 1)],
                "again": [rerun(quiet.until(count), again) for count in range(FIRST, len(quiet.days) + 1)],
                "step": [step.until(count) for count in kept],
                "drift": [drifted.until(int((drifted.days < STEP_AT + DRIFT_NIGHTS).sum()))],
                "environment": [moved.until(int((moved.days < day + 1).sum())) for day in range(STEP_AT, NIGHTS)],
            }
        )
    return asked


def rerun(seen: History, again: Array) -> History:
    """The same with another run of the last night, which then has two samples."""
    values = seen.values.copy()
    values[-1] = np.median([values[-1], 10 * np.exp(again[seen.days[-1]])])
    return History(seen.days, values, seen.environments)


def tally(rule: Rule, asked: list[dict[str, list[History]]]) -> Tally:
    """Ask a rule everything."""
    found = Tally(series=len(asked))
    started = time.perf_counter()
    for one in asked:
        alarms = [rule(seen) for seen in one["quiet"]]
        found.nights += len(alarms)
        found.false += sum(alarms)
        found.confirmed += sum(rule(seen) for seen, alarm in zip(one["again"], alarms, strict=True) if alarm)
        steps = [rule(seen) for seen in one["step"]]
        found.found = tuple(hits + any(steps[: night + 1]) for night, hits in enumerate(found.found))
        found.drift += rule(one["drift"][0])
        moved = [rule(seen) for seen in one["environment"]]
        found.environment += sum(moved)
        found.environment_nights += len(moved)
        found.judged += len(alarms) + len(steps) + 1 + len(moved)
    found.seconds = time.perf_counter() - started
    return found


def others(python: str, asked: list[dict[str, list[History]]]) -> dict[str, Tally]:
    """The rules of other tools, asked in an environment of their own, all histories at once."""
    every = [seen for one in asked for name in ("quiet", "again", "step", "drift", "environment") for seen in one[name]]
    told = json.dumps([seen.values.tolist() for seen in every])
    done = subprocess.run([python, str(OTHERS)], input=told, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found = {}
    for name, answers in json.loads(done.stdout).items():
        known = {id(seen): alarm for seen, alarm in zip(every, answers["alarms"], strict=True)}
        found[name] = tally(lambda seen, known=known: known[id(seen)], asked)
        found[name].seconds = answers["s"] * found[name].judged / len(every)
    return found


def measure(
    series: int, seed: int, processes: int, python: str | None = None, regimes: Sequence[str] = tuple(REGIMES)
) -> dict[str, dict[str, dict[str, float]]]:
    """Regime → rule → its row."""
    rules: dict[str, Rule] = {
        "harness (2 %, 2 nights)": ours(Policy()),
        "harness (5 %, 3 nights)": ours(Policy(threshold_pct=5, nights=3)),
        "last value + 3 %": last_value,
        "rolling P5 + 5 %": rolling_p5,
    }
    found = {}
    for name in regimes:
        asked = questions(name, series, seed, processes)
        tallies = {title: tally(rule, asked) for title, rule in rules.items()}
        tallies |= others(python, asked) if python else {}
        found[name] = {title: one.row() for title, one in tallies.items()}
    return found


def missed(found: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Bars of base noise, and of changes of environment everywhere, that the harness's defaults do not hold."""
    if "base" not in found:
        return []
    row = found["base"]["harness (2 %, 2 nights)"]
    at_most = ("false_pct", "confirmed_pct", "environment_pct")
    wrong = [f"base: {name} is {row[name]:.2f}, at most {BARS[name]}" for name in at_most if row[name] > BARS[name]]
    for name in ("found_by_2_pct", "drift_pct"):
        wrong += [f"base: {name} is {row[name]:.1f}, at least {BARS[name]}"] if row[name] < BARS[name] else []
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--processes", type=int, default=1, help="fresh processes a night")
    parser.add_argument("--regime", choices=REGIMES, action="append", help="only this one; repeatable")
    parser.add_argument("--others", help="interpreter of an environment with asv or otava")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.series, options.seed, options.processes, options.others, options.regime or tuple(REGIMES))
    wrong = missed(found)
    if options.json:
        print(json.dumps({"measured": found, "missed": wrong}, indent=2))
        return 1 if wrong else 0
    about = f"{options.series} series a regime, {NIGHTS} nights, {options.processes} processes a night"
    print(f"{about}; % of nights or series\n")
    for regime, rows in found.items():
        print(f"{regime:26}  false  re-run  +3 % by night 1/2/3   6 % drift  environment    ms")
        for title, row in rows.items():
            steps = " / ".join(f"{row[f'found_by_{night}_pct']:3.0f}" for night in (1, 2, 3))
            print(
                f"  {title:24}{row['false_pct']:7.2f}{row['confirmed_pct']:8.2f}   {steps:>19}"
                f"{row['drift_pct']:12.0f}{row['environment_pct']:13.1f}{row['ms']:6.2f}"
            )
        print()
    print("\n".join(wrong or ["all bars held"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
