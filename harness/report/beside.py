"""Measured beside composed and modelled, as tables and in a line."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from harness.analysis.beside import Beside, Comparison
from harness.report.glossary import CATEGORIES
from harness.report.tables import Column, Table, place_text, table, without_empty
from harness.results.metrics import significant

TITLE = "Measured beside composed"
ABOUT = (
    "The same cases, measured and priced. Error is composed / measured - 1: above 0 the price is too high. A composed "
    "time has no gaps, no overlap and no host in it. Nowhere else do numbers of different provenance meet."
)


def beside_table(found: Comparison, systems: Mapping[str, str]) -> Table:
    """Each case: measured with its interval, composed, roofline, error."""
    columns = [
        Column("GPU"), Column("Variant"), Column("Case"), Column("Measured", "ms", numeric=True),
        Column("99 % interval", "ms", numeric=True), Column("Composed", "ms", numeric=True),
        Column("Error", "%", numeric=True), Column("Roofline", "ms", numeric=True),
        Column("Roofline / measured", "%", numeric=True), Column("Flags"), Column("Ran with"), Column("Priced with"),
    ]  # fmt: skip
    rows = [
        [
            systems.get(one.system, one.system),
            one.variant,
            place_text({"coordinates": one.coordinates, "series": one.series, "phase": one.phase}),
            significant(one.measured_ms),
            one.interval.text,
            "" if one.composed_ms is None else significant(one.composed_ms),
            "" if one.error_pct is None else signed(one.error_pct),
            "" if one.roofline_ms is None else significant(one.roofline_ms),
            "" if one.roofline_ms is None else f"{100 * one.roofline_ms / one.measured_ms:.0f}",
            ", ".join(one.flags),
            one.answered_with,
            one.priced_with,
        ]
        for one in found.cases
    ]
    return without_empty(table("Case by case", columns, rows, ABOUT))


def categories_table(found: Comparison, systems: Mapping[str, str]) -> Table:
    """Each category of ops: the median error over the cases, and the one farthest off."""
    columns = [
        Column("GPU"), Column("Phase"), Column("Ops"), Column("Cases", numeric=True),
        Column("Share of measured time", "%", numeric=True), Column("Error, median", "%", numeric=True),
        Column("Error, farthest off", "%", numeric=True),
    ]  # fmt: skip
    rows = [
        [
            systems.get(one.system, one.system),
            one.phase,
            CATEGORIES.get(one.category, one.category),
            str(one.cases),
            f"{one.measured_share_pct:.0f}",
            signed(one.median_pct),
            signed(one.most_pct),
        ]
        for one in found.categories
    ]
    about = "Ops that both sides have a time for, timed one by one."
    return table("Error of each category of ops", columns, rows, about)


def signed(pct: float) -> str:
    """`+4.1`, `-12.0`."""
    return f"{pct:+.1f}"


def summary_texts(found: Comparison, systems: Mapping[str, str]) -> list[str]:
    """`H200 decode: composed / measured - 1 is +4.1 % in the median of 8 cases, …`; one for each GPU and phase."""
    groups: dict[tuple[str, str], list[Beside]] = {}
    for one in found.cases:
        groups.setdefault((one.system, one.phase), []).append(one)
    return [
        f"{systems.get(system, system)} {phase}: {text}"
        for (system, phase), members in groups.items()
        if (text := _text(members))
    ]


def _text(members: list[Beside]) -> str:
    errors = [one.error_pct for one in members if one.error_pct is not None]
    cases = f"{len(members)} {'case' if len(members) == 1 else 'cases'}"
    if errors:
        median, most = signed(statistics.median(errors)), signed(max(errors, key=abs))
        return f"composed / measured - 1 is {median} % in the median of {cases}, {most} % in the one farthest off"
    limits = [100 * one.roofline_ms / one.measured_ms for one in members if one.roofline_ms is not None]
    return f"the roofline is {statistics.median(limits):.0f} % of measured in the median of {cases}" if limits else ""
