"""Caveats: what a reader has to know about the rows that decide, whatever their numbers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

#: Flag → what happened to the rows that carry it.
_HAPPENED: dict[str, str] = {
    "l2_warm": "read their KV cache from L2",
    "sinks": "came with attention sinks",
    "extrapolated": "lay outside the measured grid",
    "unmeasured": "stood in for a regime that nobody measured",
    "noisy": "scattered more than the target",
    "suspect": "failed a check of their number",
    "throttled": "ran at a lowered clock",
    "shared_gpu": "shared the GPU with another process",
    "partial": "lacked a part of what was asked",
}


def caveats_of(deciding: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """`4 of 4 deciding rows read their KV cache from L2 (l2_warm)`, one text for each flag among the rows.

    A row of composed times of which a part is from the roofline counts as one with a flag.
    """
    flags = Counter(flag for row in deciding for flag in row["flags"])
    told = [_text(count, len(deciding), _HAPPENED.get(flag, "carried a flag"), flag) for flag, count in flags.items()]
    modelled = sum(row["source"] == "modelled" and row["provenance"] != "modelled" for row in deciding)
    if modelled:
        told.append(_text(modelled, len(deciding), "took a part of their time from the roofline", "modelled"))
    return tuple(told)


def _text(count: int, of: int, happened: str, name: str) -> str:
    if count == 1:
        happened = happened.replace("their", "its")
    return f"{count} of {of} deciding rows {happened} ({name})"
