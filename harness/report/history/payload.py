"""The page's data: small enough for thousands of series over a year, in one JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.history import VERDICTS, Change, History, Judged, Series, night_text
from harness.analysis.history.verdicts import STATES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

#: Samples of which the page shows value, run and attempt, from the last night back; a year of one sample a night and
#: thousands of series would make it heavier than a browser likes.
MOST_SAMPLES = 400_000

#: Digits of a value; measurements have fewer.
_DIGITS = 5


class Words:
    """Texts by number, so that each is in the page once."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        return self.texts.setdefault(text, len(self.texts))

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


@dataclass(frozen=True)
class _Page:
    """What all series share while the payload is made."""

    place: Mapping[int, int]
    """Night → its column."""
    first_sample_day: int
    columns: Mapping[str, Any]
    """Columns of the rows behind the nights, as arrays."""
    night_runs: Mapping[int, int]
    """Night → the run that most of its rows are from."""
    night_commits: Mapping[int, int]
    environments: Words
    commits: Words


def history_payload(history: History) -> dict[str, Any]:
    """The data of the page; plain, for JSON."""
    days = _days(history)
    environments, commits = Words(), Words()
    columns, runs, refs = _rows(history)
    page = _Page(
        place={day: at for at, day in enumerate(days)},
        first_sample_day=_first_sample_day(columns["day"]),
        columns=columns,
        night_runs=_most_common(columns["day"], columns["source"]),
        night_commits=_night_commits(history, commits),
        environments=environments,
        commits=commits,
    )
    series = [_series(page, one) for one in history.judged]
    return {
        "nights": [night_text(day) for day in days],
        "verdicts": list(VERDICTS),
        "states": STATES,
        "series": series,
        "environments": list(environments),
        "commits": list(commits),
        "nightCommits": [page.night_commits.get(day, -1) for day in days],
        "runs": runs,
        "nightRuns": [page.night_runs.get(day, -1) for day in days],
        "refs": refs,
        "samplesFrom": page.place.get(page.first_sample_day, 0),
        "notes": [{"night": page.place.get(one.day, -1), "text": one.text} for one in history.notes],
    }


def _days(history: History) -> list[int]:
    """Every night on which anything was asked, and the one as of which verdicts are given."""
    found = {history.as_of}
    for one in history.judged:
        found.update(one.series.days.tolist())
        found.update(one.series.failed_days.tolist())
    return sorted(found)


def _rows(history: History) -> tuple[dict[str, Any], list[str], list[str]]:
    """Columns of the rows behind the nights, names of runs, and names of attempts."""
    import numpy as np

    frame = history.rows
    runs, refs = (frame[name].cat.categories.astype(str).tolist() for name in ("source", "attempt"))
    attempt = frame["attempt"].cat.codes.to_numpy().astype(np.int64)
    columns = {
        "day": frame["day"].to_numpy().astype(np.int64),
        "value": frame["value"].to_numpy(),
        "source": frame["source"].cat.codes.to_numpy().astype(np.int64),
        # A row of a table has no attempt; its number is shown, as a negative one.
        "ref": np.where(attempt >= 0, attempt, -frame["line"].to_numpy().astype(np.int64)),
    }
    return columns, runs, refs


def _first_sample_day(days: Ints) -> int:
    """The first night of which samples are shown."""
    import numpy as np

    nights, counts = np.unique(days, return_counts=True)
    inside = np.cumsum(counts[::-1]) <= MOST_SAMPLES
    return int(nights[::-1][inside][-1]) if inside.any() else int(nights[-1])


def _most_common(days: Ints, codes: Ints) -> dict[int, int]:
    import pandas as pd

    counts = pd.DataFrame({"day": days, "code": codes}).value_counts().reset_index()
    return dict(counts.drop_duplicates("day").set_index("day")["code"].astype(int).items())


def _night_commits(history: History, commits: Words) -> dict[int, int]:
    found: dict[int, dict[int, int]] = {}
    for one in history.judged:
        for day, commit in zip(one.series.days.tolist(), one.series.commits, strict=True):
            if commit:
                tally = found.setdefault(day, {})
                number = commits.number(commit)
                tally[number] = tally.get(number, 0) + 1
    return {day: max(tally, key=lambda number: tally[number]) for day, tally in found.items()}


