"""Rows of a study as a table: one row for each ok case, its coordinates as columns, and the value of one quantity.

Every analysis and every plot starts here, so that all of them mean the same number by the same words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from harness.pricing.base import SOURCES
from harness.results.metrics import time_column
from harness.spec.claims import Quantity
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

#: Columns that say where a row lies, besides the coordinates of its study.
PLACE = ("series", "system", "phase")

#: What `observations` adds to the place of a row.
FACTS = ("attempt_id", "case_id", "value", "roofline", "source", "flags")

#: Facts of a record that a confounder may name, besides coordinates.
_RECORD_FACTS = ("attempt_id", "case_id", "status", "reason", "provenance", "worst_source", "flags", "layers")

#: What a quantity is made of, before it is divided.
_SUMS = ("time_us", "roofline_us", "flops", "hbm_bytes", "count")


class Frames(Protocol):
    """Records and ops of a run: a `harness.results.store.Run`, or anything with these two tables."""

    @property
    def records(self) -> pd.DataFrame: ...
    @property
    def ops(self) -> pd.DataFrame: ...


def observations(frames: Frames | tuple[pd.DataFrame, pd.DataFrame], study: Study, quantity: Quantity) -> pd.DataFrame:
    """Return one row per ok record of `study` that has the quantity, in the order of the records.

    Records of cases that were repeated are one for each replicate; see `harness.analysis.replicates.by_case`.

    `frames` is a run, or the pair (records, ops). Columns: attempt_id, case_id, series, system, phase; every coordinate
    of the study (None where a series does not have it); `value` of the quantity in the unit of its measure; `roofline`,
    the same quantity if every op took its roofline time (NaN where there is none); `source`, the worst of the ops
    summed; `flags`, theirs together.
    """
    records, ops = frames if isinstance(frames, tuple) else (frames.records, frames.ops)
    rows, names = placed(study, records)
    table = measured(rows, records, ops, quantity)
    return table[["attempt_id", "case_id", *PLACE, *names, "value", "roofline", "source", "flags"]]


def placed(study: Study, records: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Rows of `study` of any status with their coordinates as columns of Python values, and the names of those.

    `heads` are the query and KV heads of the model, `64:8`.
    """
    import pandas as pd

    own = records[records["study"] == study.name]
    places = [json.loads(text) for text in own["coordinates"]]
    names = list(dict.fromkeys(name for place in places for name in place))
    table = own[[*_RECORD_FACTS, *PLACE]].reset_index(drop=True)
    table["heads"] = [f"{query}:{kv}" for query, kv in zip(own["q_heads"], own["kv_heads"], strict=True)]
    for name in names:
        table[name] = pd.Series([place.get(name) for place in places], dtype=object)
    return table, names


def measured(rows: pd.DataFrame, records: pd.DataFrame, ops: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """The ok rows of a `placed` table that have the quantity, with its `value`, `roofline`, `source` and `flags`."""
    sums = _of_ops(ops, quantity) if quantity.op or quantity.category else _of_phases(records)
    ok = rows[rows["status"] == "ok"].drop(columns=["flags", "worst_source"])
    records, ops = (table[table["attempt_id"].isin(ok["attempt_id"])] for table in (records, ops))
    table = ok.merge(sums, on="attempt_id", how="inner")
    table["value"] = _value(table, "time_us", quantity)
    table["roofline"] = _value(table, "roofline_us", quantity)
    return table[table["value"].notna()].drop(columns=[*_SUMS, "tok_s_per_gpu"], errors="ignore").reset_index(drop=True)


def _of_ops(ops: pd.DataFrame, quantity: Quantity) -> pd.DataFrame:
    """Sums over the ops that a quantity names, by attempt; one op without a number leaves the sum without one."""
    import pandas as pd

    mine = ops[ops["op"] == quantity.op] if quantity.op else ops[ops["category"] == quantity.category]
    sums = pd.DataFrame(
        {
            "attempt_id": mine["attempt_id"],
            "time_us": mine["total_us"].astype(float),
            "roofline_us": mine["roofline_us"].astype(float) * mine["count"],
            "flops": mine["flops"] * mine["count"],
            "hbm_bytes": mine["hbm_bytes"] * mine["count"],
            "count": mine["count"],
            "missing": mine["total_us"].isna(),
            "unbounded": mine["roofline_us"].isna(),
            "rank": [SOURCES.index(source) if source in SOURCES else -1 for source in mine["source"]],
        }
    )
    told: dict[str, set[str]] = {}
    for attempt, flags in zip(mine["attempt_id"], mine["flags"], strict=True):
        told.setdefault(attempt, set()).update(flags)
    by_attempt = sums.groupby("attempt_id", sort=False)
    table = by_attempt.sum().assign(rank=by_attempt["rank"].max()).reset_index()
    table["time_us"] = table["time_us"].where(table["missing"] == 0)
    table["roofline_us"] = table["roofline_us"].where(table["unbounded"] == 0)
    table["source"] = [SOURCES[rank] if rank >= 0 else None for rank in table["rank"]]
    table["flags"] = [sorted(told[attempt]) for attempt in table["attempt_id"]]
    return table[["attempt_id", *_SUMS, "source", "flags"]]


def _of_phases(records: pd.DataFrame) -> pd.DataFrame:
    """The whole phase of every attempt."""
    import pandas as pd

    times = [row[time_column(row["phase"])] for row in records.to_dict("records")]
    return pd.DataFrame(
        {
            "attempt_id": records["attempt_id"],
            "time_us": pd.Series(times, index=records.index, dtype=float) * 1000,
            "roofline_us": records["roofline_ms"].astype(float) * 1000,
            "flops": records["flops"].astype(float),
            "hbm_bytes": records["hbm_bytes"].astype(float),
            "count": 1,
            "tok_s_per_gpu": records["tok_s_per_gpu"].astype(float),
            "source": records["worst_source"],
            "flags": records["flags"].map(list),
        }
    )


def _value(table: pd.DataFrame, time: str, quantity: Quantity) -> pd.Series:
    """The quantity with `time` (the time taken, or the roofline's) as its time."""
    total_us = table[time]
    if quantity.measure == "time_ms":
        return total_us / 1000
    if quantity.measure == "time_us":
        return total_us / (table["count"] if quantity.op else table["layers"])
    if quantity.measure == "tflop_per_s":
        return table["flops"] / total_us / 1e6
    if quantity.measure == "gb_per_s":
        return table["hbm_bytes"] / total_us / 1e3
    return table["tok_s_per_gpu"] * table["time_us"] / total_us


def place_of(row: Mapping[str, Any], names: list[str], besides: tuple[str, ...] = ()) -> tuple[tuple[str, Any], ...]:
    """Where a row lies, as (name, value) pairs that can be compared; coordinates it does not have are left out."""
    return tuple((name, row[name]) for name in (*PLACE, *names) if name not in besides and row[name] is not None)
