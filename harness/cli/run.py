"""`trtllm-harness run`: price or measure a study or suite and write its report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.measure_options import measure_options, measured_with, on_option, refuse_given
from harness.cli.options import (
    Entry,
    PathType,
    deployment_options,
    echo_json,
    json_option,
    pricing_flags,
    study_options,
)
from harness.errors import ExitCode, Interrupted, combine_exit_codes
from harness.pricing.helix import OVERLAP
from harness.runner.choose import Choice, choose
from harness.runner.plan import Plan, make_plan
from harness.runner.price_run import PriceOptions, Progress, run_priced
from harness.runner.replace import replacing
from harness.runner.slots import FAILED
from harness.spec.load import Overrides, load_suite

if TYPE_CHECKING:
    from harness.results.store import Run

_PRICING = ("allow_extrapolation", "tables_as_is", "helix_overlap")


@click.command("run")
@click.argument("study", type=Entry("studies", "suites"))
@study_options
@on_option
@pricing_flags
@deployment_options
@click.option("--level", type=click.Choice(["layer", "model"]), help="Ask at this level instead of the study's.")
@measure_options
@click.option("--out", type=PathType(folder=True), required=True, help="Run folder to write.")
@click.option("--resume", is_flag=True, help="Complete the run that is in --out.")
@click.option("--replace", is_flag=True, help="Make what is in --out anew; refused where it holds measured rows.")
@click.option("--report/--no-report", default=True, show_default=True, help="Write the report into --out.")
@click.option("--yes", is_flag=True, help="Accept a sweep of more than 20,000 cases.")
@json_option
def command(
    study: str, axes: tuple[str, ...], sets: tuple[str, ...], systems: tuple[str, ...], on: str, level: str | None,
    ignore_memory: bool, out: Path, resume: bool, replace: bool, report: bool, yes: bool, as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Price or measure STUDY (a study or suite, by name or path) and write records and report to --out.

    \b
    trtllm-harness run demo --out reports/demo
    trtllm-harness run a1d-group-size-decode --gpu b200_sxm -a G=8,16 --out reports/g
    trtllm-harness run cpu-smoke --on torch --out reports/cpu
    """
    if resume and replace:
        raise click.UsageError("--resume completes the run in --out and --replace starts it anew; give one of them")
    suite, studies = load_suite(study, Overrides(axes, sets, systems))
    if level:
        studies = [one.model_copy(update={"level": level, "ops": ()}) for one in studies]
    plan = make_plan(suite, studies, allow_large=yes, ignore_memory=ignore_memory)
    choice = choose(on, [step.planned.case.system for step in plan.steps])
    pricing = {name: given.pop(name) for name in _PRICING}
    exhausted = False
    with replacing(out) if replace else nullcontext(out) as folder:
        if choice.backend:
            refuse_given(pricing, f"is about prices, and {choice.backend} measures")
            exhausted = _measure(plan, folder, choice, given, resume, as_json)
        else:
            refuse_given(given, "is about measured runs; say who measures, for example --on torch")
            options = PriceOptions(on, **pricing, ignore_memory=ignore_memory)  # type: ignore[arg-type]
            _price(plan, folder, options, resume, as_json)
    _tell(out, report, as_json, exhausted)


def _price(plan: Plan, out: Path, options: PriceOptions, resume: bool, as_json: bool) -> None:
    if options.helix_overlap:
        click.echo(OVERLAP, err=True)
    with _progress(len(plan.steps), quiet=as_json) as progress:
        run_priced(plan, out, options, resume=resume, progress=progress)


def _measure(plan: Plan, out: Path, choice: Choice, given: dict[str, Any], resume: bool, as_json: bool) -> bool:
    """Measure, and say whether the time budget ended it."""
    from harness.cli.measure_progress import MeasureProgress
    from harness.runner.measure_run import run_measured

    assert choice.backend
    if given["retry_failed"] and not resume:
        raise click.UsageError("--retry-failed goes with --resume: it measures again what failed in the run in --out")
    options = measured_with(choice.backend, choice.why, given)
    if choice.why != "asked for":
        click.echo(f"measured by {choice.backend}: {choice.why}", err=True)
    progress = MeasureProgress(quiet=as_json)
    try:
        outcome = run_measured(plan, out, options, resume=resume, tell=progress)
    finally:
        progress.clear()
    for note in outcome.notes:
        click.echo(f"note: {note}", err=True)
    return outcome.exhausted


def _tell(out: Path, wanted: bool, as_json: bool, exhausted: bool) -> None:
    """Write the report if wanted, print what the run says, and exit with the code that its rows call for."""
    from harness.report import build_report, print_summary, report_data, write_report
    from harness.results.store import read_run

    finished = read_run(out)
    index: Path | None = None
    try:
        content = build_report([finished]) if len(finished.records) else None
        index = write_report(content, out) if wanted and content else None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the run is whole, `trtllm-harness report {out}` writes its report") from None
    if as_json:
        echo_json({**(report_data(content) if content else {}), **_summary(finished, index), "exhausted": exhausted})
    else:
        if content:
            print_summary(content)
        click.echo(f"report: {index}" if index else f"run: {out}")
    click.get_current_context().exit(_exit_code(finished, exhausted))


def _exit_code(run: Run, exhausted: bool) -> ExitCode:
    """What the rows and the clock say, with a line on standard error for each reason."""
    codes = [ExitCode.OK]
    failed = run.records[run.records["status"].isin(FAILED)]
    for text in run.damage:
        click.echo(f"warning: {text}", err=True)
    if len(failed):
        first = failed.iloc[0]
        advice = _advice(first["how"])
        log = f"; its log is {run.path / first['log']}" if isinstance(first["log"], str) else ""
        click.echo(
            f"warning: {len(failed)} of {len(run.records)} rows failed, first {first['attempt_id']} "
            f"({first['status']}: {first['reason']}){advice}{log}; --resume --retry-failed measures them again",
            err=True,
        )
    if run.damage or len(failed):
        codes.append(ExitCode.INCOMPLETE)
    if exhausted:
        click.echo(
            f"the time budget is used up; what was measured is kept in {run.path} (go on with --resume)", err=True
        )
        codes.append(ExitCode.BUDGET)
    return combine_exit_codes(codes)


def _advice(how: object) -> str:
    told = json.loads(how).get("advice") if isinstance(how, str) else None
    return f"; what may help: {told}" if told else ""


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal, a line per tenth elsewhere."""
    if quiet:
        yield lambda _: None
        return
    if sys.stderr.isatty():
        with click.progressbar(length=total, label="pricing", file=sys.stderr) as bar:
            yield bar.update
        return
    seen = 0

    def lines(done: int) -> None:
        nonlocal seen
        before, seen = seen, seen + done
        if seen == total or seen * 10 // max(total, 1) > before * 10 // max(total, 1):
            click.echo(f"priced {seen}/{total}", err=True)

    yield lines


def _summary(run: Run, index: Path | None) -> dict[str, object]:
    return {
        "run": str(run.path),
        "report": str(index) if index else None,
        "cases": len(run.records),
        "status": {str(status): int(count) for status, count in run.records["status"].value_counts().items()},
        "answered_by": run.environment.get("answered_by", {}),
    }
