"""`trtllm-harness run`: price a study or suite and write its report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import (
    Entry,
    PathType,
    deployment_options,
    echo_json,
    json_option,
    pricing_options,
    study_options,
)
from harness.errors import ExitCode, Interrupted
from harness.pricing.helix import OVERLAP
from harness.runner.plan import make_plan
from harness.runner.price_run import PriceOptions, Progress, run_priced
from harness.runner.replace import replacing
from harness.spec.load import Overrides, load_suite

if TYPE_CHECKING:
    from harness.results.store import Run


@click.command("run")
@click.argument("study", type=Entry("studies", "suites"))
@study_options
@pricing_options
@deployment_options
@click.option("--out", type=PathType(folder=True), required=True, help="Run folder to write.")
@click.option("--resume", is_flag=True, help="Complete the run that is in --out.")
@click.option("--replace", is_flag=True, help="Price anew what is in --out; refused where it holds measured rows.")
@click.option("--report/--no-report", default=True, show_default=True, help="Write the report into --out.")
@click.option("--yes", is_flag=True, help="Accept a sweep of more than 20,000 cases.")
@json_option
def command(
    study: str, axes: tuple[str, ...], sets: tuple[str, ...], systems: tuple[str, ...], on: str,
    allow_extrapolation: bool, tables_as_is: bool, helix_overlap: bool, ignore_memory: bool, out: Path, resume: bool,
    replace: bool, report: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Price STUDY (a study or suite, by name or path) and write records and report to --out.

    \b
    trtllm-harness run demo --out reports/demo
    trtllm-harness run a1d-group-size-decode --gpu b200_sxm -a G=8,16 --out reports/g
    """
    if resume and replace:
        raise click.UsageError("--resume completes the run in --out and --replace starts it anew; give one of them")
    suite, studies = load_suite(study, Overrides(axes, sets, systems))
    plan = make_plan(suite, studies, allow_large=yes, ignore_memory=ignore_memory)
    options = PriceOptions(on, allow_extrapolation, tables_as_is, helix_overlap, ignore_memory)  # type: ignore[arg-type]
    if helix_overlap:
        click.echo(OVERLAP, err=True)
    with _progress(len(plan.steps), quiet=as_json) as progress:
        if replace:
            with replacing(out) as folder:
                run_priced(plan, folder, options, progress=progress)
        else:
            run_priced(plan, out, options, resume=resume, progress=progress)
    _tell(out, report, as_json)


def _tell(out: Path, wanted: bool, as_json: bool) -> None:
    """Write the report if wanted, print what the run says, and exit with 3 where some of it cannot be read."""
    from harness.report import build_report, print_summary, report_data, write_report
    from harness.results.store import read_run

    finished = read_run(out)
    try:
        content = build_report([finished])
        index = write_report(content, out) if wanted else None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; the run is whole, `trtllm-harness report {out}` writes its report") from None
    if as_json:
        echo_json({**report_data(content), **_summary(finished, index)})
    else:
        print_summary(content)
        click.echo(f"report: {index}" if index else f"run: {out}")
    for text in finished.damage:
        click.echo(f"warning: {text}", err=True)
    if finished.damage:
        click.get_current_context().exit(ExitCode.INCOMPLETE)


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
