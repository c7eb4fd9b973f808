"""Lint: every rule over one variant, parallelism and GPU, all findings in one pass."""

from __future__ import annotations

from harness.hardware import is_gpu
from harness.lint import rules_attention, rules_experts, rules_formats, rules_helix, rules_layout, rules_memory
from harness.lint.facts import Facts, RuleInfo, rulebook
from harness.lint.finding import SEVERITIES, Finding, Problem, Severity
from harness.lint.registry import CHECKS
from harness.lint.subject import Gpu, Settings, Subject, target_of
from harness.lint.versions import version_key
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill, Serve

#: Importing these registers their rules.
RULE_MODULES = (rules_attention, rules_formats, rules_experts, rules_helix, rules_layout, rules_memory)

DEFAULTS = Settings()


def lint(
    variant: Variant,
    parallelism: Parallelism,
    system: Gpu,
    *,
    workload: Prefill | Decode | Serve | None = None,
    version: str | None = None,
    strict: bool = False,
    deployed: bool = False,
    facts: Facts | None = None,
    settings: Settings = DEFAULTS,
) -> list[Finding]:
    """Return every finding about one variant, the worst first; no rule keeps another from speaking.

    `version` is the TensorRT-LLM version that facts must hold for, by default the one of the published tables. `strict`
    turns the warnings into errors that `lint_rules.yaml` names. `deployed` asks too whether the whole model fits into
    memory, which a question about its ops or layers need not. `facts` replaces what is known about GPUs and kernels. Of
    a CPU (`target_of("cpu")`) only the rules about shapes and splits are asked, which hold whatever runs the case.
    Raises UsageError where `version` is none.
    """
    book = rulebook()
    known = facts or book.facts
    assumed = known.target_version if version is None else version
    if assumed:
        version_key(assumed)
    subject = Subject(variant, parallelism, system, workload, assumed, known, settings, deployed)
    findings = [
        _finding(rule_id, info, problem, variant.name, strict)
        for rule_id, info in book.rules.items()
        if info.on_cpu or is_gpu(system.key)
        for problem in CHECKS[rule_id](subject)
    ]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def lint_case(
    case: Case,
    *,
    version: str | None = None,
    strict: bool = False,
    deployed: bool = False,
    facts: Facts | None = None,
    settings: Settings = DEFAULTS,
) -> list[Finding]:
    """Return every finding about a case, as `lint` does; raise UsageError for a GPU that nobody knows."""
    return lint(
        case.variant,
        case.parallelism,
        target_of(case.system),
        workload=case.workload,
        version=version,
        strict=strict,
        deployed=deployed,
        facts=facts,
        settings=settings,
    )


def _finding(rule_id: str, info: RuleInfo, problem: Problem, variant: str, strict: bool) -> Finding:
    severity: Severity = problem.severity or (info.strict if strict and info.strict else info.severity)
    return Finding(
        rule=rule_id,
        severity=severity,
        variant=variant,
        field=problem.field,
        value=problem.value,
        limit=problem.limit,
        message=f"{variant}: {problem.text}",
        works=problem.works,
    )
