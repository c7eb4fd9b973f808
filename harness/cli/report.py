"""`trtllm-harness report`: write a report from one or more runs."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import PathType, echo_json, json_option
from harness.errors import ExitCode, UsageError


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=PathType())
@click.option("--out", type=PathType(folder=True), help="Folder to write; the run itself by default.")
@json_option
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Write index.html, report.md and records.csv from RUNS (run folders).

    \b
    trtllm-harness report reports/demo
    trtllm-harness report reports/monday reports/tuesday --out reports/both
    """
    from harness.report import build_report, report_data, write_report
    from harness.results.store import read_run

    if out is None and len(runs) > 1:
        raise click.UsageError("several runs need --out: the folder of the common report")
    folders = [path.resolve() for path in runs]
    twice = [str(path) for path, folder in zip(runs, folders, strict=True) if folders.count(folder) > 1]
    if twice:
        raise UsageError(f"{' and '.join(twice)} are the same run; name each run once")
    read = [read_run(path) for path in runs]
    content = build_report(read)
    index = write_report(content, out or runs[0])
    damage = [text for run in read for text in run.damage]
    for text in damage:
        click.echo(f"warning: {text}", err=True)
    if as_json:
        echo_json({**report_data(content), "report": str(index), "damage": damage})
    else:
        click.echo(f"report: {index}")
    if damage:
        click.get_current_context().exit(ExitCode.INCOMPLETE)
