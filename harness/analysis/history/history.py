"""A history: every series of some sources with its verdict, and what they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.analysis.history.build import Built, build_series
from harness.analysis.history.environment import EnvironmentNote, environment_notes
from harness.analysis.history.judge import judge
from harness.analysis.history.nights import night_text
from harness.analysis.history.observations import Counts, Source
from harness.analysis.history.parts import Pin
from harness.analysis.history.policy import Policy
from harness.analysis.history.series import Series
from harness.analysis.history.verdicts import VERDICTS, Judgement, Verdict
from harness.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Judged:
    """A series and what is said of it."""

    series: Series
    judgement: Judgement
    pin: Pin | None = None


@dataclass(frozen=True)
class History:
    """Everything that a report of a history shows."""

    judged: tuple[Judged, ...]
    """By verdict in the order of `VERDICTS`, then by label."""
    notes: tuple[EnvironmentNote, ...]
    counts: Counts
    policy: Policy
    as_of: int
    """The night as of which verdicts are given."""
    rows: pd.DataFrame
    """Rows behind the nights, see `build.Built`."""
    rejected: tuple[str, ...]
    damage: tuple[str, ...]
    remarks: tuple[str, ...]
    """What else is worth knowing of the sources."""
    baseline: str | None = None

    @property
    def tally(self) -> dict[Verdict, int]:
        """Series of every verdict, all of them named."""
        found = Counter(one.judgement.verdict for one in self.judged)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def is_worse(self) -> bool:
        """Whether a series regressed, or newly fails."""
        return any(one.judgement.verdict == "regression" or self.newly_fails(one.judgement) for one in self.judged)

    @property
    def is_incomplete(self) -> bool:
        """Whether something was unreadable, or a series lately stopped giving values."""
        return bool(self.damage) or any(
            one.judgement.verdict == "no data" and one.judgement.days_without < self.policy.news for one in self.judged
        )

    def newly_fails(self, judgement: Judgement) -> bool:
        """Whether a series that had values lately failed after the last of them."""
        lately = [day for day in judgement.failed_since if self.as_of - day < self.policy.news]
        return judgement.last_day is not None and bool(lately)


def _nothing(built: Built, sources: Sequence[Source], as_of: int | None) -> str:
    """Why there is no series to judge."""
    if built.series:
        return f"no series to judge: metrics that have some: {', '.join(sorted({one.metric for one in built.series}))}"
    days = [day for source in sources for day in source.table["day"].to_pylist()]
    if as_of is not None and days:
        return f"no series to judge as of {night_text(as_of)}: the first night is {night_text(min(days))}"
    rows = sum((source.counts for source in sources), Counts()).rows
    rejected = [text for source in sources for text in source.rejected]
    if not rejected:
        return f"no series to judge: {rows} rows, none of them with a value or a failure"
    return f"no series to judge: none of {rows} rows has a night and a value, such as {rejected[0]}"


def judge_history(
    sources: Sequence[Source],
    policy: Policy | None = None,
    *,
    as_of: int | None = None,
    metrics: Sequence[str] = (),
    damage: Sequence[str] = (),
    remarks: Sequence[str] = (),
    pins: Mapping[str, Pin] | None = None,
    baseline: str | None = None,
) -> History:
    """Judge every series of `sources` as of a night, by default the last on which anything was asked.

    `pins` are levels by the key of a series; those that have one are held against it. Raises UsageError where nothing
    has a night, or where no series has one of `metrics`.
    """
    policy = policy or Policy()
    built = build_series(sources, as_of)
    chosen = [one for one in built.series if not metrics or one.metric in metrics]
    if not chosen:
        raise UsageError(_nothing(built, sources, as_of))
    day = as_of if as_of is not None else built.last_day
    assert day is not None
    judged = [
        Judged(series, judge(series, policy, day, (pins or {}).get(series.key)), (pins or {}).get(series.key))
        for series in chosen
    ]
    judged.sort(key=lambda one: (VERDICTS.index(one.judgement.verdict), one.series.label, one.series.metric))
    counts = sum((source.counts for source in sources), Counts())
    return History(
        judged=tuple(judged),
        notes=environment_notes([(one.series, one.judgement) for one in judged]),
        counts=replace(counts, duplicates=built.duplicates, usable=counts.usable - built.duplicates),
        policy=policy,
        as_of=day,
        rows=built.rows,
        rejected=tuple(text for source in sources for text in source.rejected),
        damage=(*damage, *(text for source in sources for text in source.damage)),
        remarks=(*remarks, *(text for source in sources for text in source.notes)),
        baseline=baseline,
    )
