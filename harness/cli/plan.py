"""`trtllm-harness plan`: what a study or suite would run, without running it."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.options import Entry, echo_json, json_option, memory_option, study_options
from harness.runner.plan import Plan, Step, make_plan
from harness.spec.load import Overrides, load_suite

#: Cases listed without `--all`.
_LISTED = 20


@click.command("plan")
@click.argument("study", type=Entry("studies", "suites"))
@study_options
@click.option("--all", "list_all", is_flag=True, help="List every case, not the first 20.")
@click.option("--yes", is_flag=True, help="Accept a sweep of more than 20,000 cases.")
@memory_option
@json_option
def command(
    study: str, axes: tuple[str, ...], sets: tuple[str, ...], systems: tuple[str, ...],
    list_all: bool, yes: bool, ignore_memory: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show what STUDY (a study or suite, by name or path) would run.

    \b
    trtllm-harness plan a1d-group-size-decode -a G=8,16 --gpu b200_sxm
    """
    suite, studies = load_suite(study, Overrides(axes, sets, systems))
    plan = make_plan(suite, studies, allow_large=yes, ignore_memory=ignore_memory)
    if as_json:
        echo_json({**plan.summary(), "steps": [_step(step) for step in plan.steps]})
        return
    _echo_summary(plan)
    shown = plan.steps if list_all else plan.steps[:_LISTED]
    for step in shown:
        state = "" if step.will_run else f"  [{step.rejection or step.planned.skip_reason}]"
        case = step.planned.case
        click.echo(f"  {case.case_id}  {case.system:<12} {case.variant.name}  {case.workload.label}{state}")
    if len(shown) < len(plan.steps):
        click.echo(f"  … {len(plan.steps) - len(shown)} more (--all lists them)")


def _echo_summary(plan: Plan) -> None:
    counts = plan.summary()
    click.echo(
        f"{plan.suite.name}: {counts['cases']} cases ({counts['distinct_cases']} distinct), {counts['to_run']} to run, "
        f"{counts['rejected']} rejected, {counts['skipped']} skipped"
    )
    for what in ("per_study", "per_system"):
        click.echo("  " + ", ".join(f"{name} {count}" for name, count in counts[what].items()))


def _step(step: Step) -> dict[str, Any]:
    planned = step.planned
    return {
        "case_id": planned.case.case_id,
        "study": planned.study,
        "series": planned.series,
        "level": planned.level,
        "coordinates": planned.coordinates,
        "system": planned.case.system,
        "variant": planned.case.variant.name,
        "workload": planned.case.workload.label,
        "will_run": step.will_run,
        "reason": step.rejection or planned.skip_reason or None,
    }
