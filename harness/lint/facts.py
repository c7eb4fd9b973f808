"""What the rules know about GPUs, formats and TensorRT-LLM versions, read from `harness/data/lint_rules.yaml`.

Every fact names its evidence and when that was read; `since` and `before` bound the versions it was seen for. A list of
facts that is empty is silent: no rule assumes what nothing says.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator, model_validator

from harness.errors import UnreadableInput, UsageError
from harness.files import read_yaml
from harness.lint.finding import Severity, join
from harness.lint.versions import version_key, within
from harness.spec.base import Spec, parse

RULES_FILE = Path(__file__).resolve().parent.parent / "data" / "lint_rules.yaml"

Format = Literal["bf16", "fp8", "fp8_block", "nvfp4", "fp32"]
Part = Literal["weights", "kv", "attention"]
Count = Annotated[int, Field(gt=0)]


class Dated(Spec):
    """A fact with its evidence, and the TensorRT-LLM versions it holds for."""

    since: str = ""
    before: str = ""
    evidence: Annotated[str, Field(min_length=1)]
    read: dt.date | None = None

    @field_validator("since", "before")
    @classmethod
    def _is_version(cls, value: str) -> str:
        try:
            if value:
                version_key(value)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return value

    def holds(self, version: str) -> bool:
        """Whether this fact speaks about a version."""
        return within(version, self.since, self.before)


DatedT = TypeVar("DatedT", bound=Dated)


def in_force(facts: Iterable[DatedT], version: str) -> list[DatedT]:
    """The facts that hold for a version."""
    return [fact for fact in facts if fact.holds(version)]


class OnGpus(Dated):
    """A fact about GPUs: exact SM versions, or every one from a number up; neither means all GPUs."""

    sm: tuple[int, ...] = ()
    min_sm: int | None = None

    @model_validator(mode="after")
    def _one_way(self) -> OnGpus:
        if self.sm and self.min_sm is not None:
            raise ValueError("give sm or min_sm, not both")
        return self

    def covers(self, sm: int) -> bool:
        """Whether a GPU of this SM version is meant."""
        if self.min_sm is not None:
            return sm >= self.min_sm
        return not self.sm or sm in self.sm

    @property
    def gpus(self) -> str:
        """The GPUs in words."""
        return f"sm {self.min_sm} or later" if self.min_sm is not None else f"sm {join(self.sm)}"


class Multiple(Dated):
    """A size that must be a whole number of blocks."""

    multiple: Count
    why: str


class HeadSizes(OnGpus):
    """Head sizes: those accepted, those that fail, or those with a fused kernel, depending on the list it stands in."""

    sizes: tuple[int, ...]
    why: str = ""


class FusedHeadSizes(OnGpus):
    """Head sizes with a fused attention kernel for these KV formats and attention arithmetics."""

    sizes: tuple[int, ...]
    kv: tuple[Format, ...]
    attention: tuple[Format, ...] = ("bf16", "fp8")


class GroupSizes(OnGpus):
    """Group sizes G that the fast decode kernels were seen with."""

    sizes: tuple[int, ...]


class LargestGroup(OnGpus):
    """The largest G that grouped decode kernels take."""

    largest: Count


class GroupFactor(Dated):
    """How much slower decode was measured past the largest G, on one system."""

    system: str
    sm: int
    group_sizes: tuple[int, int]
    """Compared with each other: slow, fast."""
    factor_min: float
    factor_median: float
    factor_max: float
    pairs: Count


class FormatSupport(OnGpus):
    """GPUs on which a format computes natively."""

    part: Part
    format: Format
    otherwise: str = ""
    """What happens on other GPUs."""


class NotRun(Dated):
    """A format that no GPU runs under TensorRT-LLM as it should be."""

    format: Format
    why: str


class Substitute(OnGpus):
    """A build that runs something else instead of a format it cannot compute in."""

    format: Format
    runs: str


class AttentionKv(Dated):
    """KV formats that one attention arithmetic can read."""

    attention: Format
    kv: tuple[Format, ...]


class KvWeights(Dated):
    """Weight formats that are documented with one KV format."""

    kv: Format
    weights: tuple[Format, ...]


class MoeKernel(OnGpus):
    """One weight format that a MoE backend computes, and where."""

    format: Format
    evidence: str = "that of the backend"


class MoeBackend(Dated):
    """One value of `moe_config.backend`."""

    kernels: tuple[MoeKernel, ...]
    eplb: bool = True
    absent: str = "it is not there yet"
    """Why versions outside the bounds have none."""


class MoeDefault(Dated):
    """The backend that runs where none is named."""

    backend: str


class HelixAttention(Dated):
    """A kind of attention that Helix runs."""

    kind: Literal["full", "sliding", "mla"]


class Helix(Spec):
    """What Helix (`context_parallel_size` > 1) needs."""

    gpus: OnGpus
    attention: tuple[HelixAttention, ...]
    empty_ranks: Dated
    """Versions that accept a sequence with fewer KV blocks than ranks."""


class Facts(Spec):
    """All facts that rules consult."""

    target_version: str = ""
    """The TensorRT-LLM version assumed where none is given."""
    head_size_multiple: Multiple | None = None
    accepted_head_sizes: tuple[HeadSizes, ...] = ()
    failing_head_sizes: tuple[HeadSizes, ...] = ()
    fused_head_sizes: tuple[FusedHeadSizes, ...] = ()
    fast_group_sizes: tuple[GroupSizes, ...] = ()
    largest_group_size: tuple[LargestGroup, ...] = ()
    group_size_factors: tuple[GroupFactor, ...] = ()
    block_sizes: dict[Format, Multiple] = {}
    formats: tuple[FormatSupport, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    substitutes: tuple[Substitute, ...] = ()
    attention_kv: tuple[AttentionKv, ...] = ()
    kv_weights: tuple[KvWeights, ...] = ()
    moe_defaults: tuple[MoeDefault, ...] = ()
    moe_backends: dict[str, MoeBackend] = {}
    helix: Helix | None = None

    def support(self, part: Part, format: str, version: str) -> list[FormatSupport]:
        """Where a format computes; an empty list means that nothing is known."""
        return [one for one in in_force(self.formats, version) if (one.part, one.format) == (part, format)]

    def never_run(self, format: str, version: str) -> list[NotRun]:
        """Why a format runs on no GPU; an empty list means that nothing says so."""
        return [one for one in in_force(self.not_run, version) if one.format == format]

    def computes(self, part: Part, format: str, sm: int, version: str) -> bool:
        """Whether a format computes natively on a GPU; True where nothing is known."""
        support = self.support(part, format, version)
        return not support or any(one.covers(sm) for one in support)


class RuleInfo(Spec):
    """What is said about one rule. `strict` is its severity under `--strict`; `on_cpu` asks it of a CPU too."""

    severity: Severity
    strict: Severity | None = None
    on_cpu: bool = False
    says: Annotated[str, Field(min_length=1)]
    evidence: Annotated[str, Field(min_length=1)]
    read: dt.date


class Rulebook(Spec):
    """The whole file: the rules and the facts."""

    rules: dict[str, RuleInfo]
    facts: Facts


@lru_cache(maxsize=1)
def rulebook() -> Rulebook:
    """The rules and facts that ship with the harness."""
    return read_rulebook(RULES_FILE)


def read_rulebook(path: Path) -> Rulebook:
    """Read a file like `lint_rules.yaml`; raise UnreadableInput with every finding."""
    try:
        return parse(Rulebook, read_yaml(path), str(path))
    except UsageError as error:
        raise UnreadableInput(str(error)) from error
