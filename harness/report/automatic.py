"""Plots of a study that draws none itself: the time of each phase over each of its axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from harness.analysis.frame import PLACE
from harness.report.glossary import short_name
from harness.report.values import is_number
from harness.results.metrics import METRICS, time_column
from harness.spec.study import Plot, Study

if TYPE_CHECKING:
    import pandas as pd

#: More lines than this cannot be told apart.
_MOST_LINES = 8
_FACTS = frozenset(
    {"attempt_id", "case_id", "status", "reason", "provenance", "worst_source", "flags", "layers", "heads", *PLACE}
)


def automatic_plots(study: Study, rows: pd.DataFrame) -> list[Plot]:
    """One plot for each phase and axis with two values or more; without axes, for each workload field that moves.

    `rows` are those of `harness.analysis.frame.placed`, of any status. Axes of numbers come first.
    """
    ok = rows[rows["status"] == "ok"]
    named = list(dict.fromkeys(axis for part in study.parts for axis in part.axes if axis in ok.columns))
    axes = named or [name for name in ok.columns if name not in _FACTS]
    plots = []
    for axis in sorted(axes, key=lambda name: not _numeric(ok[name])):
        for phase, here in ok[ok[axis].notna()].groupby("phase", sort=False):
            if _moves(here, axis):
                plots.append(_plot(axis, str(phase), here))
    return plots


def _plot(axis: str, phase: str, rows: pd.DataFrame) -> Plot:
    others = [name for name in rows.columns if name not in {*_FACTS, axis} and _moves(rows, name)]
    lines = max(others, key=lambda name: int(rows[name].nunique()), default="")
    where: dict[str, Any] = {"phase": phase}
    spare = [*(["series"] if _moves(rows, "series") else []), *(name for name in others if name != lines)]
    if spare and len(rows[[*spare, lines]].drop_duplicates()) > _MOST_LINES:
        most = max(rows.groupby(spare, sort=False, dropna=False), key=lambda group: len(group[1]))[1].iloc[0]
        where |= {name: most[name] for name in spare if most[name] is not None}
    return Plot(
        title=f"{METRICS[time_column(phase)].title} over {short_name(axis)}",
        x=axis,
        lines=lines,
        panels="system",
        where=where,
        x_scale=_scale(rows[axis]),
    )


def _moves(rows: pd.DataFrame, name: str) -> bool:
    return len(set(rows[name].dropna())) > 1


def _numeric(values: pd.Series) -> bool:
    return all(is_number(value) for value in values.dropna())


def _scale(values: pd.Series) -> Literal["log2", "linear", "category"]:
    if not _numeric(values):
        return "category"
    return "log2" if min(values) > 0 and max(values) >= 4 * min(values) else "linear"
