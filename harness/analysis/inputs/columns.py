"""Which column of a table is what, by `harness/data/result_columns.yaml`.

Columns that nobody lists are part of the question, so that no difference in what was asked is ever overlooked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness.analysis.inputs.results import Figure
from harness.errors import UsageError
from harness.files import read_yaml
from harness.results.metrics import METRICS, Direction

COLUMNS_FILE = Path(__file__).resolve().parents[2] / "data" / "result_columns.yaml"


@dataclass(frozen=True, slots=True)
class Options:
    """What a user says about the columns of a table."""

    environment: tuple[str, ...] = ()
    """Columns that were found in place and are not part of the question."""
    metrics: Mapping[str, Direction] = field(default_factory=dict)
    """Columns that are judged, with which way is better."""

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Columns that are named here and occur in none of `names`."""
        present = {normal(name) for name in names}
        return [name for name in (*self.environment, *self.metrics) if normal(name) not in present]


NO_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Roles:
    """What each column of a table is; every column is in exactly one of these."""

    figures: tuple[Figure, ...]
    status: str | None
    reason: str | None
    replicate: str | None
    flags: str | None
    started: str | None
    sm_clock_mhz: str | None
    attempt_id: str | None
    about: tuple[str, ...]
    environment: tuple[str, ...]
    identity: tuple[str, ...]


def normal(name: str) -> str:
    """A column's name on one line, without case."""
    return " ".join(str(name).split()).lower()


def roles_of(names: Sequence[str], where: str, options: Options = NO_OPTIONS) -> Roles:
    """Return what each column is.

    Raises UsageError, all findings at once: a column without a name, two of one name, two for one metric or role, a
    measure without a unit, options that contradict each other.
    """
    table = column_table()
    findings = [f"{where}: column {number} has no name" for number, name in enumerate(names, 1) if not normal(name)]
    findings += [f"{where}: the column {name!r} is there twice" for name in _twice(filter(None, map(normal, names)))]
    named = {normal(name) for name in options.environment}
    asked = {normal(name): direction for name, direction in options.metrics.items()}
    findings += [
        f"--environment {name} and --metric {name}={asked[name]}: a column is one or the other"
        for name in sorted(named & set(asked))
    ]
    environment = {name for row in table["environment"] for name in row} | named
    taken: dict[str, str] = {}
    figures: list[Figure] = []
    about: list[str] = []
    found: list[str] = []
    identity: list[str] = []
    for name in dict.fromkeys(map(normal, names)):
        figure = figure_of(name, asked) if name not in named else None
        role = None if name in named or figure else _role(name)
        if figure:
            figures.append(figure)
        elif role:
            findings += (
                [f"{where}: {taken[role]} and {name} both are the {role}; leave one out"] if role in taken else []
            )
            taken[role] = name
        elif name not in named and _lacks_unit(name):
            findings.append(f"{where}: {name} has no unit; call it {_with_unit(name)}")
        else:
            of = about if name in table["about"] and name not in named else found if name in environment else identity
            of.append(name)
    findings += [
        f"{where}: {' and '.join(one.column for one in figures if one.name == name)} both are {name}; leave one out"
        for name in _twice(one.name for one in figures)
    ]
    if findings:
        raise UsageError(*findings)
    single = {role: taken.get(role) for role in _ROLES}
    return Roles(
        figures=tuple(figures), **single, about=tuple(about), environment=tuple(found), identity=tuple(identity)
    )


_ROLES = ("status", "reason", "replicate", "flags", "started", "sm_clock_mhz", "attempt_id")


def _role(name: str) -> str | None:
    table = column_table()
    listed = {role: table[role]["columns"] if role == "status" else table[role] for role in _ROLES}
    return next((role for role, names in listed.items() if name in names), None)


def figure_of(name: str, asked: Mapping[str, Direction] | None = None) -> Figure | None:
    """The figure that a column holds, or None."""
    if asked and name in asked:
        return Figure(name, name, "", asked[name], name)
    table = column_table()
    if name in table["rates"]:
        metric = METRICS[table["rates"][name]]
        return Figure(name, metric.title if metric.name == name else name, metric.unit, "higher", name)
    match = _times().fullmatch(name)
    if not match:
        return None
    found = {key.rstrip("_123"): value for key, value in match.groupdict().items() if value}
    statistic = f"_{found['statistic']}" if "statistic" in found else ""
    if statistic == "_std":
        return None
    canonical = f"{found['stem']}{statistic}_ms"
    title = METRICS[canonical].title if canonical in METRICS else canonical.removesuffix("_ms").replace("_", " ")
    return Figure(canonical, title, "ms", "lower", name, float(table["times"]["units"][found["unit"]]))


def _lacks_unit(name: str) -> bool:
    return name in column_table()["unitless"] or bool(_unitless_times().fullmatch(name))


def _with_unit(name: str) -> str:
    if name in column_table()["unitless"]:
        return "tok_per_s, tok_s_per_gpu, tok_s_per_user, requests_per_s or gb_per_s, whichever it is"
    return f"{name}_ms or {name}_s, whichever it is"


def _twice(names: Iterable[str]) -> list[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]


@cache
def column_table() -> dict[str, Any]:
    """The table of columns."""
    data = read_yaml(COLUMNS_FILE)
    assert isinstance(data, dict)
    return data


@cache
def _times() -> re.Pattern[str]:
    times = column_table()["times"]
    stem, unit, statistic = ("|".join(map(re.escape, times[name])) for name in ("stems", "units", "statistics"))
    return re.compile(
        rf"(?:(?P<stem_1>{stem})(?:_(?P<statistic_1>{statistic}))?_(?P<unit_1>{unit}))"
        rf"|(?:(?P<statistic_2>{statistic})_(?P<stem_2>{stem})_(?P<unit_2>{unit}))"
        rf"|(?:(?P<stem_3>{stem})_(?P<unit_3>{unit})_(?P<statistic_3>{statistic}))"
    )


@cache
def _unitless_times() -> re.Pattern[str]:
    times = column_table()["times"]
    words = set(times["stems"]) - {"prefill", "decode", "step", "kernel", "op"}  # these are also words of questions
    stem, statistic = "|".join(map(re.escape, sorted(words))), "|".join(times["statistics"])
    return re.compile(rf"(?:(?:{stem})(?:_(?:{statistic}))?)|(?:(?:{statistic})_(?:{stem}))")
