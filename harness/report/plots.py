"""Plots of a study: plain plotly.js figures, one for each panel, with one legend for all of them.

A line is one value of `lines`; what is priced from measurements is drawn through, the roofline is a second, dashed line
in the same colour. Nothing is averaged: where a plot leaves coordinates open, every combination gets a line of its own.
Only `ok` rows are drawn; bars on what was repeated are its 99 % interval. Colours are those of the light scheme; `meta`
of a trace holds both, and the page swaps them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.cliffs import Cliff
from harness.analysis.edges import Edge, edges
from harness.analysis.intervals import Interval, replicates_text
from harness.report import lines, scales
from harness.report.glossary import axis_title
from harness.report.palette import Ink, inks
from harness.report.values import is_null, is_number, text
from harness.results.metrics import METRICS, significant, time_column
from harness.spec.claims import Quantity
from harness.spec.study import Level, Plot

if TYPE_CHECKING:
    import pandas as pd

#: Level → what an axis title adds to the name of a phase's time.
_OF_LEVEL: dict[Level, str] = {
    "op": ", these ops alone", "layer": ", decoder layers", "model": "", "serve": ", served requests",
}  # fmt: skip
#: Characters that fit beside a plot.
_LONG_TITLE = 28
_CLIFF_INK = "#d9480f"
_CLIFF_FILL = "rgba(217,72,15,0.10)"


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    label: str
    ink: Ink


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure as plain data: {data, layout}."""

    title: str
    figure: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture of a study: panels side by side with a common legend and common axes."""

    title: str
    subtitle: str
    """What all its rows have in common."""
    provenance: str
    keys: tuple[Key, ...]
    panels: tuple[Panel, ...]
    missing: int
    """Rows of it that have no number and are not drawn."""
    has_roofline: bool
    has_flags: bool
    has_cliffs: bool
    has_intervals: bool = False


def build_chart(
    plot: Plot,
    observations: pd.DataFrame,
    unanswered: pd.DataFrame,
    level: Level,
    provenance: str,
    systems: Mapping[str, str],
    cliffs: Sequence[Cliff] = (),
) -> Chart | None:
    """Return the chart of `plot`, or None where no row belongs to it.

    `observations` is what `harness.analysis.frame.observations` gives for the quantity of the plot: one row for each
    ok case. `unanswered` are the rows without a number, with the same coordinates: they are counted, not drawn.
    `systems` names the GPUs by their keys.
    """
    frame = lines.kept(observations[observations["value"].notna()], plot)
    if frame.empty:
        return None
    bands = [cliff for cliff in cliffs if _is_of(cliff, plot, frame)]
    frame = frame.assign(system=[systems.get(key, key) for key in frame["system"]])
    frame, unit = _readable(frame, plot)
    columns = lines.line_columns(frame, plot)
    keys = _keys(frame, plot, columns)
    axes = _axes(frame, plot, level, unit)
    panels = []
    panel_columns = [plot.panels] if plot.panels in frame.columns else []
    for value, part in lines.split(frame, panel_columns):
        traces = [
            trace
            for place, rows in sorted(lines.split(part, columns), key=lambda item: list(keys).index(item[0]))
            for trace in _line_traces(rows, plot, unit, keys[place], list(keys).index(place), provenance)
        ]
        here = [band for band in bands if plot.panels != "system" or systems.get(band.system, band.system) == value[0]]
        figure = {"data": traces, "layout": _layout(axes, here, plot.y.op)}
        panels.append(Panel(lines.line_label(panel_columns, value), figure))
    return Chart(
        title=plot.title,
        subtitle=lines.common(frame, {plot.x, plot.panels, *columns}),
        provenance=provenance,
        keys=tuple(keys.values()),
        panels=tuple(panels),
        missing=len(lines.kept(unanswered, plot)),
        has_roofline=provenance != "modelled" and bool(frame["roofline"].notna().any()),
        has_flags=any(len(flags) for flags in frame["flags"]),
        has_cliffs=any(panel.figure["layout"].get("shapes") for panel in panels),
        has_intervals=bool(_ends(frame)),
    )


def _keys(frame: pd.DataFrame, plot: Plot, columns: list[str]) -> dict[tuple[Any, ...], Key]:
    """The legend: one entry for each line, in order of size where lines are values of one number."""
    places = [place for place, _ in lines.split(frame, columns)]
    ordered = columns == [plot.lines] and all(is_number(place[0]) for place in places)
    if ordered:
        places.sort()
    drawn = inks(len(places), ordered=ordered)
    return {place: Key(lines.line_label(columns, place), ink) for place, ink in zip(places, drawn, strict=True)}


def _readable(frame: pd.DataFrame, plot: Plot) -> tuple[pd.DataFrame, str]:
    """The frame in the unit that is easiest to read, the same for every panel."""
    unit = METRICS[plot.y.measure].unit
    factor, better = scales.readable_unit(unit, frame["value"].tolist(), log=plot.y_scale == "log")
    numbers = frame.columns.intersection(["value", "roofline", "low", "high"])
    return (frame.assign(**{name: frame[name] * factor for name in numbers}) if factor != 1 else frame), better


def _axes(frame: pd.DataFrame, plot: Plot, level: Level, unit: str) -> dict[str, Any]:
    """Both axes, the same for every panel so that heights compare."""
    phases = frame["phase"].unique()
    heights = [*frame["value"].tolist(), *frame["roofline"].dropna().tolist(), *_ends(frame)]
    title = _in_lines(quantity_title(plot.y, str(phases[0]) if len(phases) == 1 else "", level, unit))
    is_log = plot.y_scale == "log" and min(heights) > 0
    return {
        "xaxis": _x_axis(frame[plot.x].unique().tolist(), plot),
        "yaxis": scales.log_axis(heights, title) if is_log else scales.linear_axis(heights, title),
    }


def _ends(frame: pd.DataFrame) -> list[float]:
    """Ends of intervals."""
    return [end for name in ("low", "high") if name in frame.columns for end in frame[name].dropna().tolist()]


def _in_lines(title: str) -> str:
    """A title longer than the axis that it stands beside, in two lines."""
    return title.replace(", ", ",<br>", 1) if len(title) > _LONG_TITLE else title


def _x_axis(values: list[Any], plot: Plot) -> dict[str, Any]:
    title = axis_title(plot.x)
    if plot.x_scale == "category" or not all(is_number(value) for value in values):
        return scales.category_axis([text(value) for value in values], title)
    if plot.x_scale == "log2" and min(values) > 0:
        return scales.log2_axis(values, title)
    return scales.linear_axis(values, title)


def _line_traces(
    rows: pd.DataFrame, plot: Plot, unit: str, key: Key, number: int, provenance: str
) -> list[dict[str, Any]]:
    """The line through the answers and, unless the answers are the roofline, the roofline below it."""
    if all(is_number(value) for value in rows[plot.x]):
        rows = rows.sort_values(plot.x, kind="stable")
    modelled = provenance == "modelled"
    answers = _trace(rows, plot, key, number, "value", dashed=modelled) | {
        "mode": "lines+markers",
        "text": [_hover(row, plot, unit, key.label, modelled=modelled) for row in rows.to_dict("records")],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "size": 8,
            "color": key.ink.light,
            "line": {"width": 1.5, "color": key.ink.light},
            "symbol": [f"{key.ink.symbol}-open" if len(flags) else key.ink.symbol for flags in rows["flags"]],
        },
        **_bars(rows),
    }
    limits = rows[rows["roofline"].notna()]
    if modelled or limits.empty:
        return [answers]
    roofline = _trace(limits, plot, key, number, "roofline", dashed=True)
    return [roofline | {"mode": "lines", "hoverinfo": "skip"}, answers]


def _bars(rows: pd.DataFrame) -> dict[str, Any]:
    """Bars over the intervals of repeated rows; of one replicate there is none to draw."""
    if not _ends(rows):
        return {}
    up, down = ((rows[a] - rows[b]).fillna(0.0).clip(lower=0.0) for a, b in (("high", "value"), ("value", "low")))
    return {"error_y": {"type": "data", "symmetric": False, "array": up.tolist(), "arrayminus": down.tolist()}}


def _trace(rows: pd.DataFrame, plot: Plot, key: Key, number: int, column: str, *, dashed: bool) -> dict[str, Any]:
    category = plot.x_scale == "category" or not all(is_number(value) for value in rows[plot.x])
    return {
        "type": "scatter",
        "name": key.label,
        "x": [text(value) for value in rows[plot.x]] if category else rows[plot.x].tolist(),
        "y": rows[column].tolist(),
        "line": {"color": key.ink.light, "width": 1.5 if dashed else 2.25, "dash": "6px,4px" if dashed else "solid"},
        "opacity": 0.8 if dashed else 1.0,
        "showlegend": False,
        "meta": {"key": number, "light": key.ink.light, "dark": key.ink.dark, "is": column},
    }


def _hover(row: Mapping[str, Any], plot: Plot, unit: str, label: str, *, modelled: bool) -> str:
    head = ", ".join(part for part in (label, f"{axis_title(plot.x).split(',')[0]} {text(row[plot.x])}") if part)
    told = [f"<b>{significant(row['value'])} {unit}</b>{' (roofline)' if modelled else ''}"]
    if "replicates" in row:
        interval = Interval(row["low"], row["high"], int(row["replicates"]))
        of = replicates_text(interval.replicates)
        told.append(f"99 % interval {interval.text} {unit}, {of}" if interval.is_known else of)
    if not modelled and not is_null(row["roofline"]):
        told.append(f"roofline {significant(row['roofline'])} {unit}")
    if not is_null(row["source"]):
        told.append(f"source: {row['source']}")
    if len(row["flags"]):
        told.append(f"flags: {', '.join(row['flags'])}")
    return "<br>".join([head, *told])


def _layout(axes: dict[str, Any], bands: Sequence[Cliff], op: str) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "height": 240,
        "margin": {"l": 58, "r": 12, "t": 14, "b": 42},
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        **axes,
    }
    found = edges(bands) if axes["xaxis"]["type"] != "category" else []
    shapes = [_band(edge) for edge in found]
    texts = [_band_text(edge, op, log=axes["xaxis"]["type"] == "log") for edge in found]
    return {**layout, "shapes": shapes, "annotations": texts} if found else layout


def _band(edge: Edge) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x", "yref": "paper", "x0": edge.low, "x1": edge.high, "y0": 0, "y1": 1,
        "fillcolor": _CLIFF_FILL, "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def _band_text(edge: Edge, op: str, *, log: bool) -> dict[str, Any]:
    """How large the cliff is, at the top of its band, and of which op unless the plot is of that one.

    On a logarithmic axis plotly.js takes exponents here.
    """
    shown = [cliff for cliff in edge.cliffs if cliff.same_work == edge.worst.same_work]
    least, most = (significant(end(cliff.size for cliff in shown), 3) for end in (min, max))
    beyond = "" if edge.worst.same_work else "<br>beyond<br>its work"
    return {
        "x": math.log10(edge.low * edge.high) / 2 if log else (edge.low + edge.high) / 2,
        "xref": "x", "y": 1, "yref": "paper", "yanchor": "top", "showarrow": False,
        "text": ("" if op else f"{edge.op.removeprefix('layer.')}<br>")
        + (f"×{most}" if least == most else f"×{least}–{most}")
        + beyond,
        "font": {"size": 11, "color": _CLIFF_INK},
    }  # fmt: skip


def _is_of(cliff: Cliff, plot: Plot, frame: pd.DataFrame) -> bool:
    """Whether a cliff lies on the axis of the plot, among its rows, and is one of its quantity."""
    if cliff.axis != plot.x or (plot.y.op and plot.y.op not in dict(cliff.ops)):
        return False
    drawn = set(frame["attempt_id"])
    return any(attempt in drawn for attempt in cliff.attempt_ids)


def quantity_title(quantity: Quantity, phase: str, level: Level, unit: str = "") -> str:
    """Title of an axis with its unit: `layer.attn.attention, one layer (µs)`, `Decode step, decoder layers (ms)`.

    `phase` is empty where rows of several are drawn; `level` is what a time of the whole phase is of; `unit` is that of
    the measure unless another is easier to read.
    """
    unit = unit or METRICS[quantity.measure].unit
    what = quantity.op or quantity.category
    if quantity.measure == "tok_s_per_gpu":
        return f"{METRICS['tok_s_per_gpu'].title} ({unit})"
    if quantity.measure in {"tflop_per_s", "gb_per_s"}:
        return f"{what or METRICS[quantity.measure].title} ({unit})"
    if not what:
        whole = METRICS[time_column(phase)].title if phase else "Time of the phase"
        return f"{whole}{_OF_LEVEL[level]} ({unit})"
    return f"{what}, one layer ({unit})" if quantity.measure == "time_us" else f"{what}, all layers ({unit})"
