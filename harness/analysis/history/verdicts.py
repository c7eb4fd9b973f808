"""What a verdict on a series is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.analysis.history.nights import night_text

Verdict = Literal[
    "regression", "environment change", "improvement", "transient", "no data", "not enough history", "unchanged"
]

#: In the order in which they are shown: what asks for work first.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Kind = Literal["regression", "improvement", "environment change", "recovery", "shift"]

#: State of one night of a series, one letter each; the page colours them.
STATES = {
    "u": "at its level",
    "r": "regression",
    "i": "improvement",
    "e": "environment change",
    "t": "transient",
    "s": "off its level, too little or too short to count",
    "h": "not enough history",
    "f": "failed",
    ".": "no value",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level. `shift` is one that is too small to count; the reference stays where it was."""

    kind: Kind
    first_day: int
    """First night off the level before."""
    settled_day: int
    """First night of the level after; later than `first_day` where it came in steps."""
    before: float
    """Reference level that it is held against."""
    after: float
    percent: float
    """(after - before) / before, in %."""
    first_commit: str | None = None
    settled_commit: str | None = None
    causes: tuple[tuple[str, str, str], ...] = ()
    """Of an environment change: what changed, from, to."""

    @property
    def commits(self) -> str:
        """`c016`, `c013 to c017`, or empty where no commit is known or none is to blame."""
        if self.causes or not self.first_commit:
            return ""
        if self.settled_commit in {None, self.first_commit}:
            return self.first_commit
        return f"{self.first_commit} to {self.settled_commit}"

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "first_night": night_text(self.first_day),
            "settled_night": night_text(self.settled_day),
            "before": self.before,
            "after": self.after,
            "percent": self.percent,
            "commits": [self.first_commit, self.settled_commit] if self.commits else None,
            "causes": [{"what": what, "from": old, "to": new} for what, old, new in self.causes],
        }


@dataclass(frozen=True, slots=True)
class Transient:
    """Nights that stood out and were too few to be a change."""

    first_day: int
    last_day: int
    nights: int
    value: float
    """The furthest."""
    level: float
    percent: float
    ongoing: bool
    """Whether it reaches the last night with a value: it may yet become a change."""

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "first_night": night_text(self.first_day),
            "last_night": night_text(self.last_day),
            "nights": self.nights,
            "value": self.value,
            "level": self.level,
            "percent": self.percent,
            "ongoing": self.ongoing,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What is said of one series as of a night."""

    verdict: Verdict
    text: str
    """Why, in one sentence or two."""
    last_day: int | None
    """Last night with a value."""
    last_value: float | None
    level: float | None = None
    """Reference level: the anchored one, or that of the baseline it was judged against."""
    level_day: int | None = None
    """Since when that level holds."""
    own_level: float | None = None
    """The anchored level of the series itself."""
    current: float | None = None
    """Level of the last nights."""
    percent: float | None = None
    """(current - level) / level, in %."""
    noise_pct: float | None = None
    """Standard deviation from night to night, in %."""
    visible_pct: float | None = None
    """Smallest change that could have been seen."""
    noisy: bool = False
    """The noise hides changes that the policy asks for."""
    nights: int = 0
    """Nights with a value."""
    change: Change | None = None
    """The change that the verdict is about."""
    changes: tuple[Change, ...] = ()
    """All of them, in order of time."""
    transients: tuple[Transient, ...] = ()
    failed_since: tuple[int, ...] = ()
    """Nights after the last value on which it failed."""
    days_without: int = 0
    states: str = ""
    """State of each entry of the series, a letter of `STATES`."""

    @property
    def words(self) -> str:
        """The verdict with its flag: `unchanged, noisy`."""
        return f"{self.verdict}, noisy" if self.noisy else self.verdict
