"""Effects in one line each: what an axis does on one GPU at one workload, and which of its values is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.effects import TOTAL
from harness.analysis.words import number, symbol
from harness.results.metrics import significant
from harness.spec.axes import Scalar

if TYPE_CHECKING:
    import pandas as pd


_A_DIFFERENCE = 1.01


@dataclass(frozen=True, slots=True)
class EffectLine:
    """The time of a phase over one axis on one GPU, relative to the baseline of the axis."""

    series: str
    system: str
    phase: str
    axis: str
    where: str
    """The other coordinates: the workload at which the line is taken."""
    workloads: int
    """At how many workloads, this one included, the axis was compared."""
    baseline: Scalar
    baseline_ms: float
    ratios: tuple[tuple[Scalar, float], ...]
    """Value and its time over the baseline's, the baseline included; numbers in order of size."""

    @property
    def best(self) -> Scalar | None:
        """The value with the least time; None where all lie within 1 %."""
        value, least = min(self.ratios, key=lambda pair: pair[1])
        return value if max(ratio for _, ratio in self.ratios) >= _A_DIFFERENCE * least else None

    @property
    def text(self) -> str:
        """`G 8 takes 22.56 ms; 0.86× at 16, 0.80× at 32, 4.63× at 64; best: G 32 (decode, b 32, KVSL 8192)`."""
        axis = symbol(self.axis)
        ratios = ", ".join(f"{_ratio(ratio)}× at {value}" for value, ratio in self.ratios if value != self.baseline)
        place = ", ".join(part for part in (self.series, self.phase, self.where) if part)
        best = "all within 1 %" if self.best is None else f"best: {axis} {self.best}"
        others = f"; one of {self.workloads} workloads" if self.workloads > 1 else ""
        whole = f"{axis} {self.baseline} takes {significant(self.baseline_ms)} ms"
        return f"{whole}; {ratios}; {best} ({place}{others})"


def effect_lines(effects: pd.DataFrame) -> list[EffectLine]:
    """One line for each series, phase, axis and GPU of the frame that `harness.analysis.effects.effects` returns.

    Each is taken at one workload, the same on every GPU: the one with most values over all of them, of equals the
    longest at its baseline.
    """
    lines = []
    whole = effects[effects["part"] == TOTAL]
    for (series, phase, axis), group in whole.groupby(["series", "phase", "axis"], sort=False):
        by_place: dict[str, list[dict[str, Any]]] = {}
        for row in group.to_dict("records"):
            by_place.setdefault(row["where"], []).append(row)
        where = max(by_place, key=lambda place: (len(by_place[place]), max(r["baseline_ms"] for r in by_place[place])))
        for system in dict.fromkeys(row["system"] for row in by_place[where]):
            rows = [row for row in by_place[where] if row["system"] == system]
            lines.append(_line(str(series), str(phase), str(axis), system, len(by_place), rows))
    return lines


def _line(series: str, phase: str, axis: str, system: str, workloads: int, rows: list[dict[str, Any]]) -> EffectLine:
    first = rows[0]
    ratios: Mapping[Scalar, float] = {first["baseline"]: 1.0, **{row["value"]: row["ratio"] for row in rows}}
    ordered = list(ratios.items())
    if not any(isinstance(value, str) for value in ratios):
        ordered.sort(key=lambda pair: float(pair[0]))
    return EffectLine(
        series, system, phase, axis, first["where"], workloads, first["baseline"], first["baseline_ms"], tuple(ordered)
    )


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 10 else number(ratio)
