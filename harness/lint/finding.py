"""What lint says: one finding per broken rule, and the shape of what a rule itself reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]

#: Worst first.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Problem:
    """What a rule reports: a field, what it found there, what is allowed, why, and a setting that works.

    `severity` is its own, where that is not the one of its rule.
    """

    field: str
    value: int | str
    limit: str
    why: str
    works: str = ""
    severity: Severity | None = None

    @property
    def text(self) -> str:
        """The finding in one sentence, without the variant's name."""
        works = f". Works: {self.works}" if self.works else ""
        return f"{self.field} is {self.value} (limit: {self.limit}): {self.why}{works}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one variant under one rule. `message` says all of it in one line."""

    rule: str
    severity: Severity
    variant: str
    field: str
    value: int | str
    limit: str
    message: str
    works: str

    @property
    def text(self) -> str:
        """The message without the variant's name, for lists that are grouped by variant."""
        return self.message.removeprefix(f"{self.variant}: ")


def join(items: Iterable[object]) -> str:
    """Things in a row: `1, 2, 4`."""
    return ", ".join(map(str, items))


def either(*options: str) -> str:
    """Settings of which one is enough: `tp 4, or q_heads 48`; empty ones are left out."""
    return ", or ".join(filter(None, options))
