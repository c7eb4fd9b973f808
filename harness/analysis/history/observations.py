"""Observations: one source of a history, reduced to what verdicts need. Sources are run folders and tables of runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.analysis.history.nights import days_of, instants
from harness.analysis.inputs.columns import column_table
from harness.analysis.inputs.results import Figure, Results

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: Rows that never had to give a number.
NOT_ASKED = frozenset({"skipped", "unsupported", "refused", "rejected"})

#: Rows that are named where they are rejected; the rest is counted.
_NAMED = 20

#: A row that started this long before its run is one of a clock that was set back.
_SET_BACK_S = 3600

_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

#: Columns of `Source.table`; texts are dictionaries.
TEXTS = ("workload", "shown", "metric", "provenance", "status", "environment", "commit", "source", "run", "attempt")
COLUMNS = (*TEXTS, "day", "started_s", "value", "line")

#: Stands for every metric of a workload: a row that failed has none.
EVERY_METRIC = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of a source by what became of them; `usable` are those with a value."""

    rows: int = 0
    usable: int = 0
    failed: int = 0
    rejected: int = 0
    not_asked: int = 0
    disturbed: int = 0
    duplicates: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True)
class Source:
    """One source, read."""

    name: str
    kind: str
    table: pa.Table
    """One line for each value and each failure, `COLUMNS`."""
    counts: Counts
    figures: Mapping[str, Figure]
    rejected: tuple[str, ...] = ()
    """Rows that enter nothing, each with the reason."""
    damage: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """All columns of a table that are not those of records."""

    def facts(self) -> dict[str, Any]:
        """What of it the table does not hold, as JSON has it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "counts": asdict(self.counts),
            "figures": {name: asdict(figure) for name, figure in self.figures.items()},
            "rejected": list(self.rejected),
            "damage": list(self.damage),
            "notes": list(self.notes),
            "columns": list(self.columns),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], table: pa.Table) -> Source:
        """The source that `facts` and its table describe."""
        return cls(
            name=facts["name"],
            kind=facts["kind"],
            table=table,
            counts=Counts(**facts["counts"]),
            figures={name: Figure(**figure) for name, figure in facts["figures"].items()},
            rejected=tuple(facts["rejected"]),
            damage=tuple(facts["damage"]),
            notes=tuple(facts["notes"]),
            columns=tuple(facts["columns"]),
        )


def observe(results: Results, name: str, night: int | None = None) -> Source:
    """Reduce results to observations. `night` is the day to which every row of them counts.

    Rows of a run count to the UTC date on which the run started, rows of a table to that of their own start. A row
    whose time has no offset, and a value that is not above zero, are rejected by name.
    """
    import numpy as np

    rows = results.rows
    times, why = instants(rows["started"])
    days = days_of(times)
    notes = list(results.notes)
    if results.kind == "run":
        days, note = _of_run(days, times, results)
        notes += [f"{name}: {note}"] if note else []
    if night is not None:
        days[times.notna()] = night
    base = _base(results, name).assign(day=days, started_s=_seconds(times), line=rows["line"])
    known = why.isna().to_numpy()
    ok = (rows["status"] == "ok").to_numpy()
    asked = ~rows["status"].isin(NOT_ASKED).to_numpy()
    disturbed = rows["disturbance"].notna().to_numpy() & ok & known
    usable = np.zeros(len(rows), bool)
    rejected = {at: str(why.iloc[at]) for at in np.flatnonzero(~known & asked).tolist()}
    parts = []
    for metric in _judged(results):
        values = results.values[metric].to_numpy(float)
        bad = ok & known & ~disturbed & (values <= 0)
        rejected |= {at: f"{metric} is {values[at]:g}, and no measurement is" for at in np.flatnonzero(bad).tolist()}
        chosen = ok & known & ~disturbed & (values > 0)
        usable |= chosen
        parts.append(base[chosen].assign(metric=metric, value=values[chosen]))
    failed = asked & known & ~ok
    parts.append(base[failed].assign(metric=EVERY_METRIC, value=np.nan))
    counts = Counts(
        rows=len(rows),
        usable=int(usable.sum()),
        failed=int(failed.sum()),
        rejected=len(rejected),
        not_asked=int((~asked).sum()),
        disturbed=int(disturbed.sum()),
    )
    figures = {metric: results.figures[metric] for metric in _judged(results)}
    table = _table(parts)
    named = [_rejection(name, rows, results, at, reason) for at, reason in sorted(rejected.items())[:_NAMED]]
    named += [f"{name}: {len(rejected) - _NAMED:,} more rows are rejected"] if len(rejected) > _NAMED else []
    return Source(
        name, results.kind, table, counts, figures, tuple(named), results.damage, tuple(notes), results.columns
    )


def _judged(results: Results) -> list[str]:
    """Metrics that have a better and a worse."""
    return [name for name in results.values.columns if results.figures[name].direction != "none"]


def _of_run(days: pd.Series, times: pd.Series, results: Results) -> tuple[pd.Series, str | None]:
    """The day on which a run started for all its rows, and what is odd about its clock."""
    import pandas as pd

    told, _ = instants(pd.Series([results.facts.get("started_at")], dtype=object))
    start = told.iloc[0] if told.notna().iloc[0] else times.min()
    if pd.isna(start):
        return days, None
    early = int(((start - times).dt.total_seconds() > _SET_BACK_S).sum())
    night = int(days_of(pd.Series([start])).iloc[0])
    note = f"its clock was set back while it ran ({early:,} rows start before it did); all count to its first night"
    return days.where(times.isna(), night), note if early else None


def _base(results: Results, name: str) -> pd.DataFrame:
    """The columns that do not depend on the metric, as categories."""
    import pandas as pd

    rows, codes = results.rows, results.rows["workload"].to_numpy()
    keys = [_text(one.key) for one in results.workloads]
    shown = [_text(one.shown) for one in results.workloads]
    attempts = rows["attempt_id"].astype("str" if rows["attempt_id"].notna().all() else object)
    split = attempts.str.partition(".") if attempts.notna().any() else None
    frame = pd.DataFrame({"workload": _taken(codes, keys), "shown": _taken(codes, shown)}, index=rows.index)
    for column in ("provenance", "status"):
        frame[column] = rows[column].astype("category")
    frame["environment"] = _environments(results)
    frame["commit"] = _first_of(results.environment, column_table()["history"]["commits"])
    frame["source"] = pd.Categorical([name] * len(rows), categories=[name])
    frame["run"] = pd.Categorical(split[0] if split is not None else [None] * len(rows))
    frame["attempt"] = pd.Categorical(split[2] if split is not None else [None] * len(rows))
    return frame


def _taken(codes: Any, texts: Sequence[str]) -> pd.Categorical:
    import numpy as np
    import pandas as pd

    distinct = list(dict.fromkeys(texts))
    place = {text: at for at, text in enumerate(distinct)}
    return pd.Categorical.from_codes(np.array([place[text] for text in texts], dtype=np.int64)[codes], distinct)


@lru_cache(maxsize=100_000)  # the same questions are asked every night
def _text(pairs: tuple[tuple[str, str], ...]) -> str:
    return _ENCODE([(str(name), str(value)) for name, value in pairs])


def _environments(results: Results) -> pd.Categorical:
    """What can be the cause of a change, as one text for each combination."""
    import numpy as np
    import pandas as pd

    causes = [one for group in column_table()["history"]["causes"] for one in group]
    columns = [name for name in causes if name in results.environment.columns]
    together = np.zeros(len(results.rows), dtype=np.int64)
    for name in columns:
        codes = pd.Categorical(results.environment[name]).codes.astype(np.int64) + 1
        together = np.unique(together * (codes.max(initial=0) + 1) + codes, return_inverse=True)[1]
    _, first, inverse = np.unique(together, return_index=True, return_inverse=True)
    told = {name: results.environment[name].astype(object).to_numpy() for name in columns}
    texts = [
        json.dumps(sorted((name, str(cells[row])) for name, cells in told.items() if pd.notna(cells[row])))
        for row in first.tolist()
    ]
    return _taken(inverse, texts)


def _first_of(environment: pd.DataFrame, names: Sequence[str]) -> pd.Categorical:
    import pandas as pd

    found = next((environment[name] for name in names if name in environment.columns), None)
    return pd.Categorical(found if found is not None else [None] * len(environment))


def _seconds(times: pd.Series) -> pd.Series:
    import pandas as pd

    return ((times - pd.Timestamp(0, tz="UTC")).dt.total_seconds()).fillna(-1.0)


def _rejection(name: str, rows: pd.DataFrame, results: Results, at: int, why: str) -> str:
    row = rows.iloc[at]
    question = ", ".join(value for _, value in results.workloads[int(row["workload"])].shown)
    numbers = results.values.iloc[at].dropna()
    told = ", ".join(f"{metric} {value:g}" for metric, value in numbers.items())
    return f"{name}: row {int(row['line'])} ({question}{', ' if told else ''}{told}): {why}; rejected"


def _table(parts: list[pd.DataFrame]) -> pa.Table:
    import pandas as pd
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for name in COLUMNS:
        chunks = []
        for part in parts:
            column = part[name]
            if name in TEXTS:
                category = column.astype("category") if not isinstance(column.dtype, pd.CategoricalDtype) else column
                values = pa.array(category.cat.categories.astype(str).tolist(), pa.string())
                codes = pa.array(category.cat.codes.to_numpy(), pa.int32(), mask=(category.cat.codes < 0).to_numpy())
                chunks.append(pa.DictionaryArray.from_arrays(codes, values))
            else:
                kind = {"day": pa.int32(), "line": pa.int64()}.get(name, pa.float64())
                chunks.append(pa.array(column.to_numpy(), kind, from_pandas=False, safe=False))
        arrays[name] = pa.chunked_array(chunks)
    return pa.table(arrays).unify_dictionaries()
