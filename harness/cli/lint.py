"""`trtllm-harness lint`: what is wrong with a variant, a study or a suite, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from harness.cli.kinds import is_variant
from harness.cli.options import SIZE, Entry, echo_json, json_option, study_options
from harness.errors import ExitCode, UsageError
from harness.files import parse_yaml
from harness.hardware import is_gpu
from harness.lint import Settings, Summary, lint, lint_case, target_of
from harness.lint.facts import rulebook
from harness.lint.summary import Merged
from harness.runner.plan import LARGE_SWEEP
from harness.spec.base import parse
from harness.spec.expand import count_cases, expand
from harness.spec.load import Overrides, base_variant, load_suite, load_variant
from harness.spec.parallelism import Parallelism
from harness.spec.study import Study
from harness.spec.workload import Decode, Prefill, Serve

#: GPUs that a variant is judged on where none is named: those of the demo.
DEFAULT_GPUS = ("b200_sxm", "h200_sxm")

_COLOURS = {"error": "red", "warning": "yellow", "info": "cyan"}
_PHASES: dict[str, type[Prefill | Decode | Serve]] = {"prefill": Prefill, "decode": Decode, "serve": Serve}


@click.command("lint")
@click.argument("what", type=Entry("variants", "studies", "suites"))
@study_options
@click.option(
    "-p", "--parallelism", "ways", multiple=True, metavar="NAME=VALUE", help="Change the parallelism: tp=4, cp=2."
)
@click.option("-w", "--workload", metavar="PHASE:NAME=N,…", help="Workload of a variant: decode:batch=8,kvsl=32768.")
@click.option(
    "--target-version", metavar="VERSION", help="TensorRT-LLM version to judge for; default that of the tables."
)
@click.option("--moe-backend", metavar="NAME", help="TensorRT-LLM's moe_config.backend.")
@click.option("--tokens-per-block", type=SIZE, help="TensorRT-LLM's kv_cache_config.tokens_per_block.")
@click.option("--cp-tokens-per-block", type=SIZE, help="TensorRT-LLM's cp_config.tokens_per_block (Helix).")
@click.option(
    "--strict", is_flag=True, help="Errors for what policy may refuse: duplicated KV heads, unfused head sizes."
)
@click.option("--yes", is_flag=True, help="Accept a sweep of more than 20,000 cases.")
@json_option
def command(
    what: str, axes: tuple[str, ...], sets: tuple[str, ...], systems: tuple[str, ...], ways: tuple[str, ...],
    workload: str | None, target_version: str | None, moe_backend: str | None, tokens_per_block: int | None,
    cp_tokens_per_block: int | None, strict: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Judge WHAT (a variant, study or suite, by name or path) against its GPUs, all findings at once.

    A variant may also be a model folder of Hugging Face, with its config.json.

    \b
    trtllm-harness lint dense-8b --gpu h200_sxm -p tp=4
    trtllm-harness lint a1d-group-size-decode --strict --json

    A variant without --gpu is judged on b200_sxm and h200_sxm. Exit code 2 where there is an error.
    """
    version = rulebook().facts.target_version if target_version is None else target_version
    settings = Settings(moe_backend, tokens_per_block, cp_tokens_per_block)
    options = {"version": version, "strict": strict, "settings": settings}
    problems: list[str] = []
    sets = (*sets, *(f"parallelism.{text.removeprefix('parallelism.')}" for text in ways))
    if is_variant(what):
        if axes:
            raise UsageError(f"-a {axes[0]}: a variant has no axes; give a study, or change a field with --set")
        summary = _judge_variant(what, sets, systems or DEFAULT_GPUS, workload, options)
    else:
        if workload:
            raise UsageError(
                f"-w {workload}: a study has its own workloads; change them with --set workloads.decode.batch=8"
            )
        _, studies = load_suite(what, Overrides(axes, sets, systems))
        summary, problems = _judge_studies(studies, yes, options)
    if as_json:
        echo_json(_as_data(what, summary, problems, version, strict))
    else:
        _echo(summary, version)
    if problems:
        raise UsageError(*problems)
    if summary.totals["error"]:
        click.get_current_context().exit(ExitCode.USAGE)


