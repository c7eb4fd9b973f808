"""What is said of served rows, group by group, and whether the aims are met."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from end_to_end_engine import EngineTimes, WholeModelEngine
from end_to_end_prices import Prices, Unpriced
from end_to_end_rows import SHAPES, ServedRow, by_group
from end_to_end_serving import Serving, ask_all, serve

Group = tuple[str, str, str]

#: Mean absolute error in per cent, at most: of TPOT, which must not exceed the engine's either, and of TTFT.
AIMS: dict[Group, tuple[float, float | None]] = {
    ("Llama-3.1-70B", "b200_sxm", "fp8"): (6.0, 25.0),
    ("Llama-3.1-70B", "h200_sxm", "fp8"): (6.0, 25.0),
    ("Llama-3.1-70B", "b200_sxm", "fp4"): (10.0, 25.0),
    ("Qwen3-32B", "h100_sxm", "fp8"): (10.0, None),
}

KINDS = ("with an aim", "other dense models", "mixture of experts")


@dataclass(frozen=True)
class Errors:
    """Relative errors in per cent of what was measured: mean of the absolute, median of the signed."""

    mape_percent: float
    bias_percent: float

    @classmethod
    def of(cls, priced_ms: Iterable[float], measured_ms: Iterable[float]) -> Errors:
        signed = [(priced / measured - 1) * 100 for priced, measured in zip(priced_ms, measured_ms, strict=True)]
        if not signed:
            return cls(float("nan"), float("nan"))
        return cls(statistics.fmean(map(abs, signed)), statistics.median(signed))

    def __str__(self) -> str:
        return f"{self.mape_percent:.1f}/{self.bias_percent:+.1f}"


@dataclass(frozen=True)
class PricedRow:
    """One row and what is said of it. `engine` is None where the engine has no answer."""

    row: ServedRow
    tpot_ms: float
    ttft_ms: float
    extrapolated: bool
    engine: EngineTimes | None


@dataclass(frozen=True)
class GroupResult:
    """Rows of one model, GPU and precision; errors are over those that both sides price.

    Where the engine prices none, this project's are over its own.
    """

    group: Group
    rows: int
    priced: tuple[PricedRow, ...]
    reasons: Counter[str]
    """Why the others have no price."""

    @property
    def kind(self) -> str:
        """With an aim, dense or with experts."""
        if self.group in AIMS:
            return KINDS[0]
        return KINDS[2] if "experts" in SHAPES.get(self.group[0], {"experts": None}) else KINDS[1]

    @property
    def both(self) -> list[tuple[PricedRow, EngineTimes]]:
        """Rows that both price."""
        return [(one, one.engine) for one in self.priced if one.engine]

    @property
    def compared(self) -> list[PricedRow]:
        """Rows that errors are over."""
        return [one for one, _ in self.both] or list(self.priced)

    @property
    def tpot(self) -> Errors:
        return Errors.of((one.tpot_ms for one in self.compared), (one.row.tpot_ms for one in self.compared))

    @property
    def ttft(self) -> Errors:
        return Errors.of((one.ttft_ms for one in self.compared), (one.row.ttft_ms for one in self.compared))

    @property
    def engine_tpot(self) -> Errors:
        return Errors.of((engine.tpot_ms for _, engine in self.both), (one.row.tpot_ms for one, _ in self.both))

    @property
    def engine_ttft(self) -> Errors:
        return Errors.of((engine.ttft_ms for _, engine in self.both), (one.row.ttft_ms for one, _ in self.both))


@dataclass(frozen=True)
class Aim:
    """One verdict."""

    group: Group
    met: bool
    text: str


def price_rows(
    rows: Sequence[ServedRow], without: Collection[str], prices: Prices, engine: WholeModelEngine
) -> list[GroupResult]:
    """Price all rows with all corrections but some; the engine is asked for what this project prices."""
    servings = {row.row_id: serve(row, without) for row in rows}
    ask_all((one for one in servings.values() if not isinstance(one, str)), prices)
    results = []
    for group, members in by_group(rows).items():
        answers = [_price(row, servings[row.row_id], prices, engine) for row in members]
        priced = tuple(answer for answer in answers if isinstance(answer, PricedRow))
        reasons = Counter(answer for answer in answers if isinstance(answer, str))
        results.append(GroupResult(group, len(members), priced, reasons))
    return sorted(results, key=lambda result: KINDS.index(result.kind))


def _price(row: ServedRow, serving: Serving | str, prices: Prices, engine: WholeModelEngine) -> PricedRow | str:
    """One row, or why it has no price."""
    if isinstance(serving, str):
        return serving
    try:
        tpot_ms, ttft_ms = serving.tpot_ms(prices), serving.ttft_ms(prices)
    except Unpriced as reason:
        return str(reason)
    return PricedRow(row, tpot_ms, ttft_ms, prices.extrapolated(*serving.tpot_asks), engine.times(row))


def judge(results: Iterable[GroupResult]) -> list[Aim]:
    """The verdicts; a group with an aim must also be priced whole."""
    aims = []
    for result in results:
        if result.group not in AIMS:
            continue
        tpot_percent, ttft_percent = AIMS[result.group]
        tpot, engine, ttft = result.tpot.mape_percent, result.engine_tpot.mape_percent, result.ttft.mape_percent
        text = f"TPOT {tpot:.1f} %: at most {tpot_percent:g} %, not above the engine's {engine:.1f} %"
        whole = len(result.both) == result.rows
        aims.append(Aim(result.group, whole and tpot <= min(tpot_percent, engine), text))
        if ttft_percent is not None:
            theirs = result.engine_ttft.mape_percent
            text = f"TTFT {ttft:.1f} %: at most {ttft_percent:g} % (the engine: {theirs:.1f} %)"
            aims.append(Aim(result.group, whole and ttft <= ttft_percent, text))
    return aims
