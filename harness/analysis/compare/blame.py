"""Which ops a change is of, where both sides have ops."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.analysis.compare.pairs import OpShift, Pair
from harness.analysis.inputs import Results
from harness.errors import HarnessError

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("attempt_id", "op", "category", "total_us")

#: Ops that are named for a pair.
MOST_OPS = 3

#: An op that moved by less than this part of what all moved by is not named.
_LEAST_SHARE = 0.1

Times = dict[str, dict[str, tuple[str, float]]]


def with_blame(pairs: Sequence[Pair], base: Results, candidate: Results) -> list[Pair]:
    """The pairs, those that changed with the ops that moved most. Ops are read only where something changed."""
    changed = [pair for pair in pairs if pair.verdict in {"worse", "better", "prediction changed"}]
    if not changed or base.kind != "run" or candidate.kind != "run":
        return list(pairs)
    sides = []
    for results, attempts in (
        (base, {one for pair in changed if pair.base for one in pair.base.attempts}),
        (candidate, {one for pair in changed if pair.candidate for one in pair.candidate.attempts}),
    ):
        sides.append(_times(results, attempts))
    return [replace(pair, blame=_shifts(pair, *sides)) if pair in changed else pair for pair in pairs]


def _times(results: Results, attempts: set[str]) -> Times:
    """Attempt → op → its category and time, all its executions; an op without a time is left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from harness.results.projection import read_op_columns

    try:
        table: pa.Table = read_op_columns(results.path, _COLUMNS)
    except HarnessError:
        return {}
    table = table.filter(pc.is_in(table["attempt_id"], value_set=pa.array(sorted(attempts), pa.string())))
    found: Times = {}
    for attempt, op, category, total_us in zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True):
        if total_us is not None:
            ops = found.setdefault(attempt, {})
            ops[op] = (category, ops.get(op, (category, 0.0))[1] + total_us)
    return found


def _shifts(pair: Pair, base: Times, candidate: Times) -> tuple[OpShift, ...]:
    before, after = _medians(pair.base, base), _medians(pair.candidate, candidate)
    if not before or not after:
        return ()
    moved = {op: after.get(op, ("", 0.0))[1] - before.get(op, ("", 0.0))[1] for op in {**before, **after}}
    total = sum(moved.values())
    if total == 0:
        return ()
    ranked = sorted((op for op in moved if moved[op] / total >= _LEAST_SHARE), key=lambda op: (-moved[op] / total, op))
    return tuple(
        OpShift(
            op=op,
            category=(before.get(op) or after[op])[0],
            base_us=before.get(op, ("", 0.0))[1],
            candidate_us=after.get(op, ("", 0.0))[1],
            share=moved[op] / total,
        )
        for op in ranked[:MOST_OPS]
    )


def _medians(side: object, times: Times) -> dict[str, tuple[str, float]]:
    """Op → category and the median of its time over the replicates that have it."""
    attempts = [times[one] for one in getattr(side, "attempts", ()) if one in times]
    ops = dict.fromkeys(op for one in attempts for op in one)
    return {
        op: (
            next(one[op][0] for one in attempts if op in one),
            statistics.median(one[op][1] for one in attempts if op in one),
        )
        for op in ops
    }
