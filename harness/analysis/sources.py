"""Where the times of rows come from: the mix of sources, weighted by time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.analysis.words import mix_text
from harness.pricing.base import SOURCES
from harness.results.metrics import time_column

if TYPE_CHECKING:
    import pandas as pd

Mix = dict[str, dict[str, float]]
"""Phase → source → its share of the time."""


def source_mix(records: pd.DataFrame) -> Mix:
    """For each phase the share of every source in the summed time of all ok rows, best source first.

    The worst source alone says little: an op of 5 % of the time names it. Phases are never added.
    """
    sums: dict[str, dict[str, float]] = {}
    columns = ["phase", "source_shares", "prefill_compute_ms", "step_ms"]
    for row in records.loc[records["status"] == "ok", columns].to_dict("records"):
        if isinstance(row["source_shares"], str):
            mine = sums.setdefault(row["phase"], {})
            for source, share in json.loads(row["source_shares"]).items():
                mine[source] = mine.get(source, 0.0) + share * row[time_column(row["phase"])]
    return {phase: _shares(times) for phase, times in sums.items()}


def _shares(times: dict[str, float]) -> dict[str, float]:
    order = [*SOURCES, *(name for name in times if name not in SOURCES)]
    whole = sum(times.values()) or 1.0
    return {name: times[name] / whole for name in order if times.get(name)}


def sources_text(mix: Mix) -> str:
    """`prefill exact 80 %, estimated 20 %; decode exact 100 %`; the phase is left out where there is one."""
    if len(mix) == 1:
        return mix_text(next(iter(mix.values())))
    return "; ".join(f"{phase} {mix_text(shares)}" for phase, shares in mix.items())
