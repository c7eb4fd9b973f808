"""Policy of a history: what counts as a change. Every number that decides is here and nowhere else."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Policy:
    """When a change counts. `docs/history.md` says what the defaults find and miss, and how often they are wrong."""

    threshold_pct: float = 2.0
    """Smallest change that counts, in % of the reference level."""
    nights: int = 2
    """Nights that it has to last."""
    noise: float = 3.0
    """How many times the series' own noise it has to be."""
    gap: int = 3
    """Nights without a value, up to the last one, after which a series has no data."""
    history: int = 5
    """Nights with a value in one environment before anything is said."""
    news: int = 28
    """Nights for which an improvement, a change of environment or a lack of data is news."""

    @property
    def text(self) -> str:
        """The policy as a report prints it."""
        return (
            f"a change counts when it is at least {self.threshold_pct:g} % against the anchored level, "
            f"lasts at least {self.nights} {'night' if self.nights == 1 else 'nights'} and is larger than "
            f"{self.noise:g} times the series' own noise; no data after {self.gap} nights without a value; "
            f"at least {self.history} nights of history"
        )

    def to_data(self) -> dict[str, float | int]:
        """The policy as plain data."""
        return asdict(self)


#: Name on the command line → field and its largest and smallest value.
_LIMITS: dict[str, tuple[str, float, float]] = {
    "threshold": ("threshold_pct", 0.01, 90),
    "nights": ("nights", 1, 30),
    "noise": ("noise", 0, 100),
    "gap": ("gap", 1, 3650),
    "history": ("history", 3, 3650),
    "news": ("news", 1, 36500),
}

_WHOLE = {field.name for field in fields(Policy) if field.type == "int"}


def parse_policy(texts: Iterable[str], base: Policy | None = None) -> Policy:
    """Return the policy with changes such as `threshold=5%` or `nights=3,noise=3`.

    Raises UsageError with everything that is wrong in them.
    """
    changes: dict[str, float | int] = {}
    wrong = []
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _LIMITS or not equals:
            wrong.append(_unknown(name, part))
            continue
        field, low, high = _LIMITS[name]
        number = _number(value.removesuffix("%").strip() if name == "threshold" else value)
        if number is None or not low <= number <= high or (field in _WHOLE and number != int(number)):
            kind = "a whole number" if field in _WHOLE else "a number"
            wrong.append(f"--policy {name}={value}: has to be {kind} from {low:g} to {high:g}")
            continue
        changes[field] = int(number) if field in _WHOLE else number
    if wrong:
        raise UsageError(*wrong)
    return replace(base or Policy(), **changes)  # type: ignore[arg-type]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _unknown(name: str, part: str) -> str:
    close = difflib.get_close_matches(name, _LIMITS, 1)
    hint = f"; did you mean {close[0]}?" if close and close[0] != name else ""
    return f"--policy {part}: takes {', '.join(f'{known}=NUMBER' for known in _LIMITS)}{hint}"
