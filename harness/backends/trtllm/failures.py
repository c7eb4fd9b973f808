"""How TensorRT-LLM fails, from `harness/data/trtllm_failures.yaml`: what it writes, what that means, what helps."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from harness.backends.signature import Failure, Signature
from harness.files import read_yaml
from harness.spec.base import Spec, parse

FAILURES_FILE = Path(__file__).resolve().parents[2] / "data" / "trtllm_failures.yaml"

#: Groups of patterns that hold sizes in GiB.
_GIB = re.compile(r"(?P<name>\w+)_gib")


class FailureFact(Spec):
    """One way to fail."""

    name: str = Field(alias="class", min_length=1)
    status: Failure
    stage: Literal["launch", "start", "run", "anywhere"]
    patterns: tuple[str, ...] = Field(min_length=1)
    reason: str = ""
    advice: str = Field(min_length=1)
    evidence: str = Field(min_length=1)
    general: bool = False

    @field_validator("patterns")
    @classmethod
    def _compile(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern, re.MULTILINE)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return patterns


class _File(Spec):
    read: dt.date
    failures: tuple[FailureFact, ...]


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A failure that was recognised."""

    fact: FailureFact
    reason: str
    sizes_gib: Mapping[str, float] = field(default_factory=dict)
    """Figures that the message holds: `total`, `free`."""


@lru_cache(maxsize=1)
def failure_facts() -> tuple[FailureFact, ...]:
    """Everything that is known, in the order of the file."""
    return parse(_File, read_yaml(FAILURES_FILE), str(FAILURES_FILE)).failures


def signatures() -> tuple[Signature, ...]:
    """Return what the supervisor of a worker looks for. What stands first in the file wins at the same place."""
    # `match_signature` lets the last one win where two match at one place.
    return tuple(
        Signature(pattern, fact.status, fact.reason, fact.advice, fact.general)
        for fact in reversed(failure_facts())
        for pattern in reversed(fact.patterns)
    )


def recognise(text: str) -> KnownFailure | None:
    """Return the failure that the end of a log tells of, or None: specific ones first, then the last one written."""
    best: tuple[tuple[bool, int, int], KnownFailure] | None = None
    for order, fact in enumerate(failure_facts()):
        for pattern in fact.patterns:
            for match in re.finditer(pattern, text, re.MULTILINE):
                rank = (not fact.general, match.start(), -order)
                if best is None or rank > best[0]:
                    best = rank, _known(fact, match)
    return best[1] if best else None


def _known(fact: FailureFact, match: re.Match[str]) -> KnownFailure:
    groups = {name: value or "" for name, value in match.groupdict().items()}
    reason = fact.reason.format_map(groups) if fact.reason else match[0].strip()
    sizes = {found["name"]: float(groups[name]) for name in groups if (found := _GIB.fullmatch(name))}
    return KnownFailure(fact, reason, sizes)