def _series(page: _Page, judged: Judged) -> dict[str, Any]:
    series, judgement = judged.series, judged.judgement
    places = [page.place[day] for day in series.days.tolist()]
    states, values = ["."] * len(page.place), {}
    for day in series.failed_days.tolist():
        states[page.place[day]] = "f"
    for place, state, value in zip(places, judgement.states, series.values.tolist(), strict=True):
        states[place] = state
        values[place] = _short(value)
    data: dict[str, Any] = {
        "n": series.label,
        "m": series.metric,
        "u": series.unit,
        "d": series.sign,
        "v": VERDICTS.index(judgement.verdict),
        "w": judgement.words,
        "t": judgement.text,
        "s": "".join(states),
        "x": list(values.values()),
        "e": _environments(page, series, places),
        "g": [_change(page, one) for one in judgement.changes],
    }
    data |= _levels(judged)
    exceptions = [
        [place, page.commits.number(commit) if commit else -1]
        for place, day, commit in zip(places, series.days.tolist(), series.commits, strict=True)
        if (page.commits.number(commit) if commit else -1) != page.night_commits.get(day, -1)
    ]
    if exceptions:
        data["c"] = exceptions
    return data | _samples(page, series)


def _levels(judged: Judged) -> dict[str, Any]:
    judgement = judged.judgement
    found: dict[str, Any] = {}
    if judgement.level is not None:
        found["l"] = _short(judgement.level)
    if judged.pin is not None and judgement.own_level is not None:
        found["o"] = _short(judgement.own_level)
    if judgement.transients:
        found["z"] = [
            [night_text(one.first_day), one.nights, _short(one.value), round(one.percent, 1)]
            for one in judgement.transients
        ]
    return found


def _environments(page: _Page, series: Series, places: Sequence[int]) -> list[list[int]]:
    """Where each environment starts: night, number of its text."""
    found: list[list[int]] = []
    before = None
    for place, environment in zip(places, series.environments, strict=True):
        if environment != before:
            text = ", ".join(f"{name} {value}" for name, value in environment)
            found.append([place, page.environments.number(text)])
            before = environment
    return found


def _change(page: _Page, change: Change) -> list[Any]:
    causes = "; ".join(f"{name} from {old} to {new}" for name, old, new in change.causes)
    return [
        change.kind,
        page.place[change.first_day],
        page.place[change.settled_day],
        _short(change.before),
        _short(change.after),
        round(change.percent, 2),
        causes or (f"commit {change.commits}" if change.commits else ""),
    ]


def _samples(page: _Page, series: Series) -> dict[str, Any]:
    """Samples of the last nights: how many of each night, values where they are several, attempts, odd runs."""
    if series.rows is None or not len(series.rows):
        return {}
    # Environments that share a night have rows in between each other; the page shows a night as one.
    nights: dict[int, list[int]] = {}
    for day, first, count in zip(series.days.tolist(), series.rows.tolist(), series.counts.tolist(), strict=True):
        if day >= page.first_sample_day:
            one = nights.setdefault(day, [first, 0])
            one[0], one[1] = min(one[0], first), one[1] + count
    counts = [count for _, count in nights.values()]
    behind = [row for first, count in nights.values() for row in range(first, first + count)]
    columns = page.columns
    data: dict[str, Any] = {"a": columns["ref"][behind].tolist()}
    if any(count != 1 for count in counts):
        data["q"] = counts
        data["y"] = [_short(value) for value in columns["value"][behind].tolist()]
    sources, days = columns["source"][behind].tolist(), columns["day"][behind].tolist()
    odd = [[at, run] for at, (run, day) in enumerate(zip(sources, days, strict=True)) if run != page.night_runs[day]]
    return {**data, **({"r": odd} if odd else {})}


def _short(value: float) -> float:
    """As many digits as are worth carrying."""
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
