"""One side of a comparison, workload by workload: which rows have figures, and which failed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.analysis.compare.pairs import Values
from harness.analysis.inputs import Results, Workload


@dataclass
class Group:
    """The rows of one workload on one side."""

    ok: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)

    @property
    def was_asked(self) -> bool:
        return bool(self.ok or self.failed)


class Side:
    """Access to the rows of one input."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self._rows: dict[str, list[Any]] = {name: results.rows[name].tolist() for name in results.rows}
        self._values = {name: results.values[name].tolist() for name in results.values}
        self.groups: dict[Workload, Group] = {}
        for row, (code, status) in enumerate(zip(self._rows["workload"], self._rows["status"], strict=True)):
            group = self.groups.setdefault(results.workloads[code], Group())
            (group.ok if status == "ok" else group.left_out if status == "skipped" else group.failed).append(row)

    def provenance(self, group: Group) -> str:
        """What kind of numbers a group has."""
        return str(self._rows["provenance"][(group.ok or group.failed or group.left_out)[0]])

    def status(self, group: Group) -> str:
        """`ok`, or the failure of its rows, the most frequent first."""
        if group.ok:
            return "ok"
        rows = group.failed or group.left_out
        return ", ".join(_ranked([self._rows["status"][row] for row in rows]))

    def reason(self, group: Group) -> str:
        """Why its rows failed or were left out, the most frequent reason."""
        said = [self._rows["reason"][row] for row in group.failed or group.left_out]
        ranked = _ranked([text for text in said if text])
        return ranked[0] if ranked else ""

    def attempts(self, group: Group) -> list[str]:
        """Attempts with figures that have a name."""
        return [one for row in group.ok if (one := self._rows["attempt_id"][row])]

    def environment(self, group: Group, column: str) -> list[str]:
        """What a column of the environment says of a group."""
        if column not in self.results.environment:
            return []
        cells = self.results.environment[column].iloc[[*group.ok, *group.failed]].tolist()
        return sorted({cell for cell in cells if isinstance(cell, str)})

    def values(self, group: Group, figure: str) -> Values | None:
        """The replicates of a figure that count: undisturbed ones where there are any."""
        column = self._values.get(figure)
        rows = [row for row in group.ok if column is not None and not math.isnan(column[row])]
        if not rows or column is None:
            return None
        quiet = [row for row in rows if not self._rows["disturbance"][row]]
        counting = sorted(quiet or rows, key=lambda row: (str(self._rows["attempt_id"][row]), column[row]))
        values = tuple(float(column[row]) for row in counting)
        clocks = tuple(self._rows["sm_clock_mhz"][row] for row in counting)
        return Values(
            values=values,
            median=statistics.median(values),
            attempts=tuple(one for row in counting if (one := self._rows["attempt_id"][row])),
            clocks_mhz=() if any(math.isnan(clock) for clock in clocks) else clocks,
            note="; ".join(self._notes(group, rows, quiet)),
            is_disturbed=not quiet,
        )

    def _notes(self, group: Group, rows: Sequence[int], quiet: Sequence[int]) -> list[str]:
        told = []
        if group.failed:
            statuses = ", ".join(_ranked([self._rows["status"][row] for row in group.failed]))
            told.append(f"{len(group.failed)} of {len(group.ok) + len(group.failed)} attempts failed ({statuses})")
        if any("suspect" in (self._rows["flags"][row] or "").split(";") for row in rows):
            told.append("flagged suspect: the report contradicts itself")
        disturbed = [row for row in rows if row not in set(quiet)]
        if disturbed:
            why = _ranked([self._rows["disturbance"][row] for row in disturbed])[0]
            told.append(f"{why}" if not quiet else f"{len(disturbed)} disturbed left aside: {why}")
        return told


def _ranked(texts: Sequence[str]) -> list[str]:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return sorted(counts, key=lambda text: (-counts[text], text))


def environment_changes(base: Results, candidate: Results) -> Mapping[str, tuple[str, str]]:
    """Facts found in place that differ between the sides: name → what each says, blank where it says nothing."""
    found = {}
    for name in dict.fromkeys((*base.environment.columns, *candidate.environment.columns)):
        said = tuple(_distinct(results, name) for results in (base, candidate))
        if said[0] != said[1] and name not in _NEVER_EQUAL:
            found[str(name)] = (_listed(said[0]), _listed(said[1]))
    return found


#: Differs by nature.
_NEVER_EQUAL = frozenset(
    {"run_id", "job_id", "slurm_job_id", "run_name", "run_url", "finished", "finished_at", "end_time"}
)


def _distinct(results: Results, name: str) -> list[str]:
    if name not in results.environment:
        return []
    return sorted(str(one) for one in results.environment[name].dropna().unique())


def _listed(texts: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most} more"
