"""What is taken for granted of TensorRT-LLM and was never executed here, from `harness/data/trtllm_evidence.yaml`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from harness.files import read_yaml
from harness.lint.versions import version_key, within
from harness.spec.base import Spec, parse

EVIDENCE_FILE = Path(__file__).resolve().parents[2] / "data" / "trtllm_evidence.yaml"

#: What `harness.lint.versions` compares; builds add to it.
_RELEASE = re.compile(r"\d+\.\d+(\.\d+)?(rc\d+)?(\.post\d+)?")

_Text = Annotated[str, Field(min_length=1)]


class Fact(Spec):
    """One thing taken for granted."""

    says: _Text
    since: str = ""
    before: str = ""
    used: _Text
    source: _Text
    check: str = ""
    cannot: str = ""
    first: _Text

    @field_validator("since", "before")
    @classmethod
    def _is_version(cls, value: str) -> str:
        if value:
            version_key(value)
        return value

    @model_validator(mode="after")
    def _is_checked_or_says_why_not(self) -> Fact:
        if bool(self.check) == bool(self.cannot):
            raise ValueError("needs either `check` or `cannot`")
        return self

    @property
    def versions(self) -> str:
        """The versions that it was read for, in words."""
        if not self.since and not self.before:
            return "1.2.1 on"
        if not self.since:
            return f"1.2.1 to below {self.before}"
        return f"{self.since} to below {self.before}" if self.before else f"{self.since} on"

    def concerns(self, version: str) -> bool:
        """Whether it was read for a version; of text that is none, facts of all versions alone are."""
        known = release_of(version)
        return within(known, self.since, self.before) if known else not self.since and not self.before


class _File(Spec):
    read: dt.date
    facts: dict[str, Fact]


def release_of(version: str) -> str:
    """Return the release that a build belongs to, `1.3.0rc8` for `1.3.0rc8.dev3+g1`; empty for text that is none."""
    found = _RELEASE.match(version)
    return found[0] if found else ""


@lru_cache(maxsize=1)
def facts() -> Mapping[str, Fact]:
    """Id → fact, in the order of the file."""
    return parse(_File, read_yaml(EVIDENCE_FILE), str(EVIDENCE_FILE)).facts


def evidence_table() -> str:
    """Return the facts as a Markdown table."""
    rows = [
        "| fact | versions | used for | read in | checked by `selftest` | look first at |",
        "|---|---|---|---|---|---|",
    ]
    for name, fact in facts().items():
        checked = "yes" if fact.check else f"no: {fact.cannot}"
        cells = (f"`{name}`: {fact.says}", fact.versions, fact.used, fact.source, checked, fact.first)
        rows.append(f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows)
