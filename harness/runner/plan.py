"""Plan a suite: every case in order, judged by lint and for memory, counted before anything is done.

Memory is judged at level `model` only: a study of ops or layers asks about kernels, not about a model that would be
deployed as it stands. On a CPU only impossible shapes and splits are rejected; how much memory it has is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.cost.remedies import rejection
from harness.errors import UsageError
from harness.hardware import check_system, is_gpu, load_system
from harness.lint import Finding, Settings, lint_case
from harness.lint.check import DEFAULTS
from harness.spec.case import Case
from harness.spec.expand import PlannedCase, count_cases, expand
from harness.spec.load import base_variant
from harness.spec.study import Study, Suite

#: A sweep larger than this is asked about: `--yes` runs it.
LARGE_SWEEP = 20_000


@dataclass(frozen=True, slots=True)
class Step:
    """One case of the plan. `rejection` says which lint errors, or how much memory, keep it from being asked at all."""

    number: int
    planned: PlannedCase
    rejection: str = ""

    @property
    def will_run(self) -> bool:
        """Whether this case will be asked."""
        return not self.rejection and not self.planned.skip_reason


@dataclass(frozen=True, slots=True)
class Plan:
    """All cases of a suite, in the order in which they run."""

    suite: Suite
    studies: tuple[Study, ...]
    steps: tuple[Step, ...]
    whole: tuple[Step, ...] = ()
    """Where only a part of a plan is asked, all of its steps, for which engines are made; else nothing."""
    ignore_memory: bool = False

    def judged_for(self, version: str, settings: Settings) -> Plan:
        """The same plan, its cases judged by lint for another version of TensorRT-LLM and its settings."""

        def judged(steps: Iterable[Step]) -> tuple[Step, ...]:
            return tuple(
                replace(one, rejection=_rejection(one.planned, self.ignore_memory, version, settings)) for one in steps
            )

        return replace(self, steps=judged(self.steps), whole=judged(self.whole))

    def summary(self) -> dict[str, Any]:
        """Counts for people and scripts."""
        rejected = sum(bool(step.rejection) for step in self.steps)
        skipped = sum(bool(step.planned.skip_reason) for step in self.steps)
        return {
            "suite": self.suite.name,
            "cases": len(self.steps),
            "distinct_cases": len({(step.planned.case.case_id, step.planned.level) for step in self.steps}),
            "to_run": len(self.steps) - rejected - skipped,
            "rejected": rejected,
            "skipped": skipped,
            "per_study": dict(Counter(step.planned.study for step in self.steps)),
            "per_system": dict(Counter(step.planned.case.system for step in self.steps)),
        }


def make_plan(
    suite: Suite, studies: Sequence[Study], *, allow_large: bool = False, ignore_memory: bool = False
) -> Plan:
    """Expand every study of a suite, lint its cases and weigh them, unless `ignore_memory`.

    Raises UsageError with all findings: unknown GPUs, impossible axis values, empty sweeps, and more than 20,000 cases
    unless `allow_large`.
    """
    _check_size(studies, allow_large)
    findings: list[str] = []
    planned: list[PlannedCase] = []
    for study in studies:
        try:
            for system in dict.fromkeys(key for part in study.parts for key in part.systems):
                check_system(system)
            planned += expand(study, base_variant(study))
        except UsageError as error:
            findings += error.findings
    if findings:
        raise UsageError(*dict.fromkeys(findings))
    steps = (Step(number, one, _rejection(one, ignore_memory)) for number, one in enumerate(planned))
    return Plan(suite, tuple(studies), tuple(steps), ignore_memory=ignore_memory)


def _check_size(studies: Sequence[Study], allow_large: bool) -> None:
    sizes = {study.name: count_cases(study) for study in studies}
    total = sum(sizes.values())
    if total > LARGE_SWEEP and not allow_large:
        largest = max(sizes, key=lambda name: sizes[name])
        raise UsageError(
            f"{total:,} cases are more than {LARGE_SWEEP:,} ({largest}: {sizes[largest]:,}); "
            "narrow an axis with -a NAME=VALUES, or say --yes to run them all"
        )


def _rejection(
    planned: PlannedCase, ignore_memory: bool, version: str | None = None, settings: Settings = DEFAULTS
) -> str:
    if planned.skip_reason:
        return ""
    found = lint_case(planned.case, version=version, settings=settings)
    errors = [finding for finding in found if finding.severity == "error"]
    if errors or ignore_memory or planned.level != "model":
        return "; ".join(_text(finding) for finding in errors)
    return out_of_memory(planned.case)


def out_of_memory(case: Case) -> str:
    """Why a case does not fit and what would, or nothing; a split that is impossible has no size to weigh."""
    if not is_gpu(case.system):
        return ""
    try:
        reason = rejection(case, load_system(case.system))
    except ValueError:
        return ""
    return f"memory: {reason}" if reason else ""


def _text(finding: Finding) -> str:
    return f"{finding.rule}: {finding.message}"
