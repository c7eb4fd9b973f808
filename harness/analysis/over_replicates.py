"""Effects, cliffs, falls and plotted values of cases, with their intervals where the cases were repeated.

Priced cases pass through: their numbers have no scatter. Of repeated ones every number is the median over replicates,
a ratio is taken inside each replicate, and a cliff or a fall whose interval holds no change at all is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from harness.analysis.cliffs import Cliff, cliffs
from harness.analysis.effect_lines import EffectLine, effect_lines
from harness.analysis.effects import TOTAL, effects
from harness.analysis.falls import Fall, falls
from harness.analysis.frame import observations
from harness.analysis.intervals import Estimate, Interval, estimate, replicates_text
from harness.analysis.replicates import Cases, has_replicates
from harness.analysis.words import number
from harness.spec.axes import Scalar
from harness.spec.claims import Quantity
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

Values = Mapping[str, Mapping[int, float]]

#: What `effects_of_cases` adds to the columns of `harness.analysis.effects.effects`.
INTERVAL_COLUMNS = ("ratio_low", "ratio_high", "baseline_low_ms", "baseline_high_ms", "replicates")


def observations_of_cases(study: Study, cases: Cases, quantity: Quantity) -> pd.DataFrame:
    """`harness.analysis.frame.observations`, with `low`, `high` and `replicates` where the cases were repeated."""
    table = observations((cases.records, cases.ops), study, quantity)
    if not has_replicates(cases.records):
        return table
    found = cases.intervals(study, quantity)
    intervals = [found.get(one, Interval(math.nan, math.nan, 1)) for one in table["attempt_id"]]
    return table.assign(
        low=[one.low for one in intervals],
        high=[one.high for one in intervals],
        replicates=[one.replicates for one in intervals],
    )


def effects_of_cases(study: Study, cases: Cases) -> pd.DataFrame:
    """`harness.analysis.effects.effects`, with `INTERVAL_COLUMNS` where the cases were repeated."""
    table = effects(study, cases.records, cases.ops)
    if not has_replicates(cases.records) or table.empty:
        return table
    quantity = {part: Quantity() if part == TOTAL else Quantity(category=part) for part in table["part"].unique()}
    values = {part: cases.values(study, one) for part, one in quantity.items()}
    found = [_with_interval(row, values[row["part"]]) for row in table.to_dict("records")]
    return table.assign(**{name: [row[name] for row in found] for name in ("ratio", *INTERVAL_COLUMNS)})


def _with_interval(row: Mapping[str, Any], values: Values) -> dict[str, float]:
    ratio = ratio_of(values, row["attempt_id"], row["baseline_attempt_id"])
    base = estimate([math.log(value) for value in values[row["baseline_attempt_id"]].values()]).factors
    interval = ratio.factors if ratio else Interval(math.nan, math.nan, 1)
    central = math.exp(ratio.mean) if ratio else row["ratio"]
    ends = (interval.low, interval.high, base.low, base.high, interval.replicates)
    return {"ratio": central, **dict(zip(INTERVAL_COLUMNS, ends, strict=True))}


def ratio_of(values: Values, over: str, under: str) -> Estimate | None:
    """Logarithm of one case over another, replicate by replicate; None where they have no replicate in common."""
    one, other = values.get(over, {}), values.get(under, {})
    logs = [math.log(one[replicate] / other[replicate]) for replicate in one if replicate in other]
    return estimate(logs) if logs else None


@dataclass(frozen=True, slots=True)
class MeasuredEffectLine(EffectLine):
    """A line of effects with the interval of each ratio."""

    intervals: tuple[tuple[Scalar, float | None, float | None], ...] = ()
    """Value, least and most that its ratio may be; nulls for one replicate."""
    replicates: int = 1

    @property
    def best(self) -> Scalar | None:
        """The value with the least time, if it and the baseline surely differ."""
        best = super(MeasuredEffectLine, self).best
        surely = [value for value, low, high in self.intervals if low and high and not low <= 1 <= high]
        return best if best in surely or (best == self.baseline and surely) else None

    @property
    def text(self) -> str:
        """As that of priced rows, and the intervals behind it."""
        known = [f"{number(low)} to {number(high)} at {value}" for value, low, high in self.intervals if low and high]
        said = super(MeasuredEffectLine, self).text
        if self.best is None:
            said = said.replace("all within 1 %", "no difference is sure")
        if not known:
            return f"{said}, {replicates_text(self.replicates)}"
        return f"{said}, 99 % intervals over {replicates_text(self.replicates)} {', '.join(known)}"


def effect_lines_of_cases(table: pd.DataFrame) -> list[EffectLine]:
    """`harness.analysis.effect_lines.effect_lines` of what `effects_of_cases` returns."""
    lines = effect_lines(table)
    if "ratio_low" not in table.columns:
        return lines
    whole = table[table["part"] == TOTAL].to_dict("records")
    return [_measured_line(line, whole) for line in lines]


def _measured_line(line: EffectLine, rows: Iterable[Mapping[str, Any]]) -> MeasuredEffectLine:
    names = ("series", "system", "phase", "axis", "where")
    here = [row for row in rows if all(row[name] == getattr(line, name) for name in names)]
    ends = tuple((row["value"], _or_none(row["ratio_low"]), _or_none(row["ratio_high"])) for row in here)
    same = {field.name: getattr(line, field.name) for field in fields(EffectLine)}
    return MeasuredEffectLine(**same, intervals=ends, replicates=int(min(row["replicates"] for row in here)))


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCliff(Cliff):
    """A cliff in repeated cases."""

    factor_low: float | None
    """Least that `factor` may be; null for one replicate."""
    factor_high: float | None
    replicates: int

    @property
    def size_text(self) -> str:
        """`×40.2 (38.1 to 42.4)`, or with how many replicates there are."""
        said = super(MeasuredCliff, self).size_text
        if self.factor_low is None or self.factor_high is None:
            return f"{said} ({replicates_text(self.replicates)})"
        by = 1.0 if self.same_work else self.explained
        return f"{said} ({number(self.factor_low / by)} to {number(self.factor_high / by)})"


def cliffs_of_cases(study: Study, cases: Cases) -> list[Cliff]:
    """`harness.analysis.cliffs.cliffs`; of repeated cases those of which replicates are sure, or of one replicate."""
    found = cliffs(study, cases.records, cases.ops)
    if not has_replicates(cases.records):
        return found
    made = [_measured_cliff(study, cases, one) for one in found]
    return [one for one in made if one.factor_low is None or one.factor_low > one.explained]


def _measured_cliff(study: Study, cases: Cases, cliff: Cliff) -> MeasuredCliff:
    low, high, replicates = _step(study, cases, cliff.op, cliff.attempt_ids[1], cliff.attempt_ids[0])
    same = {field.name: getattr(cliff, field.name) for field in fields(Cliff)}
    return MeasuredCliff(**same, factor_low=low, factor_high=high, replicates=replicates)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFall(Fall):
    """A fall in repeated cases."""

    ratio_low: float | None
    """Least that the time with more work over that with less may be; null for one replicate."""
    ratio_high: float | None
    replicates: int

    @property
    def text(self) -> str:
        """As that of priced rows, and its interval."""
        said = super(MeasuredFall, self).text
        if self.ratio_low is None or self.ratio_high is None:
            return f"{said} ({replicates_text(self.replicates)})"
        least, most = 100 * (1 - self.ratio_high), 100 * (1 - self.ratio_low)
        return f"{said} ({least:.0f} to {most:.0f} % over {replicates_text(self.replicates)})"


def falls_of_cases(study: Study, cases: Cases, known: Iterable[Cliff]) -> list[Fall]:
    """`harness.analysis.falls.falls`; of repeated cases those of which replicates are sure, or of one replicate."""
    found = falls(study, cases.records, cases.ops, known)
    if not has_replicates(cases.records):
        return found
    made = [_measured_fall(study, cases, one) for one in found]
    return [one for one in made if one.ratio_high is None or one.ratio_high < 1]


def _measured_fall(study: Study, cases: Cases, fall: Fall) -> MeasuredFall:
    low, high, replicates = _step(study, cases, fall.op, fall.attempt_ids[1], fall.attempt_ids[0])
    same = {field.name: getattr(fall, field.name) for field in fields(Fall)}
    return MeasuredFall(**same, ratio_low=low, ratio_high=high, replicates=replicates)


def _step(study: Study, cases: Cases, op: str, over: str, under: str) -> tuple[float | None, float | None, int]:
    """From where to where the time of an op in one case over that in another may lie, and over how many replicates."""
    found = ratio_of(cases.values(study, Quantity(op=op, measure="time_us")), over, under)
    if found is None or found.count < 2:
        return None, None, 1
    return found.factors.low, found.factors.high, found.count
