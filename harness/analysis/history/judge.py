"""Judge one series as of a night."""

from __future__ import annotations

from dataclasses import replace

from harness.analysis.history.anchor import percent
from harness.analysis.history.nights import night_text
from harness.analysis.history.parts import Judging, Part, Pin, judging_of, pinned_to
from harness.analysis.history.policy import Policy
from harness.analysis.history.series import Series, changes_between, settle_environments
from harness.analysis.history.standing import states_of, transients_of
from harness.analysis.history.texts import other_baseline, sentence
from harness.analysis.history.verdicts import Change, Judgement, Transient, Verdict

#: A night that stood out is a verdict of its own for as many nights; later it is a note.
_RECENT = 7


def judge(series: Series, policy: Policy, as_of: int, pin: Pin | None = None) -> Judgement:
    """Return the verdict on a series as of a night; its later nights have to be cut off before.

    With `pin` it is held against that level instead of its own anchored one, unless that is of another environment.
    """
    if not len(series.days):
        return _no_data(Judging(series, (), policy, as_of, None, policy.threshold_pct))
    judging = judging_of(series, policy, as_of)
    if as_of - int(series.days[-1]) >= policy.gap:
        return _no_data(judging)
    clashes = pin.clashes(settle_environments(series.environments)[-1]) if pin else ()
    if pin is None or clashes:
        judgement = _verdict(judging, None)
        return replace(judgement, text=judgement.text + other_baseline(pin, clashes)) if pin else judgement
    return _verdict(pinned_to(judging, pin), pin)


def _verdict(judging: Judging, pin: Pin | None) -> Judgement:
    series, policy = judging.series, judging.policy
    part = judging.current
    changes, transients = _changes(judging), transients_of(judging)
    verdict, change = _choose(judging, part, changes, transients)
    noisy = verdict in {"unchanged", "transient"} and judging.limit_pct > policy.threshold_pct and not series.is_exact
    level, current = part.walk.level, _level_now(judging, part)
    judgement = Judgement(
        verdict=verdict,
        text="",
        last_day=int(series.days[-1]),
        last_value=float(series.values[-1]),
        level=judging.value(level),
        level_day=pin.day if pin else int(series.days[part.entries[part.levels.segments[part.walk.since].start]]),
        own_level=judging.value(part.own.level),
        current=judging.value(current),
        percent=percent(current - level, series.sign),
        noise_pct=judging.noise_pct,
        visible_pct=judging.limit_pct,
        noisy=noisy,
        nights=len(series.days),
        change=change,
        changes=changes,
        transients=transients,
        failed_since=_failed_since(series),
        days_without=judging.as_of - int(series.days[-1]),
        states=states_of(judging, changes, verdict),
    )
    return sentence(judgement, series, policy, f"baseline {pin.name} of {night_text(pin.day)}" if pin else None)


def _level_now(judging: Judging, part: Part) -> float:
    """Level of the last nights: as many as make a level, of the last segment, without those that stand out."""
    import numpy as np

    segment, levels = part.levels.segments[-1], part.levels
    cleaned = np.where(levels.outliers, levels.local, levels.logs)[segment.start : segment.end]
    return float(cleaned[-judging.policy.history :].mean())


def _choose(
    judging: Judging, part: Part, changes: tuple[Change, ...], transients: tuple[Transient, ...]
) -> tuple[Verdict, Change | None]:
    """The verdict and the change that it is about. What is open comes first, then the latest that counts."""
    policy, days = judging.policy, judging.series.days
    started = int(days[part.entries[0]])
    news = [one for one in changes if judging.as_of - one.settled_day < policy.news and one.settled_day >= started]
    if judging.series.is_exact:
        latest = next((one for one in reversed(news) if one.kind != "shift"), None)
        return ("environment change", latest) if latest else ("unchanged", None)
    if len(days) < policy.history:
        return "not enough history", None
    if part.walk.has_regressed:
        return "regression", _open_fall(changes, started)
    counted = [one for one in news if one.kind in {"environment change", "improvement"}]
    if counted:
        return ("environment change" if counted[-1].causes else "improvement"), counted[-1]
    if len(part.entries) < policy.history:
        return "not enough history", None
    recent = [one for one in transients if one.ongoing or judging.as_of - one.last_day < _RECENT]
    return ("transient" if recent else "unchanged"), None


def _open_fall(changes: tuple[Change, ...], started: int) -> Change:
    """All falls since the last recovery as one: from the first night of the first to the level of the last."""
    falls: list[Change] = []
    for one in changes:
        if one.kind == "regression" and one.first_day >= started:
            falls.append(one)
        elif one.kind in {"recovery", "improvement"}:
            falls = []
    first, last = falls[0], falls[-1]
    return replace(last, first_day=first.first_day, first_commit=first.first_commit)


def _changes(judging: Judging) -> tuple[Change, ...]:
    """All changes of all environments, in order of time."""
    found = [change for part in judging.parts for change in _steps_of(judging, part)]
    for part in judging.parts:
        entry = int(part.entries[0])
        if entry:
            found += _environment_change(judging, part, entry)
    return tuple(sorted(found, key=lambda one: (one.settled_day, one.first_day)))


def _steps_of(judging: Judging, part: Part) -> list[Change]:
    series, segments = judging.series, part.levels.segments
    changes = []
    for step in part.walk.steps:
        first, settled = (int(part.entries[segments[one].start]) for one in (step.first, step.settled))
        changes.append(
            Change(
                kind="environment change" if series.is_exact and step.kind != "shift" else step.kind,
                first_day=int(series.days[first]),
                settled_day=int(series.days[settled]),
                before=judging.value(step.before),
                after=judging.value(step.after),
                percent=percent(step.after - step.before, series.sign),
                first_commit=series.commits[first],
                settled_commit=series.commits[settled],
            )
        )
    return changes


def _environment_change(judging: Judging, part: Part, entry: int) -> list[Change]:
    """The change of level at the first night of an environment, where it is one."""
    series = judging.series
    before_part = next(one for one in judging.parts if entry - 1 in one.entries)
    before, after = before_part.last_level_before(entry), part.own.references[0]
    nights = 1 if series.is_exact else judging.policy.nights
    change_pct = percent(after - before, series.sign)
    if abs(change_pct) < judging.limit_pct or len(part.entries) < nights:
        return []
    causes = changes_between(series.environments[entry - 1], series.environments[entry])
    day = int(series.days[entry])
    value = judging.value
    return [Change("environment change", day, day, value(before), value(after), change_pct, causes=causes)]


def _failed_since(series: Series) -> tuple[int, ...]:
    """Nights after the last value on which it failed."""
    last = series.last_day
    return tuple(int(day) for day in series.failed_days if last is None or day > last)


def _no_data(judging: Judging) -> Judgement:
    series = judging.series
    last = series.last_day
    first = int(series.failed_days[0]) if last is None and len(series.failed_days) else judging.as_of
    changes = _changes(judging)
    judgement = Judgement(
        verdict="no data",
        text="",
        last_day=last,
        last_value=float(series.values[-1]) if last is not None else None,
        own_level=judging.value(judging.current.own.level) if judging.parts else None,
        noise_pct=judging.noise_pct,
        nights=len(series.days),
        changes=changes,
        transients=transients_of(judging),
        failed_since=_failed_since(series),
        days_without=judging.as_of - (last if last is not None else first - 1),
        states=states_of(judging, changes, "no data") if judging.parts else "",
    )
    return sentence(judgement, series, judging.policy, None)
