"""Kernel name → bucket, by the dated table `harness/data/kernel_buckets.yaml`."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from harness.files import read_yaml
from harness.profiles.kernels import Kind
from harness.spec.base import Spec, parse

BUCKETS_FILE = Path(__file__).resolve().parents[1] / "data" / "kernel_buckets.yaml"

COMMUNICATION = "communication"
COPY = "copy"
UNKNOWN = "unknown"
"""Bucket of kernels that no rule finds: listed by name, never guessed."""


class Bucket(Spec):
    """Kernels that are told apart from others by name, and the composed ops that they carry out."""

    title: str = Field(min_length=1)
    computes: bool
    ops: tuple[str, ...] = ()


class Rule(Spec):
    """A regular expression on kernel names, the bucket that it leads to, and where such names were read."""

    bucket: str
    name: str = Field(min_length=1)
    evidence: str = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _compiles(cls, name: str) -> str:
        try:
            re.compile(name)
        except re.error as error:
            raise ValueError(f"{name!r} is no regular expression: {error}") from None
        return name


class IterationName(Spec):
    """A regular expression on the names of ranges that mark one iteration each."""

    name: str = Field(min_length=1)
    evidence: str = Field(min_length=1)


class BucketTable(Spec):
    """All buckets and rules, in the order in which they are tried."""

    read: dt.date
    buckets: dict[str, Bucket]
    rules: tuple[Rule, ...] = Field(min_length=1)
    iterations: tuple[IterationName, ...] = ()

    @model_validator(mode="after")
    def _rules_lead_somewhere(self) -> BucketTable:
        unknown = {rule.bucket for rule in self.rules} - self.buckets.keys()
        if unknown:
            raise ValueError(f"no such bucket: {', '.join(sorted(unknown))}")
        return self

    def of_kernel(self, name: str, kind: Kind = "kernel") -> str:
        """The bucket of a kernel; copies and fills are what their kind says; `unknown` where no rule finds the name."""
        if kind != "kernel":
            return COPY
        return next((rule.bucket for rule in self.rules if re.search(rule.name, name)), UNKNOWN)

    def of_op(self, op: str) -> str | None:
        """The bucket of a composed op by its name; None where none takes it."""
        return next(
            (name for name, bucket in self.buckets.items() if any(re.search(one, op) for one in bucket.ops)), None
        )

    def is_iteration(self, name: str) -> bool:
        """Whether a range of this name marks one iteration."""
        return any(re.search(one.name, name) for one in self.iterations)

    def computes(self, bucket: str) -> bool:
        """Whether kernels of a bucket compute, so that communication beside them is hidden; unknown ones may not."""
        return bucket in self.buckets and self.buckets[bucket].computes

    def title(self, bucket: str) -> str:
        """How a report calls a bucket."""
        return self.buckets[bucket].title if bucket in self.buckets else "unknown kernels"

    def order(self, bucket: str) -> int:
        """Where a bucket stands among the others; the unknown ones come last."""
        names = [*self.buckets, UNKNOWN]
        return names.index(bucket)


@lru_cache(maxsize=1)
def kernel_buckets() -> BucketTable:
    """The table that ships with the harness."""
    return parse(BucketTable, read_yaml(BUCKETS_FILE), str(BUCKETS_FILE))
