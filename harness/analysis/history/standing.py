"""Nights one by one: those that stood out and were no change, and the state of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.history.anchor import percent
from harness.analysis.history.parts import Judging, Part
from harness.analysis.history.verdicts import Change, Transient, Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def transients_of(judging: Judging) -> tuple[Transient, ...]:
    """Nights off the level around them by more than the limit, consecutive ones together."""
    found = [one for part in judging.parts for run in _off_runs(part) if (one := _transient(judging, part, run))]
    return tuple(sorted(found, key=lambda one: one.first_day))


def _off_runs(part: Part) -> list[list[int]]:
    """Runs of nights that stand out, and of segments too short to count."""
    import numpy as np

    if not part.levels.outliers.any() and "t" not in part.walk.states:
        return []
    off = part.levels.outliers.copy()
    for segment, state in zip(part.levels.segments, part.walk.states, strict=True):
        off[segment.start : segment.end] |= state == "t"
    places = np.flatnonzero(off)
    return [run.tolist() for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(run)]


def _transient(judging: Judging, part: Part, run: list[int]) -> Transient | None:
    series, logs = judging.series, part.levels.logs
    at = next(at for at, one in enumerate(part.levels.segments) if one.start <= run[0] < one.end)
    level = part.walk.references[at] if part.walk.states[at] == "t" else part.levels.segments[at].level
    furthest = max(run, key=lambda place: abs(logs[place] - level))
    change_pct = percent(float(logs[furthest]) - level, series.sign)
    if abs(change_pct) < judging.limit_pct:
        return None
    entries = part.entries[run]
    return Transient(
        first_day=int(series.days[entries[0]]),
        last_day=int(series.days[entries[-1]]),
        nights=len(run),
        value=float(series.values[part.entries[furthest]]),
        level=judging.value(level),
        percent=change_pct,
        ongoing=bool(entries[-1] == len(series.days) - 1),
    )


def states_of(judging: Judging, changes: tuple[Change, ...], verdict: Verdict) -> str:
    """The state of every entry; an improvement and an environment are marked on the nights that make them count."""
    import numpy as np

    states = np.full(len(judging.series.days), "h")
    shifted = {one.settled_day for one in changes if one.kind == "environment change"}
    for part in judging.parts:
        states[part.entries] = _states_in(judging, part)
        if int(judging.series.days[part.entries[0]]) in shifted:
            states[part.entries[: judging.policy.nights]] = "e"
    if verdict == "not enough history":
        states[judging.current.entries] = "h"
    return "".join(states.tolist())


def _states_in(judging: Judging, part: Part) -> NDArray[np.str_]:
    """The states of the nights of one environment."""
    import numpy as np

    states = np.full(len(part.entries), "h")
    for segment, state in zip(part.levels.segments, part.walk.states, strict=True):
        states[segment.start : segment.end] = state
        if state == "i":
            states[segment.start + judging.policy.nights : segment.end] = "u"
    for run in _off_runs(part):
        if _transient(judging, part, run):
            states[run] = "t"
    return states
