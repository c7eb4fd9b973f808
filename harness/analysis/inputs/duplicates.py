"""Rows that are there twice: the same attempt, read from two places or appended again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

#: What tells one attempt from another; without any of them, equal rows are two attempts that came out alike.
_ATTEMPT = ("attempt_id", "replicate", "started")


def without_duplicates(rows: pd.DataFrame, values: pd.DataFrame, environment: pd.DataFrame) -> tuple[pd.Series, int]:
    """Which rows to keep, and how many are left out.

    Left out is a row that equals an earlier one in workload, status, every figure, every fact of its environment, and
    in what tells attempts apart, of which at least one has to be said.
    """
    import pandas as pd

    told = rows[list(_ATTEMPT)].notna().any(axis=1)
    everything = pd.concat([rows[["workload", "status", *_ATTEMPT]], values, environment], axis=1)
    again = everything.duplicated(keep="first") & told
    return ~again, int(again.sum())
