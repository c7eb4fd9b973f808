"""Nights: to which UTC date a row counts, and which rows have no time that can be trusted."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

#: ISO 8601 with a time and an offset. Without an offset nobody knows which night it was, and none is guessed.
_WITH_OFFSET = r"^\s*\d{4}-?\d{2}-?\d{2}[T ]\d{2}.*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)\s*$"

_EPOCH = date(1970, 1, 1)


def instants(texts: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return the instants (UTC; NaT where there is none) that texts name, and why a text names none (else None).

    Texts with other offsets become the same instants, across the end of a year and the days on which clocks change.
    """
    import pandas as pd

    codes, distinct = pd.factorize(texts, use_na_sentinel=True)
    told = pd.Series([str(one) for one in distinct], dtype=object)
    has_offset = told.str.match(_WITH_OFFSET).astype(bool)
    times = pd.to_datetime(told.where(has_offset), utc=True, format="ISO8601", errors="coerce")
    why = [_why(text) if bad else None for text, bad in zip(told, times.isna(), strict=True)]
    # One more at the end for rows without a text, whose code is -1.
    found = pd.concat([times, pd.Series([pd.NaT], dtype=times.dtype)]).take(codes)
    reasons = pd.Series([*why, "no time of its start"], dtype=object).take(codes)
    return found.set_axis(texts.index), reasons.set_axis(texts.index)


def _why(text: str) -> str:
    if re.match(_WITH_OFFSET, text):
        return f"{text!r} cannot be read as a time"
    if re.match(r"\s*\d{4}-?\d{2}-?\d{2}", text):
        return f"{text!r} has no offset, so its night is unknown"
    return f"{text!r} is no time"


def days_of(times: pd.Series) -> pd.Series:
    """Days since 1970-01-01, UTC, as whole numbers; -1 where there is no time."""
    import pandas as pd

    days = (times - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(days=1)
    return days.fillna(-1).astype("int64")


def night_text(day: int) -> str:
    """`2026-03-11`."""
    return (_EPOCH + timedelta(days=int(day))).isoformat()


def parse_night(text: str, option: str) -> int:
    """The day that `2026-03-11` names. Raises UsageError naming the option."""
    try:
        return (date.fromisoformat(text.strip()) - _EPOCH).days
    except ValueError:
        raise UsageError(f"{option} {text}: has to be a date such as 2026-03-11") from None
