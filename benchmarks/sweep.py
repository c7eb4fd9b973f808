"""Cases a second: 10,000 different models priced op by op, beside the package's compile-and-predict path on a sample.

python benchmarks/sweep.py [--cases N] [--sample N] [--json]

A case is one model, asked for a decode step and for a prefill. No two have the same shape, so nothing is priced twice
but what two shapes share. Exits 1 when a bar is missed. `benchmarks/README.md` says what is timed and what that shows.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from whole_models import compile_facade, write_config

from harness.errors import HarnessError
from harness.hardware import load_system
from harness.pricing.compose import CasePrice, price_cases
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer
from harness.pricing.tables.assumptions import load_assumptions
from harness.pricing.tables.availability import PACKAGE, require_tables, version
from harness.results.build import Answerer, priced_attempt
from harness.spec.case import Case
from harness.spec.expand import PlannedCase
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill

GPU = "b200_sxm"
DECODE = Decode(phase="decode", batch=8, kvsl=12_000)
PREFILL = Prefill(phase="prefill", batch=1, isl=6_000)
MIN_RATIO = 20.0
MAX_RSS_GB = 1.0
#: Models priced together, as in a run of studies.
BATCH = 250
#: Models whose records are timed apart.
_RECORDED = 250
_TURNS = 15
#: Linux counts the peak in KiB, macOS in bytes.
_RSS_BYTES = 1 if sys.platform == "darwin" else 1024
#: (query heads, KV heads) that have rows in both phases at every head size below.
_HEADS = (
    *((8, kv_heads) for kv_heads in (1, 2, 4, 8)),
    *((16, kv_heads) for kv_heads in (1, 2, 4, 8)),
    *((32, kv_heads) for kv_heads in (2, 4, 8)),
    *((64, kv_heads) for kv_heads in (4, 8)),
    (96, 8),
)
_HEAD_SIZES = (64, 128, 256)


@dataclass(frozen=True)
class Answer:
    """What one side says of one model, in ms."""

    decode_ms: float
    prefill_ms: float


@dataclass(frozen=True)
class Sweep:
    """What was measured: rates in cases a second, peak memory in GB (10⁹ bytes), differences from the engine in %."""

    cases: int
    sample: int
    start_s: float
    """Time to the first answer: opening the tables."""
    cases_per_s: float
    recorded_cases_per_s: float
    """The same with a record and a row per op for every case, as a run of studies writes them."""
    peak_rss_gb: float
    engine_start_s: float
    engine_cases_per_s: float
    decode_median_percent: float
    decode_p90_percent: float
    prefill_median_percent: float
    prefill_p90_percent: float

    @property
    def ratio(self) -> float:
        return self.cases_per_s / self.engine_cases_per_s

    @property
    def bars(self) -> list[tuple[bool, str]]:
        """The verdicts."""
        return [
            (self.ratio >= MIN_RATIO, f"{self.ratio:.1f} times the engine's rate: at least {MIN_RATIO:g}"),
            (self.peak_rss_gb < MAX_RSS_GB, f"{self.peak_rss_gb:.2f} GB at most: under {MAX_RSS_GB:g}"),
        ]


def draw_variants(count: int, seed: int = 0) -> list[Variant]:
    """`count` models, no two alike in hidden, heads, KV heads, head size, FFN and layers."""
    draw = random.Random(seed)
    shapes: dict[tuple[int, ...], None] = {}
    while len(shapes) < count:
        q_heads, kv_heads = draw.choice(_HEADS)
        hidden, ffn = 128 * draw.randint(8, 64), 128 * draw.randint(16, 224)
        shapes[hidden, q_heads, kv_heads, draw.choice(_HEAD_SIZES), ffn, draw.randint(8, 80)] = None
    return [_variant(number, *shape) for number, shape in enumerate(shapes)]


def _variant(number: int, hidden: int, q_heads: int, kv_heads: int, head_dim: int, ffn: int, layers: int) -> Variant:
    return Variant.model_validate(
        {
            "name": f"shape-{number}",
            "layers": layers,
            "hidden": hidden,
            "q_heads": q_heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "ffn": ffn,
            "vocab": 128256,
            "weights": "fp8",
            "kv_format": "fp8",
            "attn_format": "fp8",
        }
    )


def cases_of(variants: Sequence[Variant]) -> tuple[list[Case], list[Case]]:
    """The decode steps and the prefills of some models."""
    decode, prefill = (
        [Case(variant=variant, workload=workload, system=GPU) for variant in variants] for workload in (DECODE, PREFILL)
    )
    return decode, prefill


class Ours:
    """This project's pricer, opened."""

    def __init__(self) -> None:
        system = load_system(GPU)
        self.pricer = TablesPricer(GPU, l2_bytes=system.l2_bytes)
        self.roofline = RooflinePricer(system)

    def answers(self, variants: Sequence[Variant]) -> Iterator[Answer]:
        """Price models in batches; only the times are kept."""
        for first in range(0, len(variants), BATCH):
            decode, prefill = map(self._price, cases_of(variants[first : first + BATCH]))
            for step, prompt in zip(decode, prefill, strict=True):
                if step.time_ms is None or prompt.time_ms is None:
                    raise RuntimeError(f"a case of the sweep has no price: {step.reason or prompt.reason}")
                yield Answer(step.time_ms, prompt.time_ms)

    def record(self, variants: Sequence[Variant]) -> int:
        """Price models and make their records and op rows; returns how many rows there were."""
        answerer, rows = Answerer(self.pricer.name, ", ".join(self.pricer.versions())), 0
        for cases in cases_of(variants):
            for case, price in zip(cases, self._price(cases), strict=True):
                planned = PlannedCase(case, "sweep", "shapes", {}, "model")
                rows += len(priced_attempt(planned, price, answerer, "sweep.0", "").ops)
        return rows

    def _price(self, cases: Sequence[Case]) -> list[CasePrice]:
        return price_cases(cases, "model", self.pricer, self.roofline)


