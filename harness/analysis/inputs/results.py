"""What is read from an input: rows of workloads, with figures, status and environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.results.metrics import Direction

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["run", "table", "report"]

#: Columns that `Results.rows` always has.
FIXED_COLUMNS = (
    "workload", "status", "reason", "replicate", "flags", "started", "provenance", "attempt_id", "sm_clock_mhz",
    "disturbance", "line",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """What was asked: the whole of it, by name. Two rows are of one workload only where all of it is the same.

    A blank says nothing: it is as if the column were not there.
    """

    key: tuple[tuple[str, str], ...]
    """Name and value of everything that makes two rows the same question, sorted by name."""
    shown: tuple[tuple[str, str], ...] = field(compare=False, hash=False)
    """What a reader needs to know it by, in order; it takes no part in pairing."""

    @property
    def phase(self) -> str:
        """`prefill`, `decode` or what the input calls it; empty where it does not say."""
        return dict(self.shown).get("phase", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that is judged. Its values are in its canonical unit, whatever column it was read from."""

    name: str
    """Canonical, with its unit: `ttft_ms`."""
    title: str
    unit: str
    direction: Direction
    column: str
    """The column it was read from: `ttft_s`."""
    factor: float = 1.0
    """What the column was multiplied with."""


@dataclass(frozen=True)
class Results:
    """One side of a comparison, or a part of a history."""

    name: str
    """What the user called it."""
    path: Path
    kind: Kind
    workloads: tuple[Workload, ...]
    rows: pd.DataFrame
    """One line for each row, `FIXED_COLUMNS`: `workload` is an index into `workloads`, `status` is `ok`, `skipped` or
    what the input calls a failure, `replicate` and `started` texts or None, `flags` joined by `;`, `sm_clock_mhz` NaN
    where it is unknown, `disturbance` what disturbed the row in words or None, `line` where the row was read."""
    values: pd.DataFrame
    """Figures of the same rows, by canonical name; NaN where there is no number. Of a failed row there is none."""
    environment: pd.DataFrame
    """What was found in place, as texts, None where nothing is said."""
    figures: Mapping[str, Figure]
    identity_columns: tuple[str, ...] = ()
    """Columns of a table that were taken as part of the question, blank ones left out."""
    columns: tuple[str, ...] = ()
    """All columns of a table that are not those of records, by their names in lower case."""
    damage: tuple[str, ...] = ()
    """What could not be read, in words; a command that met some ends with exit code 3."""
    notes: tuple[str, ...] = ()
    """What a reader of the figures has to know, in words."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """`environment.json` of a run folder."""

    @property
    def provenances(self) -> tuple[str, ...]:
        """Kinds of numbers, in order of appearance."""
        return tuple(dict.fromkeys(self.rows["provenance"]))
