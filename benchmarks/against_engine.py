"""Decode steps and prefills of random models beside the package's whole-model engine, and where the two differ.

python benchmarks/against_engine.py [--cases N] [--seed N] [--json]

Models are dense and MoE, on B200 and H200, on one GPU and with TP, PP, EP and attention DP. Both sides read the same
measured rows; this one takes those of NVFP4 as they are. Exits 1 when a bar is missed. `benchmarks/README.md` says
what that shows, docs/cost-model.md what the differences are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from against_engine_cases import SYSTEMS, Question, draw_questions
from against_engine_parts import Phase
from whole_models import EngineModel, compile_parts, write_config

from harness.errors import HarnessError
from harness.hardware import load_system
from harness.pricing.compose import CasePrice, price_cases
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.assumptions import load_assumptions
from harness.pricing.tables.availability import PACKAGE, require_tables, version
from harness.spec.case import Case

#: Median and 90th percentile of the absolute difference of a decode step, in per cent of the engine's, at most.
BARS = {"median": 5.0, "90th percentile": 15.0}
GROUPS = (
    "all", "dense", "moe", *SYSTEMS, "one GPU", "tp", "pp", "ep", "adp", "adp and ep", "bf16", "fp8", "fp8_block",
    "nvfp4",
)  # fmt: skip
#: Draws for each case wanted; more would mean that hardly any is answered.
_MAX_DRAWS = 10


@dataclass(frozen=True)
class Compared:
    """One question and both answers by phase; `prefill` is missing where one side has none."""

    question: Question
    phases: dict[str, Phase]

    def is_in(self, group: str) -> bool:
        """Whether it belongs to a group of `GROUPS`."""
        asked = self.question
        names = {"all", asked.kind, asked.system, asked.variant.weights.attention, *(asked.splits or ["one GPU"])}
        return group in names or (group == "adp and ep" and names >= {"adp", "ep"})


@dataclass(frozen=True)
class Spread:
    """Differences in %: the median with its sign, median and 90th percentile without."""

    n: int
    signed_percent: float
    median_percent: float
    p90_percent: float

    @classmethod
    def of(cls, percents: Sequence[float]) -> Spread:
        if not percents:
            return cls(0, *[float("nan")] * 3)
        absolute = np.abs(percents)
        return cls(
            len(percents), float(np.median(percents)), float(np.median(absolute)), float(np.percentile(absolute, 90))
        )

    def __str__(self) -> str:
        return f"{self.n:>4} {self.signed_percent:>+7.2f} {self.median_percent:>7.2f} {self.p90_percent:>7.2f}"


@dataclass(frozen=True)
class PartSpread:
    """Differences in one part, in % of the engine's whole phase and in µs a layer, each with its sign."""

    n: int
    median_percent: float
    p10_percent: float
    p90_percent: float
    median_us: float

    @classmethod
    def of(cls, phases: Sequence[Phase], part: str) -> PartSpread:
        """Over the phases in which a side has the part."""
        having = [phase for phase in phases if part in phase.parts]
        low, middle, high = np.percentile([phase.part_percent(part) for phase in having], (10, 50, 90)).tolist()
        return cls(len(having), middle, low, high, float(np.median([phase.part_us(part) for phase in having])))

    def __str__(self) -> str:
        span = f"{self.p10_percent:>+7.2f} … {self.p90_percent:>+6.2f}"
        return f"{self.n:>4} {self.median_percent:>+7.2f}  {span}  {self.median_us:>+8.2f}"


class Sides:
    """Both sides, opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pricers = {key: (TablesPricer(key, as_is=True), RooflinePricer(load_system(key))) for key in SYSTEMS}
        self._asked = 0

    def ask(self, question: Question) -> Compared | str:
        """Ask both; a text says who has no answer for the decode step."""
        step = self.price(question.decode)
        if step.time_ms is None:
            return f"{step.status} by this project"
        model = self._compile(question)
        if isinstance(model, str):
            return model
        decode = self._phase(question, step, lambda: model.decode_ops(question.decode_batch, question.kvsl))
        if isinstance(decode, str):
            return decode
        prompts = self.price(question.prefill)
        prefill = self._phase(question, prompts, lambda: model.prefill_ops(question.prefill_batch, question.isl))
        return Compared(question, {"decode": decode} | ({} if isinstance(prefill, str) else {"prefill": prefill}))

    def price(self, case: Case) -> CasePrice:
        """This project's price of one phase."""
        return price_cases([case], "model", *self._pricers[case.system])[0]

    def _compile(self, question: Question) -> EngineModel | str:
        self._asked += 1
        folder = write_config(question.variant, self._folder / str(self._asked))
        release = load_assumptions(question.system).release
        try:
            return compile_parts(
                folder, question.variant, question.parallelism, question.system, release, question.routing
            )
        except Exception as error:  # noqa: BLE001  # whatever the package raises
            return f"{type(error).__name__} of the engine"

    def _phase(self, question: Question, price: CasePrice, engine_ops: Callable[[], dict[str, float]]) -> Phase | str:
        if price.time_ms is None:
            return f"{price.status} by this project"
        try:
            ops = engine_ops()
        except Exception as error:  # noqa: BLE001  # whatever the package raises
            return f"{type(error).__name__} of the engine"
        return Phase.of(question, price, ops)


