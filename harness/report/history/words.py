"""What every form of a history says, in the same words."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analysis.history import History, Judged, Verdict, night_text
from harness.results.metrics import significant

#: Verdicts that are listed one by one; of the others the number is enough.
ATTENTION: tuple[Verdict, ...] = (
    "regression",
    "environment change",
    "improvement",
    "transient",
    "no data",
    "not enough history",
)

#: Of the table of series.
COLUMNS = ("verdict", "series", "metric", "level", "now", "change", "why")


def title(history: History) -> str:
    """What it is a history of."""
    return f"{len(history.judged):,} series as of {night_text(history.as_of)}"


def counts_text(history: History) -> str:
    """`139 rows, 137 usable values, 1 failed, 1 rejected`."""
    counts = history.counts
    parts = [
        f"{counts.rows:,} rows",
        f"{counts.usable:,} usable values",
        f"{counts.failed:,} failed",
        f"{counts.rejected:,} rejected",
    ]
    more = {"not asked": counts.not_asked, "disturbed": counts.disturbed, "there twice": counts.duplicates}
    return ", ".join([*parts, *(f"{number:,} {what}" for what, number in more.items() if number)])


_SHORT: dict[Verdict, str] = {"environment change": "environment", "not enough history": "short"}


def tally_text(history: History) -> str:
    """`7 series: 1 regression, 2 environment, 1 improvement, 1 no data, 1 short, 1 unchanged`."""
    tally = history.tally
    noisy = sum(one.judgement.noisy for one in history.judged)
    parts = [f"{tally[verdict]:,} {_SHORT.get(verdict, verdict)}" for verdict in tally if tally[verdict]]
    text = f"{len(history.judged):,} series: {', '.join(parts)}"
    return f"{text} ({noisy:,} noisy)" if noisy else text


def facts(history: History) -> Iterator[tuple[str, str]]:
    """What was judged, and how."""
    yield "Rows", counts_text(history)
    yield "Verdicts", tally_text(history)
    yield "Policy", history.policy.text
    if history.baseline:
        held = sum(one.pin is not None for one in history.judged)
        yield "Baseline", f"{history.baseline}, for {held:,} of the series; the series' own level is shown beside it"


def warnings(history: History) -> Iterator[str]:
    """What could not be read or does not count, by name."""
    yield from (f"not read: {text}" for text in history.damage)
    yield from (f"rejected: {text}" for text in history.rejected)
    yield from history.remarks


def environment_lines(history: History) -> Iterator[str]:
    """Changes of environment that moved something, latest first."""
    yield from (note.text for note in reversed(history.notes) if note.moved)


def listed(history: History) -> list[Judged]:
    """Series that a reader has to see, in order; an unchanged one that is noisy or failed last is among them."""
    return [
        one
        for one in history.judged
        if one.judgement.verdict in ATTENTION or one.judgement.noisy or history.newly_fails(one.judgement)
    ]


def cells(one: Judged) -> list[str]:
    """One series as cells of `COLUMNS`."""
    judgement, series = one.judgement, one.series
    now = judgement.current if judgement.current is not None else judgement.last_value
    level = judgement.level if judgement.level is not None else judgement.own_level
    change = "" if judgement.percent is None else f"{judgement.percent:+.1f} %"
    if judgement.change is not None and judgement.verdict != "regression":
        change = f"{judgement.change.percent:+.1f} %"
    return [judgement.words, series.label, series.metric, _number(level), _number(now), change, why(one)]


def why(one: Judged) -> str:
    """The text of a verdict; beside a baseline, the series' own level."""
    judgement = one.judgement
    if one.pin is None or judgement.own_level is None:
        return judgement.text
    return f"{judgement.text}; own level {significant(judgement.own_level)}"


def _number(value: float | None) -> str:
    return "" if value is None else significant(value)
