"""Named baselines: levels of series, written by a user and never by the harness itself.

`reports/baselines.yaml` is read by people in reviews: one entry for each name, one line for each series.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness import files
from harness.analysis.history import History, Pin, night_text, parse_night
from harness.errors import UnreadableInput, UsageError

BASELINES_FILE = Path("reports") / "baselines.yaml"

#: A name goes on command lines and into YAML.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_HEAD = "# Named baselines; `trtllm-harness baseline` writes them, and nothing moves them by itself.\n"


@dataclass(frozen=True, slots=True)
class PinnedLevel:
    """The level of one series when a baseline was pinned."""

    value: float
    unit: str
    night: str
    """Last night that it is of."""
    label: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Baseline:
    """Levels under one name."""

    name: str
    night: str
    """As of which night it was pinned."""
    pinned_at: str
    note: str
    levels: Mapping[str, PinnedLevel]
    """By the key of a series."""
    moved_from: tuple[str, ...] = ()
    """Nights as of which it was pinned before."""

    def pins(self) -> dict[str, Pin]:
        """The levels that series are held against."""
        return {
            key: Pin(one.value, parse_night(one.night, self.name), self.name, tuple(sorted(one.environment.items())))
            for key, one in self.levels.items()
        }


def read_baselines(path: Path) -> dict[str, Baseline]:
    """The baselines of a file by name; none where there is no file. Raises UnreadableInput where it is damaged."""
    if not path.exists():
        return {}
    try:
        data: Any = files.read_yaml(path)
    except UsageError as error:
        raise UnreadableInput(f"{path}: no baselines: {error}") from None
    if not isinstance(data or {}, dict):
        raise UnreadableInput(f"{path}: no baselines: it has to be a mapping of names to baselines")
    found = {}
    for name, entry in (data or {}).items():
        try:
            found[name] = _baseline(name, entry)
        except KeyError as error:
            raise UnreadableInput(f"{path}: no baselines: {name}: {error.args[0]} is missing") from None
        except (UsageError, AttributeError, TypeError, ValueError) as error:
            raise UnreadableInput(f"{path}: no baselines: {name}: {error}") from None
    return found


def _baseline(name: str, entry: Any) -> Baseline:
    if not isinstance(entry, dict):
        raise ValueError("has to be a mapping with night, pinned_at, note and levels")
    levels = {
        one["series"]: PinnedLevel(
            _positive(one["value"]), str(one["unit"]), str(one["night"]), str(one["label"]), dict(one["environment"])
        )
        for one in entry["levels"]
    }
    for one in (entry, *entry["levels"]):
        parse_night(str(one["night"]), name)
    moved = tuple(map(str, entry.get("moved_from", ())))
    return Baseline(name, str(entry["night"]), str(entry["pinned_at"]), str(entry["note"]), levels, moved)


def _positive(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"value {value} is not above zero")
    return number


def write_baselines(path: Path, baselines: Mapping[str, Baseline]) -> None:
    """Write the file whole."""
    data = {name: _to_data(one) for name, one in sorted(baselines.items())}
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomic(path, _HEAD + files.dump_yaml(data))


def _to_data(baseline: Baseline) -> dict[str, Any]:
    levels = [
        {
            "label": one.label,
            "value": one.value,
            "unit": one.unit,
            "night": one.night,
            "environment": dict(one.environment),
            "series": key,
        }
        for key, one in sorted(baseline.levels.items(), key=lambda pair: (pair[1].label, pair[0]))
    ]
    moved = {"moved_from": list(baseline.moved_from)} if baseline.moved_from else {}
    return {
        "night": baseline.night,
        "pinned_at": baseline.pinned_at,
        "note": baseline.note,
        **moved,
        "levels": levels,
    }


def baseline_of(history: History, name: str, note: str = "") -> Baseline:
    """The levels of the last nights of every series that has data.

    Raises UsageError where the name is none, or where no series has a level.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a baseline: letters, digits, dots, dashes and underscores")
    levels = {}
    for one in history.judged:
        judgement, series = one.judgement, one.series
        if judgement.current is None or judgement.last_day is None or judgement.verdict == "no data":
            continue
        value = float(f"{judgement.current:.6g}")
        label = f"{series.label}, {series.metric}"
        environment = dict(series.environments[-1])
        levels[series.key] = PinnedLevel(value, series.unit, night_text(judgement.last_day), label, environment)
    if not levels:
        raise UsageError(f"no series has a level as of {night_text(history.as_of)}; nothing was pinned")
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Baseline(name, night_text(history.as_of), now, note, levels)


def pin_baseline(path: Path, baseline: Baseline) -> None:
    """Add a baseline. Raises UsageError where the name is taken."""
    with files.folder_lock(path.parent):
        known = read_baselines(path)
        if baseline.name in known:
            night = known[baseline.name].night
            raise UsageError(
                f"baseline {baseline.name} is pinned as of {night}; `trtllm-harness baseline move {baseline.name} ...` "
                "moves it, or take another name"
            )
        write_baselines(path, {**known, baseline.name: baseline})


def move_baseline(path: Path, baseline: Baseline) -> Baseline:
    """Replace the levels of a baseline that is there, and return what it was.

    Series that the new levels do not have keep the old ones. Raises UsageError where there is none of that name.
    """
    with files.folder_lock(path.parent):
        known = read_baselines(path)
        before = require_baseline(known, baseline.name, path)
        levels = {**before.levels, **baseline.levels}
        moved = replace(baseline, levels=levels, moved_from=(*before.moved_from, before.night))
        write_baselines(path, {**known, baseline.name: replace(moved, note=baseline.note or before.note)})
    return before


def require_baseline(known: Mapping[str, Baseline], name: str, path: Path) -> Baseline:
    """The baseline of that name. Raises UsageError naming those that are there."""
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{path}: no baseline is called {name} (there are: {names})")
    return known[name]
