"""Replicates: several rows of one case, each from a process of its own, and the row that stands for them.

Tables, plots and cliffs take one row for each case: the median over its replicates. Rows that something outside
disturbed stand aside where the case has others, and rows without a number enter nothing. Priced rows have no
replicates and pass through as they are.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.frame import observations
from harness.analysis.intervals import Interval, of_factors
from harness.spec.claims import Quantity
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]

#: What ran somewhere, and has to be repeated before it says anything about the next time.
RAN = frozenset({"measured", "simulated", "imported"})

#: Flags of rows that something outside disturbed.
DISTURBED = ("noisy", "throttled", "shared_gpu")

#: Columns that are the median over the replicates of a case.
_MEDIANS = ("prefill_compute_ms", "step_ms", "tpot_ms", "ttft_ms", "tok_s_per_gpu", "tok_s_per_user")

_CASE = ("study", "series", "coordinates", "case_id", "level", "level_ops")


def has_replicates(records: pd.DataFrame) -> bool:
    """Whether these rows ran somewhere, so that each is one of several or should be."""
    return bool(records["provenance"].isin(RAN).any())


def is_disturbed(row: Row) -> bool:
    """Whether something outside disturbed a row, so that it decides nothing."""
    return any(flag in DISTURBED for flag in row["flags"])


def disturbance(rows: Iterable[Row]) -> str:
    """What disturbed rows, with the load: `others kept 1.3 processors busy (noisy)`."""
    rows = list(rows)
    said: dict[str, None] = {}
    for flag in DISTURBED:
        here = [row for row in rows if flag in row["flags"]]
        if here:
            said[_DISTURBANCES[flag](here)] = None
    return ", ".join(said)


def _noisy(rows: list[Row]) -> str:
    load = _most(rows, "foreign_cpus")
    if load is None:
        return "the machine was not quiet (noisy)"
    return f"others kept up to {load:.2f} processors busy (noisy)"


def _throttled(rows: list[Row]) -> str:
    reasons = sorted({row["throttle_reasons"] for row in rows if isinstance(row.get("throttle_reasons"), str)})
    return f"the GPU lowered its clock ({'throttled: ' + ', '.join(reasons) if reasons else 'throttled'})"


def _shared(rows: list[Row]) -> str:
    count = _most(rows, "foreign_processes")
    others = "others" if not count else f"{count:.0f} other process{'' if count == 1 else 'es'}"
    return f"{others} used the GPU meanwhile (shared_gpu)"


_DISTURBANCES = {"noisy": _noisy, "throttled": _throttled, "shared_gpu": _shared}


def _most(rows: list[Row], name: str) -> float | None:
    values = [float(row[name]) for row in rows if row.get(name) is not None and row[name] == row[name]]
    return max(values, default=None)


@dataclass(frozen=True)
class Cases:
    """The rows that stand for their cases, and the rows behind them."""

    records: pd.DataFrame
    ops: pd.DataFrame
    behind: Mapping[str, tuple[str, ...]]
    """Attempt that stands for its case → the attempts that count, one for each replicate."""
    all_records: pd.DataFrame
    all_ops: pd.DataFrame

    def values(self, study: Study, quantity: Quantity) -> dict[str, dict[int, float]]:
        """Attempt that stands for its case → replicate → the quantity; cases that lack it are left out."""
        table = observations((self.all_records, self.all_ops), study, quantity)
        value = dict(zip(table["attempt_id"], table["value"], strict=True))
        number = replicate_numbers(self.all_records)
        found = {
            standing: {number[one]: float(value[one]) for one in attempts if value.get(one, 0) > 0}
            for standing, attempts in self.behind.items()
        }
        return {standing: values for standing, values in found.items() if values}

    def intervals(self, study: Study, quantity: Quantity) -> dict[str, Interval]:
        """Attempt that stands for its case → the interval of the quantity over its replicates."""
        return {one: of_factors(list(values.values())) for one, values in self.values(study, quantity).items()}


def replicate_numbers(records: pd.DataFrame) -> dict[str, int]:
    """Attempt → its replicate; one that does not say is the first."""
    numbers = records["replicate"] if "replicate" in records else [None] * len(records)
    return {
        attempt: int(number) if number is not None and number >= 0 else 0
        for attempt, number in zip(records["attempt_id"], numbers, strict=True)
    }


def by_case(records: pd.DataFrame, ops: pd.DataFrame) -> Cases:
    """One row for each case of one run and one kind of numbers, with the median over its replicates.

    Of a case without a number its first row stands, so that it is told once.
    """
    if not has_replicates(records):
        return Cases(records, ops, {one: (one,) for one in records["attempt_id"]}, records, ops)
    kept: list[Any] = []
    behind: dict[str, tuple[str, ...]] = {}
    changed: dict[Any, dict[str, Any]] = {}
    for _, rows in records.groupby(list(_CASE), sort=False, dropna=False):
        counting = counting_rows(rows)
        first = (counting if len(counting) else rows).iloc[0]
        kept.append(first.name)
        if len(counting):
            behind[first["attempt_id"]] = tuple(counting["attempt_id"])
            changed[first.name] = _medians(counting)
    standing = records.loc[kept].copy()
    before = {name: dict(zip(records.index, records[name], strict=True)) for name in (*_MEDIANS, "flags")}
    for name in (*_MEDIANS, "flags"):
        values = [changed.get(index, {}).get(name, before[name][index]) for index in kept]
        standing[name] = _column(values, kept, name)
    return Cases(standing, _standing_ops(ops, behind), behind, records, ops)


def _column(values: list[Any], index: list[Any], name: str) -> pd.Series:
    import pandas as pd

    return pd.Series(values, index=index, dtype=object if name == "flags" else float)


def counting_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a case that count: those with a number, undisturbed ones where there are any."""
    ok = rows[rows["status"] == "ok"]
    quiet = ok[[not is_disturbed(row) for row in ok.to_dict("records")]] if len(ok) else ok
    return quiet if len(quiet) else ok


def _medians(rows: pd.DataFrame) -> dict[str, Any]:
    flags = list(dict.fromkeys(flag for flags in rows["flags"] for flag in flags))
    numbers = {name: rows[name].dropna().astype(float).tolist() for name in _MEDIANS}
    return {**{name: statistics.median(seen) if seen else math.nan for name, seen in numbers.items()}, "flags": flags}


def _standing_ops(ops: pd.DataFrame, behind: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """Ops of the attempts that stand for their cases, each with the median of its time."""
    stands = {one: standing for standing, attempts in behind.items() for one in attempts}
    mine = ops[ops["attempt_id"].isin(stands)]
    if mine.empty:
        return mine
    keys = [mine["attempt_id"].map(stands), mine["position"], mine["op"]]
    medians = mine[["time_us", "total_us"]].astype(float).groupby(keys, sort=False).median().to_dict()
    kept = mine[mine["attempt_id"].isin(behind)].copy()
    places = list(zip(kept["attempt_id"], kept["position"], kept["op"], strict=True))
    for name in ("time_us", "total_us"):
        kept[name] = [medians[name][place] for place in places]
    return kept


def place_of_case(record: Row) -> dict[str, Any]:
    """Coordinates of a record."""
    place: dict[str, Any] = json.loads(record["coordinates"])
    return place
