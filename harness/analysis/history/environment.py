"""Changes of environment that several series share are told once, with who moved and who did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.history.nights import night_text
from harness.analysis.history.series import Series, changes_between
from harness.analysis.history.verdicts import Change, Judgement

#: Columns that say where a series ran, in the order in which they are named.
_PLACES = ("host", "hostname", "node", "machine", "device")

Causes = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class EnvironmentNote:
    """One change of the environment on one night."""

    day: int
    causes: Causes
    places: tuple[str, ...]
    """Hosts on which it happened."""
    moved: tuple[str, ...]
    """Labels of the series whose level changed with it."""
    percents: tuple[float, ...]
    """Of each of them."""
    still: int
    """Series that met the same change and did not move."""
    elsewhere: int
    """Series that ran that night without that change and did not move."""
    elsewhere_places: tuple[str, ...]

    @property
    def what(self) -> str:
        """`driver from drv-570 to drv-580`."""
        return "; ".join(f"{name} from {old} to {new}" for name, old, new in self.causes)

    @property
    def text(self) -> str:
        """The note in words."""
        where = f" on {', '.join(self.places)}" if self.places and not self._is_place else ""
        moved = "no series moved"
        if self.moved:
            moved = f"{_count(len(self.moved))} changed by {_spread(self.percents)}: {_listed(self.moved)}"
        parts = [f"{night_text(self.day)}: {self.what}{where}; {moved}"]
        if self.still:
            parts.append(f"{_count(self.still)} met the same change and did not move")
        if self.elsewhere:
            places = f" on {', '.join(self.elsewhere_places)}" if self.elsewhere_places else ""
            parts.append(f"{_count(self.elsewhere)}{places} without that change did not move")
        if self.moved:
            parts.append("reference levels restarted, no commit blamed")
        return "; ".join(parts)

    @property
    def _is_place(self) -> bool:
        return any(name in _PLACES for name, _, _ in self.causes)


def environment_notes(judged: Sequence[tuple[Series, Judgement]]) -> tuple[EnvironmentNote, ...]:
    """Group changes of environment by night and cause, in order of time."""
    groups: dict[tuple[int, Causes], list[tuple[Series, Change | None, int]]] = {}
    for series, judgement in judged:
        changes = {one.settled_day: one for one in judgement.changes if one.kind == "environment change" and one.causes}
        for entry, causes in _switches(series):
            day = int(series.days[entry])
            groups.setdefault((day, causes), []).append((series, changes.get(day), entry))
    notes = [_note(day, causes, found, judged) for (day, causes), found in groups.items()]
    return tuple(sorted(notes, key=lambda one: (one.day, one.causes)))


def _switches(series: Series) -> list[tuple[int, Causes]]:
    """Entries at which an environment that is new to the series starts, and what changed."""
    seen = set(series.environments[:1])
    found = []
    for entry in range(1, len(series.environments)):
        environment = series.environments[entry]
        if environment is series.environments[entry - 1] or environment in seen:
            continue
        seen.add(environment)
        causes = changes_between(series.environments[entry - 1], environment)
        real = tuple(one for one in causes if one[1] != "unknown")
        if real:
            found.append((entry, causes))
    return found


def _note(
    day: int,
    causes: Causes,
    found: Sequence[tuple[Series, Change | None, int]],
    judged: Sequence[tuple[Series, Judgement]],
) -> EnvironmentNote:
    met = {series.key for series, _, _ in found}
    moved = sorted(((series.label, change.percent) for series, change, _ in found if change))
    others = [
        (series, judgement)
        for series, judgement in judged
        if series.key not in met and _stayed(series, day, causes) and not _moved(judgement, day)
    ]
    return EnvironmentNote(
        day=day,
        causes=causes,
        places=_places([series.environments[entry] for series, _, entry in found]),
        moved=tuple(label for label, _ in moved),
        percents=tuple(change for _, change in moved),
        still=len(found) - len(moved),
        elsewhere=len(others),
        elsewhere_places=_places([series.environments[-1] for series, _ in others]),
    )


def _stayed(series: Series, day: int, causes: Causes) -> bool:
    """Whether a series ran before and after that night, and never met the change."""
    across = bool(len(series.days)) and int(series.days[0]) < day <= int(series.days[-1])
    return across and any(dict(series.environments[-1]).get(name) != new for name, _, new in causes)


def _moved(judgement: Judgement, day: int) -> bool:
    return any(abs(one.settled_day - day) <= 1 for one in judgement.changes if one.kind != "shift")


def _places(environments: Sequence[tuple[tuple[str, str], ...]]) -> tuple[str, ...]:
    told = {next((dict(one)[name] for name in _PLACES if name in dict(one)), "") for one in set(environments)}
    return tuple(sorted(told - {""}))


def _count(number: int) -> str:
    return f"{number:,} series"


def _spread(percents: Sequence[float]) -> str:
    if not percents:
        return ""
    low, high = min(percents), max(percents)
    return f"{low:+.1f} %" if f"{low:.1f}" == f"{high:.1f}" else f"{low:+.1f} to {high:+.1f} %"


def _listed(labels: Sequence[str], most: int = 6) -> str:
    rest = len(labels) - most
    return "; ".join(labels[:most]) + (f" and {rest:,} more" if rest > 0 else "")
