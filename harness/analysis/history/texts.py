"""The sentences of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.analysis.history.nights import night_text
from harness.analysis.history.parts import Pin
from harness.analysis.history.policy import Policy
from harness.analysis.history.series import Series
from harness.analysis.history.verdicts import Change, Judgement, Transient
from harness.results.metrics import significant

#: Steps on the way to a change that are told apart from one that came at once.
_PLURAL = {1: "1 night"}


def sentence(judgement: Judgement, series: Series, policy: Policy, baseline: str | None) -> Judgement:
    """The judgement with its text."""
    told = {
        "regression": lambda: _changed(judgement, series, policy, baseline),
        "improvement": lambda: _changed(judgement, series, policy, baseline),
        "environment change": lambda: _environment(judgement, series),
        "transient": lambda: _transient_text(judgement, policy),
        "no data": lambda: _no_data(judgement, series),
        "not enough history": lambda: _short(series, policy),
        "unchanged": lambda: _unchanged(judgement, baseline),
    }[judgement.verdict]()
    if judgement.noisy:
        told += (
            f"; noisy ({judgement.noise_pct:.1f} % from night to night): a change of "
            f"{policy.threshold_pct:g} % could not be seen in this series, one of {judgement.visible_pct:.1f} % could"
        )
    if judgement.verdict not in {"transient", "not enough history"} and judgement.transients:
        told += "; transient: " + _transients(judgement.transients)
    if judgement.failed_since and judgement.verdict != "no data":
        told += f"; since then it {_failed(judgement, series)}"
    return replace(judgement, text=told)


def other_baseline(pin: Pin, clashes: Sequence[tuple[str, str, str]]) -> str:
    """Why a series is not held against a baseline."""
    what = "; ".join(f"{name} {old} there and {new} here" for name, old, new in clashes)
    return f"; not held against baseline {pin.name} of {night_text(pin.day)}: {what}"


def _changed(judgement: Judgement, series: Series, policy: Policy, baseline: str | None) -> str:
    change = judgement.change
    assert change is not None
    assert judgement.current is not None
    against = baseline or "level"
    how = " by steps" if change.first_day != change.settled_day else ""
    verb = "falls" if change.after < change.before else "rises"
    blame = f", {_blame(change)}" if change.commits else ""
    nights = int((series.days >= change.settled_day).sum())
    percent = judgement.percent if change.kind == "regression" else change.percent
    text = (
        f"{against} of {significant(change.before)} {verb} to {significant(judgement.current)} {series.unit} "
        f"({percent:+.1f} %){how} {_when(change)}{blame}, for {nights_text(nights)} so far"
    )
    if change.kind == "improvement" and not baseline:
        text += "; the reference level moves up with it"
    if change.kind == "regression" and not _steep(change, series, policy):
        text += "; no single night falls by as much as counts"
    return text


def _steep(change: Change, series: Series, policy: Policy) -> bool:
    """Whether one night alone fell by the threshold on the way to a change."""
    inside = [entry for entry, day in enumerate(series.days) if change.first_day <= day <= change.settled_day and entry]
    drops = [series.sign * (series.values[entry] / series.values[entry - 1] - 1) * 100 for entry in inside]
    return bool(drops) and min(drops) <= -policy.threshold_pct


def _when(change: Change) -> str:
    if change.first_day == change.settled_day:
        return f"from {night_text(change.settled_day)}"
    return f"between {night_text(change.first_day)} and {night_text(change.settled_day)}"


def _blame(change: Change) -> str:
    return f"commit {change.commits}" if " to " not in change.commits else f"commits {change.commits}"


def _environment(judgement: Judgement, series: Series) -> str:
    change = judgement.change
    assert change is not None
    cause = "; ".join(f"{name} went from {old} to {new}" for name, old, new in change.causes)
    verb = "falls" if change.after < change.before else "rises"
    if series.is_exact:
        verb = "prediction changed,"
        cause = cause or "no version that is recorded says why"
    levels = f"from {significant(change.before)} to {significant(change.after)} {series.unit}"
    return (
        f"{verb} {levels} ({change.percent:+.1f} %) from {night_text(change.settled_day)}: {cause}; "
        "the reference level restarts, no commit is blamed"
    )


def _transient_text(judgement: Judgement, policy: Policy) -> str:
    last = judgement.transients[-1]
    told = _transients(judgement.transients[-1:])
    return (
        f"{told}; a change if it lasts {nights_text(policy.nights)}" if last.ongoing else f"{told}; back at its level"
    )


def _transients(found: tuple[Transient, ...], most: int = 3) -> str:
    told = [
        f"{nights_text(one.nights)} at {significant(one.value)} ({one.percent:+.1f} %) on {night_text(one.first_day)}"
        for one in found[-most:]
    ]
    rest = len(found) - most
    return ", ".join(told) + (f", and {rest} earlier" if rest > 0 else "")


def _no_data(judgement: Judgement, series: Series) -> str:
    if judgement.last_day is None or judgement.last_value is None:
        return f"never had a value; {_failed(judgement, series)}"
    text = (
        f"last value {significant(judgement.last_value)} {series.unit} on {night_text(judgement.last_day)}; "
        f"{nights_text(judgement.days_without)} without a value"
    )
    if not judgement.failed_since:
        return f"{text}, not run since"
    return f"{text}; {_failed(judgement, series)}"


def _failed(judgement: Judgement, series: Series) -> str:
    """`failed on 2026-03-19`, with its status where that says more."""
    status = series.failures[-1]
    how = "" if status in {"failed", "fail"} else f" ({status})"
    return f"failed{how} on {_nights(judgement.failed_since)}"


def _nights(days: tuple[int, ...], most: int = 4) -> str:
    rest = len(days) - most
    return ", ".join(map(night_text, days[-most:])) + (f" and on {rest} more nights before" if rest > 0 else "")


def _short(series: Series, policy: Policy) -> str:
    values = ", ".join(significant(value) for value in series.values[-4:])
    if len(series.days) < policy.history:
        count = len(series.days)
        return f"{count} {'value' if count == 1 else 'values'} ({values}); {policy.history} nights are needed"
    return (
        f"its environment is new and no change of level counts yet (last values {values}); "
        f"{policy.history} nights are needed"
    )


def _unchanged(judgement: Judgement, baseline: str | None) -> str:
    assert judgement.current is not None
    assert judgement.percent is not None
    against = baseline or "its level"
    moved = f"{judgement.percent:+.1f} %" if abs(judgement.percent) >= 0.05 else "0.0 %"  # never -0.0
    text = f"at {significant(judgement.current)}, {moved} from {against}"
    recovered = next((one for one in reversed(judgement.changes) if one.kind in {"recovery", "regression"}), None)
    if recovered and recovered.kind == "recovery":
        text += f"; recovered on {night_text(recovered.settled_day)}"
    return text


def nights_text(count: int) -> str:
    """`1 night`, `3 nights`."""
    return _PLURAL.get(count, f"{count:,} nights")
