"""Tables as plain objects: the page, Markdown and the terminal all print the same ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.claims import Verdict
from harness.analysis.cliffs import Cliff
from harness.analysis.intervals import Interval, replicates_text
from harness.analysis.over_replicates import MeasuredCliff
from harness.report.glossary import STATUSES, flag_meaning, short_name
from harness.report.values import text
from harness.results.metrics import significant

if TYPE_CHECKING:
    import pandas as pd


#: What makes two rows the same case, asked once.
_CASE = ("run_id", "case_id", "series", "coordinates", "level", "level_ops")

#: Longer texts wrap.
_SENTENCE = 44


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `unit` is printed beside the title and holds for every cell."""

    title: str
    unit: str = ""
    numeric: bool = False

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True, slots=True)
class Cell:
    """A printed value. `tone` names a shade that repeats what the text says, never more than it."""

    text: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows with a title and the line above it that says what all rows are about."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    about: str = ""

    @property
    def wide(self) -> tuple[bool, ...]:
        """For each column whether some cell holds a sentence, which wraps."""
        return tuple(any(len(row[index].text) > _SENTENCE for row in self.rows) for index in range(len(self.columns)))


def table(title: str, columns: Iterable[Column], rows: Iterable[Iterable[str | Cell]], about: str = "") -> Table:
    """A table from texts or cells."""
    cells = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows)
    return Table(title, tuple(columns), cells, about)


def claims_table(verdicts: Sequence[Verdict], systems: Mapping[str, str]) -> Table:
    """Each claim on each GPU: the verdict, the numbers it rests on, the threshold."""
    columns = [
        Column("Guideline"), Column("GPU"), Column("Verdict"), Column("Number"), Column("Finding"), Column("Threshold"),
    ]  # fmt: skip
    rows: list[list[str | Cell]] = [
        [
            verdict.guideline,
            systems.get(verdict.system, verdict.system),
            Cell(verdict.verdict, verdict.verdict.replace(" ", "-")),
            verdict.key,
            verdict.finding,
            verdict.threshold,
        ]
        for verdict in verdicts
    ]
    return table("Verdicts", columns, rows)


def cliffs_table(cliffs: Sequence[Cliff], systems: Mapping[str, str]) -> Table:
    """Where a case breaks from its neighbours: edge, op, the times on both sides, what its work explains."""
    columns = [
        Column("GPU"), Column("Series"), Column("Phase"), Column("Edge"), Column("At"), Column("QH:KH heads"),
        Column("Op"), Column("Before", "ms", numeric=True), Column("After", "ms", numeric=True),
        Column("After / before", "×", numeric=True), Column("99 % interval", "×", numeric=True),
        Column("Its work explains", "×", numeric=True),
        Column("Size", "×", numeric=True),
    ]  # fmt: skip
    rows = [
        [
            systems.get(cliff.system, cliff.system),
            cliff.series,
            cliff.phase,
            f"{short_name(cliff.axis)} ({text(cliff.low)}, {text(cliff.high)}]",
            cliff.where,
            "" if cliff.heads[0] == cliff.heads[1] else f"{cliff.heads[0]} → {cliff.heads[1]}",
            cliff.op,
            significant(cliff.time_ms_low),
            significant(cliff.time_ms_high),
            significant(cliff.factor, 3),
            _factor_interval(cliff),
            significant(cliff.explained, 3),
            significant(cliff.size, 3),
        ]
        for cliff in cliffs
    ]
    about = "Size is time after / before at equal work, else what of it the work does not explain."
    return without_empty(table("Cliffs", columns, rows, about))


def _factor_interval(cliff: Cliff) -> str:
    """From where to where the factor may lie; nothing for priced rows."""
    if not isinstance(cliff, MeasuredCliff):
        return ""
    if cliff.factor_low is None or cliff.factor_high is None:
        return replicates_text(cliff.replicates)
    return Interval(cliff.factor_low, cliff.factor_high, cliff.replicates).text


def not_ok_table(records: pd.DataFrame, systems: Mapping[str, str]) -> Table:
    """Rows without a number, those with the same reason on the same GPU together."""
    columns = [
        Column("Status"), Column("Study"), Column("GPU"), Column("Cases", numeric=True), Column("At"), Column("Reason"),
    ]  # fmt: skip
    name = _study_name(records)
    places: dict[tuple[str, str, str, str], list[str]] = {}
    cases: dict[tuple[str, str, str, str], set[tuple[str, ...]]] = {}
    for row in records[records["status"] != "ok"].to_dict("records"):
        reason = text(row["reason"]) or STATUSES[row["status"]]
        key = (row["status"], name(row), systems.get(row["system"], text(row["system"])), reason)
        places.setdefault(key, []).append(place_text(row))
        cases.setdefault(key, set()).add(tuple(str(row[name]) for name in _CASE))
    rows: list[list[str | Cell]] = [
        [Cell(key[0], f"status-{key[0]}"), *key[1:3], str(len(cases[key])), "; ".join(dict.fromkeys(where)), key[3]]
        for key, where in places.items()
    ]
    return table("Rows without a number", columns, rows, "Never drawn and never part of a statistic.")


def flags_table(records: pd.DataFrame) -> Table:
    """Every flag among the ok rows, what it means and where it occurs."""
    name = _study_name(records)
    counts: dict[str, dict[str, int]] = {}
    for row in records[records["status"] == "ok"].to_dict("records"):
        for flag in row["flags"]:
            study = counts.setdefault(flag, {})
            study[name(row)] = study.get(name(row), 0) + 1
    columns = [Column("Flag"), Column("Meaning"), Column("Rows", numeric=True), Column("In")]
    rows: list[list[str | Cell]] = []
    for flag, studies in sorted(counts.items()):
        where = ", ".join(f"{count} in {study}" for study, count in studies.items())
        rows.append([Cell(flag, "flag"), flag_meaning(flag), str(sum(studies.values())), where])
    return table("Flags", columns, rows)


def _study_name(records: pd.DataFrame) -> Callable[[Mapping[str, Any]], str]:
    """How a row names its study: with its provenance where the rows have several."""
    if len(set(records["provenance"])) > 1:
        return lambda row: f"{row['study']} ({row['provenance']})"
    return lambda row: str(row["study"])


def environment_table(environment: Mapping[str, Any]) -> Table:
    """What a run ran on and with, nested facts by dotted names."""
    return table("Environment", [Column("Fact"), Column("Value")], _flat(environment, ""))


def _flat(facts: Mapping[str, Any], prefix: str) -> list[list[str]]:
    rows: list[list[str]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else text(value)
            rows.append([f"{prefix}{name}", shown])
    return rows


def place_text(record: Mapping[str, Any]) -> str:
    """Where a record lies: its phase and its coordinates."""
    place = json.loads(record["coordinates"])
    parts = [f"{short_name(name)} {text(value)}" for name, value in place.items()]
    return " ".join(part for part in (record["series"], record["phase"], ", ".join(parts)) if part)


def without_empty(whole: Table) -> Table:
    """The table without columns in which nothing stands."""
    used = [i for i in range(len(whole.columns)) if any(row[i].text for row in whole.rows)]
    rows = tuple(tuple(row[i] for i in used) for row in whole.rows)
    return Table(whole.title, tuple(whole.columns[i] for i in used), rows, whole.about)