def compare(sides: Sides, count: int, seed: int) -> tuple[list[Compared], Counter[str]]:
    """Draw until both sides have answered `count` decode steps; also how many draws were left out, by who and why."""
    compared: list[Compared] = []
    left_out: Counter[str] = Counter()
    for drawn, question in enumerate(draw_questions(seed)):
        if len(compared) == count or drawn == _MAX_DRAWS * count:
            break
        answer = sides.ask(question)
        if isinstance(answer, Compared):
            compared.append(answer)
        else:
            left_out[answer] += 1
    return compared, left_out


def spreads(compared: Sequence[Compared], phase: str) -> dict[str, Spread]:
    """The differences of one phase by group."""
    return {
        group: Spread.of([one.phases[phase].percent for one in compared if phase in one.phases and one.is_in(group)])
        for group in GROUPS
    }


def part_spreads(compared: Sequence[Compared], phase: str) -> dict[str, PartSpread]:
    """The differences of one phase by part."""
    phases = [one.phases[phase] for one in compared if phase in one.phases]
    return {part: PartSpread.of(phases, part) for part in sorted({part for one in phases for part in one.parts})}


def judge(compared: Sequence[Compared], wanted: int) -> list[tuple[bool, str]]:
    """The verdicts."""
    step = spreads(compared, "decode")["all"]
    bars = []
    for (name, bar), value in zip(BARS.items(), (step.median_percent, step.p90_percent), strict=True):
        bars.append((value <= bar, f"decode step, {name} of the absolute difference {value:.2f} %: at most {bar:g} %"))
    return [*bars, (len(compared) == wanted, f"{len(compared)} cases compared: {wanted}")]


def print_tables(compared: Sequence[Compared], left_out: Counter[str], bars: Sequence[tuple[bool, str]]) -> None:
    """Print what was found."""
    told = ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
    print(f"{len(compared)} cases that both answer; left out: {told or 'none'}")
    print("\nThis project less the engine in %: median with its sign, median and 90th percentile without")
    print(f"{'':<12} {'decode step':>28}   {'prefill':>28}")
    print(f"{'':<12} {'n':>4} {'signed':>7} {'median':>7} {'p90':>7}   {'n':>4} {'signed':>7} {'median':>7} {'p90':>7}")
    decode, prefill = spreads(compared, "decode"), spreads(compared, "prefill")
    for group in GROUPS:
        print(f"{group:<12} {decode[group]!s}   {prefill[group]!s}")
    for phase in ("decode", "prefill"):
        print(f"\nBy part, {phase}: this project less the engine in % of the engine's whole, and in µs a layer")
        print(f"{'':<38} {'n':>4} {'median':>7}  {'p10 … p90':>16}  {'µs/layer':>8}")
        for part, spread in part_spreads(compared, phase).items():
            print(f"{part:<38} {spread!s}")
    print("\nBars")
    for met, text in bars:
        print(f"{'met' if met else 'MISSED':<6}  {text}")


def as_json(setting: dict[str, Any], compared: Sequence[Compared], left_out: Counter[str], bars: Any) -> str:
    """The same as one JSON object, with every case."""
    phases = {
        phase: {
            "by_group": {group: asdict(spread) for group, spread in spreads(compared, phase).items()},
            "by_part": {part: asdict(spread) for part, spread in part_spreads(compared, phase).items()},
        }
        for phase in ("decode", "prefill")
    }
    cases = [
        {
            "name": one.question.variant.name,
            "system": one.question.system,
            "parallelism": one.question.parallelism.label,
            **{f"{name}_percent": phase.percent for name, phase in one.phases.items()},
        }
        for one in compared
    ]
    verdicts = [{"met": met, "text": text} for met, text in bars]
    return json.dumps({**setting, "left_out": left_out, **phases, "bars": verdicts, "cases": cases}, indent=2)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=200, help="cases that both answer (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    options = parser.parse_args(arguments)
    if not 1 <= options.cases <= 10_000:
        parser.error("--cases must be between 1 and 10000")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return 1 where a bar is missed."""
    options = parse(arguments)
    require_tables()
    with TemporaryDirectory(prefix="against-engine-") as name:
        compared, left_out = compare(Sides(Path(name)), options.cases, options.seed)
    bars = judge(compared, options.cases)
    releases = {key: load_assumptions(key).release for key in SYSTEMS}
    setting = {"package": f"{PACKAGE} {version()}", "trtllm": releases, "seed": options.seed}
    if options.json:
        print(as_json(setting, compared, left_out, bars))
    else:
        print(f"{setting['package']}, rows of TensorRT-LLM {', '.join(sorted(set(releases.values())))}")
        print_tables(compared, left_out, bars)
    return 0 if all(met for met, _ in bars) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
