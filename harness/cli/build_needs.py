"""What `trtllm-harness build` has to build: for which TensorRT-LLM, and what lint lets pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING

from harness.cli.lint import DEFAULT_GPUS
from harness.errors import UsageError
from harness.hardware import is_gpu, load_system
from harness.lint import Finding, Settings, lint, lint_case
from harness.lint.facts import rulebook
from harness.lint.versions import version_key
from harness.runner.plan import make_plan
from harness.spec.load import Overrides, load_suite, load_variant
from harness.spec.parallelism import Parallelism

if TYPE_CHECKING:
    from harness.engines.needs import EngineOptions, Needs
    from harness.spec.case import Case


@dataclass(frozen=True, slots=True)
class Version:
    """The TensorRT-LLM version that is built for, and why it."""

    text: str
    why: str


def version_for(asked: str, kind: str) -> Version:
    """The version to build for: the one asked, else the one installed, else the one that prices are of.

    Raises UsageError where nothing is known of it, or where it builds no plans and `kind` is `tensorrt`.
    """
    from harness.engines.llm_fields import check_version

    try:
        installed = metadata.version("tensorrt_llm").partition("+")[0]  # without a local build's own part
    except metadata.PackageNotFoundError:
        installed = ""
    if asked != "auto":
        version = Version(asked, "as asked")
    elif installed:
        version = Version(installed, "installed here")
    else:
        version = Version(rulebook().facts.target_version, "that of the published kernel measurements")
    version = Version(check_version(version.text), version.why + _beyond(version.text))
    if kind == "tensorrt":
        from harness.engines import plans

        plans.check_version(version.text)
        if installed and version.text != installed:
            raise UsageError(
                f"--engine tensorrt: plans are built by the TensorRT-LLM that is installed, {installed}, "
                f"not {version.text}; leave --trtllm-version out"
            )
    return version


def _beyond(version: str) -> str:
    """What to know of a version later than any whose settings were read."""
    from harness.engines.llm_args import TRTLLM_VERSIONS

    newest = TRTLLM_VERSIONS[-1]
    later = version_key(version) > version_key(newest)
    return f"; later than {newest}, the newest whose settings were read: those of {newest} are written" if later else ""


def needs_of_variant(
    what: str, axes: tuple[str, ...], sets: tuple[str, ...], systems: tuple[str, ...], options: EngineOptions
) -> Needs:
    """The engine of one variant. Without --gpu one GPU that takes it is enough, else each that does not is named."""
    from harness.engines.needs import Needs, variant_need

    if axes:
        raise UsageError(f"-a {axes[0]}: a variant has no axes; give a study, or change a field with --set")
    _check_gpus(systems)
    variant = load_variant(what, sets)
    judged, settings = _Judged(), Settings(moe_backend=options.moe_backend)
    for key in dict.fromkeys(systems or DEFAULT_GPUS):
        errors = _errors(lint(variant, Parallelism(), load_system(key), version=options.version, settings=settings))
        judged.add(errors, key)
    if not judged.accepted:
        raise UsageError(*judged.problems)
    return Needs([variant_need(variant, options)], judged.problems if systems else [])


def needs_of_study(what: str, overrides: Overrides, yes: bool, options: EngineOptions) -> Needs:
    """The engines of every case that lint lets pass, study by study."""
    from harness.engines.needs import merged, study_needs

    suite, studies = load_suite(what, overrides)
    plan = make_plan(suite, studies, allow_large=yes, ignore_memory=True)
    _check_gpus(step.planned.case.system for step in plan.steps)
    judged, settings = _Judged(), Settings(moe_backend=options.moe_backend)
    cases: dict[str, list[Case]] = {study.name: [] for study in studies}
    for step in plan.steps:
        planned = step.planned
        if planned.skip_reason:
            continue
        errors = _errors(lint_case(planned.case, version=options.version, settings=settings))
        judged.add(errors, planned.case.system)
        if not errors:
            cases[planned.study].append(planned.case)
    needs = merged([study_needs(passed, options) for passed in cases.values()])
    needs.problems = [*judged.problems, *dict.fromkeys(needs.problems)]
    if not needs.engines:
        raise UsageError(*(needs.problems or [f"{what}: the study leaves out every case; there is nothing to build"]))
    return needs


def _check_gpus(systems: Iterable[str]) -> None:
    if not all(map(is_gpu, systems)):
        raise UsageError(
            "cpu: engines are TensorRT-LLM's, which runs on GPUs only; name one, for example --gpu b200_sxm"
        )


def _errors(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == "error"]


@dataclass(slots=True)
class _Judged:
    """What lint says: errors with their GPUs, and how often there was none."""

    rejected: dict[Finding, dict[str, None]] = field(default_factory=dict)
    accepted: int = 0

    def add(self, errors: list[Finding], system: str) -> None:
        self.accepted += not errors
        for finding in errors:
            self.rejected.setdefault(finding, {})[system] = None

    @property
    def problems(self) -> list[str]:
        return [f"{one.rule}: {one.message}  [{', '.join(where)}]" for one, where in self.rejected.items()]
