"""Prices of rows that were taken away: this project's pricer beside the package's own engine, on the same rows.

python benchmarks/heldout.py [--draws N] [--rows N] [--gpu GPU ...] [--json]

A draw removes some hundred FP8 rows inside the grid of decode attention and of prefill attention, all at once, and
asks both for them. Errors are pooled over the draws. Rows at the frontier of the tables are left out one by one, and
asked of this project's pricer with `allow_extrapolation`. Exits 1 when a bar is missed. `benchmarks/README.md` says
what that shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from heldout_engine import engine_without
from heldout_rows import Phase, load_phases

from harness.errors import HarnessError
from harness.pricing.base import KernelPrice
from harness.pricing.tables.assumptions import load_assumptions
from harness.pricing.tables.availability import PACKAGE, require_tables, version

#: Median and 90th percentile of the absolute relative error, in per cent, at most.
BARS = {
    ("b200_sxm", "decode"): (2.0, 9.0),
    ("h200_sxm", "decode"): (2.2, 13.0),
    ("b200_sxm", "prefill"): (1.8, 8.0),
    ("h200_sxm", "prefill"): (1.4, 6.5),
}
#: Rules were chosen on rows of B200 and H200; the others are printed as a check.
GPUS = ("b200_sxm", "h200_sxm", "h100_sxm", "b300_sxm", "gb200", "gb300")
MAX_REFUSED_PERCENT = 1.0
#: Rows that the engine was shown and is asked again, to find what it adds to each.
_SHOWN = 200


@dataclass(frozen=True)
class Errors:
    """Absolute relative errors, in per cent of the row."""

    median_percent: float
    p90_percent: float

    @classmethod
    def of(cls, times_ms: Sequence[float], measured_ms: Sequence[float]) -> Errors:
        if not times_ms:
            return cls(float("nan"), float("nan"))
        percent = np.abs(np.asarray(times_ms) / np.asarray(measured_ms) - 1) * 100
        return cls(float(np.median(percent)), float(np.percentile(percent, 90)))

    def __str__(self) -> str:
        return f"{self.median_percent:5.2f} / {self.p90_percent:5.1f}"


@dataclass
class HeldOut:
    """Held-out rows of one system and phase: what was measured, and what both say, pooled over the draws.

    Only rows that both answer are listed. `engine_adds_us` is what the engine adds to a row that it was shown.
    """

    gpu: str
    phase: str
    candidates: int
    asked: int = 0
    refused: int = 0
    engine_fails: int = 0
    engine_adds_us: float = 0.0
    measured_ms: list[float] = field(default_factory=list)
    ours_ms: list[float] = field(default_factory=list)
    engine_ms: list[float] = field(default_factory=list)
    by_draw: list[Errors] = field(default_factory=list)

    def add(self, prices: Sequence[KernelPrice], engine_ms: Sequence[float | None], rows_ms: Sequence[float]) -> None:
        """Add one draw."""
        first = len(self.measured_ms)
        for price, theirs, row in zip(prices, engine_ms, rows_ms, strict=True):
            self.asked += 1
            self.refused += price.time_ms is None
            self.engine_fails += theirs is None
            if price.time_ms is not None and theirs is not None:
                self.measured_ms.append(row)
                self.ours_ms.append(price.time_ms)
                self.engine_ms.append(theirs)
        self.by_draw.append(Errors.of(self.ours_ms[first:], self.measured_ms[first:]))

    @property
    def ours(self) -> Errors:
        return Errors.of(self.ours_ms, self.measured_ms)

    @property
    def engine(self) -> Errors:
        return Errors.of(self.engine_ms, self.measured_ms)

    @property
    def engine_less_constant(self) -> Errors:
        return Errors.of([time - self.engine_adds_us / 1e3 for time in self.engine_ms], self.measured_ms)


@dataclass(frozen=True)
class Frontier:
    """Frontier rows of one system and phase, left out one by one; `marked` counts answers that say `extrapolated`."""

    gpu: str
    phase: str
    rows: int
    answered: int
    marked: int
    errors: Errors

    @property
    def refused(self) -> int:
        return self.rows - self.answered


@dataclass(frozen=True)
class Bar:
    """One verdict."""

    gpu: str
    phase: str
    met: bool
    text: str


def hold_out(gpu: str, draws: int, rows: int) -> list[HeldOut]:
    """Remove `rows` rows of each phase together, ask both pricers for them, and so on for each draw."""
    assumed = load_assumptions(gpu)
    phases = load_phases(gpu, assumed)
    inside = [phase.interior() for phase in phases]
    results = [HeldOut(gpu, phase.name, len(cells)) for phase, cells in zip(phases, inside, strict=True)]
    for draw in range(draws):
        # The seed is the number of the draw, for every system and phase.
        removed = [_pick(cells, rows, draw) for cells in inside]
        tables = {phase.table: cells for phase, cells in zip(phases, removed, strict=True)}
        with engine_without(gpu, assumed.release, tables) as engine:
            for phase, cells, all_cells, result in zip(phases, removed, inside, results, strict=True):
                theirs = engine.times_ms([phase.kernel(cell) for cell in cells])
                result.add(phase.prices(cells, removed=cells), theirs, [phase.measured_ms(cell) for cell in cells])
                if draw == 0:
                    shown = sorted(set(all_cells) - set(cells))[:: max(1, len(all_cells) // _SHOWN)]
                    result.engine_adds_us = _added_us(engine.times_ms([phase.kernel(c) for c in shown]), phase, shown)
    return results


def _pick(cells: Sequence[Any], count: int, seed: int) -> list[Any]:
    return [cells[at] for at in np.random.default_rng(seed).choice(len(cells), count, replace=False).tolist()]


def _added_us(times_ms: Sequence[float | None], phase: Phase, shown: Sequence[Any]) -> float:
    """The median of what the engine adds to rows that it was shown."""
    added = [time - phase.measured_ms(cell) for time, cell in zip(times_ms, shown, strict=True) if time is not None]
    return float(np.median(added)) * 1e3


def leave_out_frontier(gpu: str) -> list[Frontier]:
    """Leave out each row of the frontier alone and ask for it with `allow_extrapolation`."""
    results = []
    for phase in load_phases(gpu, load_assumptions(gpu)):
        cells = phase.frontier()
        asked = [(cell, phase.price_left_out(cell)) for cell in cells]
        answers = [(cell, price, price.time_ms) for cell, price in asked if price.time_ms is not None]
        marked = sum(price.source == "extrapolated" and "extrapolated" in price.flags for _, price, _ in answers)
        errors = Errors.of([time for *_, time in answers], [phase.measured_ms(cell) for cell, *_ in answers])
        results.append(Frontier(gpu, phase.name, len(cells), len(answers), marked, errors))
    return results


def judge(held_out: Sequence[HeldOut], frontier: Sequence[Frontier]) -> list[Bar]:
    """The verdicts: errors against bar and engine where there is a bar, refusals and marks over all."""
    bars = []
    for result in held_out:
        ours, engine = asdict(result.ours), asdict(result.engine)
        for name, bar in zip(ours, BARS.get((result.gpu, result.phase), ()), strict=False):
            met = ours[name] <= bar and ours[name] < engine[name]
            text = (
                f"{name.split('_')[0]} {ours[name]:.2f} %: at most {bar:g} %, below the engine's {engine[name]:.2f} %"
            )
            bars.append(Bar(result.gpu, result.phase, met, text))
    refused = max(100 * result.refused / result.asked for result in held_out)
    text = f"inside the grid at most {refused:.2f} % refused: at most {MAX_REFUSED_PERCENT:g} %"
    bars.append(Bar("all", "both", refused <= MAX_REFUSED_PERCENT, text))
    marked, answered = (sum(getattr(edge, name) for edge in frontier) for name in ("marked", "answered"))
    text = f"{marked} of {answered} frontier answers are marked extrapolated: all of them"
    bars.append(Bar("all", "both", marked == answered, text))
    return bars


def print_tables(held_out: Sequence[HeldOut], frontier: Sequence[Frontier], bars: Sequence[Bar]) -> None:
    """Print what was found."""
    print("\nInside the grid, removed together: absolute error in % of the row, median / 90th percentile")
    print(f"{'GPU':<9} {'phase':<8} {'rows':>5} {'n':>6}  {'this project':>13}  {'engine':>13}  refused")
    for result in held_out:
        place = f"{result.gpu:<9} {result.phase:<8}"
        print(
            f"{place} {result.candidates:>5} {len(result.ours_ms):>6}  {result.ours!s:>13}  {result.engine!s:>13}"
            f"  {result.refused:>7}"
        )
    print("\nPrefill, engine less the constant that it adds to rows that it was shown (printed only, no bar)")
    for result in held_out:
        if result.phase == "prefill":
            print(f"{result.gpu:<9} {result.engine_adds_us:.1f} us  {result.engine_less_constant}")
    print("\nFrontier, left out one by one, asked with allow_extrapolation: median / 90th percentile")
    print(f"{'GPU':<9} {'phase':<8} {'rows':>5} {'refused':>7} {'answered':>8} {'marked':>6}  {'this project':>13}")
    for edge in frontier:
        place = f"{edge.gpu:<9} {edge.phase:<8} {edge.rows:>5}"
        print(f"{place} {edge.refused:>7} {edge.answered:>8} {edge.marked:>6}  {edge.errors!s:>13}")
    print("\nBars")
    for bar in bars:
        print(f"{'met' if bar.met else 'MISSED':<6}  {bar.gpu:<9} {bar.phase:<8} {bar.text}")


def as_json(setting: dict[str, Any], held_out: Sequence[HeldOut], frontier: Sequence[Frontier], bars: Any) -> str:
    """The same as one JSON object."""
    inside = [
        {
            **{name: getattr(result, name) for name in ("gpu", "phase", "candidates", "asked", "refused")},
            "n": len(result.ours_ms),
            **{name: asdict(getattr(result, name)) for name in ("ours", "engine", "engine_less_constant")},
            **{name: getattr(result, name) for name in ("engine_fails", "engine_adds_us")},
            "ours_by_draw": [asdict(errors) for errors in result.by_draw],
        }
        for result in held_out
    ]
    edges = [{**asdict(edge), "refused": edge.refused} for edge in frontier]
    return json.dumps({**setting, "inside": inside, "frontier": edges, "bars": [asdict(bar) for bar in bars]}, indent=2)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=20, help="draws, seeded 0, 1, … (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=300, help="rows removed together (default: %(default)s)")
    parser.add_argument("--gpu", nargs="+", default=["all"], choices=("all", *GPUS), help="default: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    options = parser.parse_args(arguments)
    if options.draws < 1 or not 1 <= options.rows <= 2000:
        parser.error("--draws must be at least 1, --rows between 1 and 2000")
    if "all" in options.gpu:
        options.gpu = list(GPUS)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return 1 where a bar is missed."""
    options = parse(arguments)
    require_tables()
    held_out = [result for gpu in options.gpu for result in hold_out(gpu, options.draws, options.rows)]
    frontier = [edge for gpu in options.gpu for edge in leave_out_frontier(gpu)]
    bars = judge(held_out, frontier)
    releases = {gpu: load_assumptions(gpu).release for gpu in options.gpu}
    setting = {"package": f"{PACKAGE} {version()}", "trtllm": releases, "draws": options.draws, "rows": options.rows}
    if options.json:
        print(as_json(setting, held_out, frontier, bars))
    else:
        print(f"{setting['package']}, rows of TensorRT-LLM {', '.join(sorted(set(releases.values())))}")
        print(f"{options.draws} draws, seeds 0 to {options.draws - 1}, of {options.rows} rows each")
        print_tables(held_out, frontier, bars)
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