class Theirs:
    """The package's engine, which reads each model from a fresh directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.release = load_assumptions(GPU).release

    def answer(self, variant: Variant) -> tuple[Answer, float]:
        """Compile a model and ask for both phases; the answer, and its seconds without those of writing the files."""
        folder = write_config(variant, self.folder / variant.name)
        start = time.perf_counter()
        model = compile_facade(folder, variant, GPU, self.release)
        decode_ms = model.decode_ms(DECODE.batch, DECODE.kvsl)
        prefill_ms = model.prefill_ms(PREFILL.batch, PREFILL.isl)
        return Answer(decode_ms, prefill_ms), time.perf_counter() - start


def measure(count: int, sample: int) -> Sweep:
    """Price all and ask the engine for a sample, in turns; one model more opens the tables of each side."""
    first, *variants = draw_variants(count + 1)
    chosen = random.Random(1).sample(range(count), sample)
    with TemporaryDirectory(prefix="sweep-") as name:
        start = time.perf_counter()
        ours = Ours()
        list(ours.answers([first]))
        start_s = time.perf_counter() - start
        theirs = Theirs(Path(name))
        _, engine_start_s = theirs.answer(first)
        mine, engine, ours_s, engine_s = _in_turns(ours, theirs, variants, chosen)
    recorded = variants[:_RECORDED]
    start = time.perf_counter()
    ours.record(recorded)
    recorded_s = time.perf_counter() - start
    decode = _differences([(mine[at].decode_ms, engine[at].decode_ms) for at in chosen])
    prefill = _differences([(mine[at].prefill_ms, engine[at].prefill_ms) for at in chosen])
    return Sweep(
        cases=count,
        sample=sample,
        start_s=start_s,
        cases_per_s=count / ours_s,
        recorded_cases_per_s=len(recorded) / recorded_s,
        peak_rss_gb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_BYTES / 1e9,
        engine_start_s=engine_start_s,
        engine_cases_per_s=sample / engine_s,
        decode_median_percent=decode[0],
        decode_p90_percent=decode[1],
        prefill_median_percent=prefill[0],
        prefill_p90_percent=prefill[1],
    )


def _in_turns(
    ours: Ours, theirs: Theirs, variants: Sequence[Variant], chosen: Sequence[int]
) -> tuple[list[Answer], dict[int, Answer], float, float]:
    """Answers of both sides and the seconds they took; in turns, so that a busy machine slows both."""
    mine: list[Answer] = []
    engine: dict[int, Answer] = {}
    ours_s = engine_s = 0.0
    for turn in range(_TURNS):
        start = time.perf_counter()
        mine += ours.answers(variants[len(variants) * turn // _TURNS : len(variants) * (turn + 1) // _TURNS])
        ours_s += time.perf_counter() - start
        for at in chosen[turn::_TURNS]:
            engine[at], seconds = theirs.answer(variants[at])
            engine_s += seconds
    return mine, engine, ours_s, engine_s


def _differences(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """This project less the engine in % of the engine: the median with its sign, and the 90th percentile without."""
    percent = np.array([100 * (mine / engine - 1) for mine, engine in pairs])
    return float(np.median(percent)), float(np.percentile(np.abs(percent), 90))


def print_table(sweep: Sweep) -> None:
    """Print what was found."""
    print(
        f"{GPU}, decode b {DECODE.batch} KVSL {DECODE.kvsl} and prefill {PREFILL.batch} x {PREFILL.isl} of each shape"
    )
    print(f"\n{'':<30} {'shapes':>7} {'first answer':>13} {'shapes/s':>9}")
    for name, count, first_s, rate in (
        ("this project", sweep.cases, f"{sweep.start_s:.2f} s", sweep.cases_per_s),
        ("engine, compile and predict", sweep.sample, f"{sweep.engine_start_s:.2f} s", sweep.engine_cases_per_s),
        ("this project, with records", min(_RECORDED, sweep.cases), "", sweep.recorded_cases_per_s),
    ):
        print(f"{name:<30} {count:>7} {first_s:>13} {rate:>9.0f}")
    print(f"\nPeak memory of the process, engine included: {sweep.peak_rss_gb * 1000:.0f} MB")
    print("\nThis project less the engine, on the sample: median, and 90th percentile without sign")
    print(f"decode   {sweep.decode_median_percent:+6.2f} %  {sweep.decode_p90_percent:6.2f} %")
    print(f"prefill  {sweep.prefill_median_percent:+6.2f} %  {sweep.prefill_p90_percent:6.2f} %")
    print("\nBars")
    for met, text in sweep.bars:
        print(f"{'met' if met else 'MISSED':<6}  {text}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000, help="models, all different (default: %(default)s)")
    parser.add_argument("--sample", type=int, default=150, help="of these for the engine (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    options = parser.parse_args(arguments)
    if not 1 <= options.cases <= 1_000_000 or not 1 <= options.sample <= options.cases:
        parser.error("--cases must be between 1 and 1000000, --sample between 1 and --cases")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return 1 where a bar is missed."""
    options = parse(arguments)
    require_tables()
    sweep = measure(options.cases, options.sample)
    setting = {"package": f"{PACKAGE} {version()}", "trtllm": load_assumptions(GPU).release}
    if options.json:
        bars = [{"met": met, "text": text} for met, text in sweep.bars]
        print(json.dumps({**setting, **asdict(sweep), "ratio": sweep.ratio, "bars": bars}, indent=2))
    else:
        print(f"{setting['package']}, rows of TensorRT-LLM {setting['trtllm']}")
        print_table(sweep)
    return 0 if all(met for met, _ in sweep.bars) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