def _judge_variant(
    what: str, sets: Iterable[str], systems: Iterable[str], workload: str | None, options: dict[str, Any]
) -> Summary:
    sets = list(sets)
    ways = [text.removeprefix("parallelism.") for text in sets if text.startswith("parallelism.")]
    variant = load_variant(what, [text for text in sets if not text.startswith("parallelism.")])
    split = parse(Parallelism, _assignments(ways, "-p"), "-p")
    asked = _workload(workload) if workload else None
    summary = Summary()
    for key in dict.fromkeys(systems):
        findings = lint(variant, split, target_of(key), workload=asked, deployed=True, **options)
        summary.add(variant.name, key, findings)
    return summary


def _judge_studies(studies: Sequence[Study], yes: bool, options: dict[str, Any]) -> tuple[Summary, list[str]]:
    """Findings over every case, and what keeps a study from having cases at all."""
    summary = Summary()
    problems: list[str] = []
    for study in studies:
        try:
            _judge_study(study, yes, options, summary)
        except UsageError as error:
            problems += error.findings
    return summary, list(dict.fromkeys(problems))


def _judge_study(study: Study, yes: bool, options: dict[str, Any], summary: Summary) -> None:
    count = count_cases(study)
    if count > LARGE_SWEEP and not yes:
        raise UsageError(f"study {study.name}: {count:,} cases are more than {LARGE_SWEEP:,}; --yes judges them all")
    for planned in expand(study, base_variant(study)):
        if not planned.skip_reason:
            findings = lint_case(planned.case, deployed=planned.level == "model", **options)
            summary.add(planned.case.variant.name, planned.case.system, findings)


def _assignments(texts: Iterable[str], option: str) -> dict[str, Any]:
    """`name=value` texts as fields; values are YAML."""
    fields = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"{option} {text}: expected NAME=VALUE, for example tp=4")
        fields[name.strip()] = parse_yaml(value, f"{option} {text}")
    return fields


def _workload(text: str) -> Prefill | Decode | Serve:
    phase, _, fields = text.partition(":")
    if phase not in _PHASES:
        raise UsageError(f"-w {text}: '{phase}' is no phase; write decode:batch=8,kvsl=32768, prefill: or serve:")
    given = _assignments(filter(None, fields.split(",")), "-w")
    return parse(_PHASES[phase], {"phase": phase, **given}, f"-w {phase}")


def _as_data(what: str, summary: Summary, problems: list[str], version: str, strict: bool) -> dict[str, Any]:
    return {
        "what": what,
        "version": version,
        "strict": strict,
        "systems": list(summary.systems),
        "cases": summary.cases,
        "totals": summary.totals,
        "verdicts": summary.verdicts,
        "findings": [_finding(one) for one in summary.merged],
        "problems": problems,
    }


def _finding(one: Merged) -> dict[str, Any]:
    finding = one.finding
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "variant": finding.variant,
        "field": finding.field,
        "value": finding.value,
        "limit": finding.limit,
        "message": finding.message,
        "works": finding.works,
        "systems": one.systems,
        "cases": one.cases,
    }


def _echo(summary: Summary, version: str) -> None:
    """One line a finding, grouped by variant; variants without findings are counted, and named where there is one."""
    for variant, findings in summary:
        if findings or len(summary.verdicts) == 1:
            click.echo(variant)
        for one in findings:
            where = "" if len(summary.systems) == len(one.systems) else f"  [{', '.join(one.systems)}]"
            severity = click.style(f"{one.finding.severity:<7}", fg=_COLOURS[one.finding.severity])
            click.echo(f"  {severity}  {one.finding.rule}: {one.finding.text}{where}")
    ok, warnings, errors = summary.totals.values()
    cases = f", {summary.cases} cases" if summary.cases > len(summary.systems) else ""
    judged = f"TensorRT-LLM {version}" if any(map(is_gpu, summary.systems)) else "shapes and splits alone"
    click.echo(
        f"{len(summary.verdicts)} variant{'s' * (len(summary.verdicts) != 1)}{cases} on {', '.join(summary.systems)}, "
        f"{judged}: {ok} ok, {warnings} with warnings, {errors} with errors"
    )
