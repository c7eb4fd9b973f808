"""`trtllm-harness report`: write a report from one or more runs."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import echo_json, json_option
from harness.errors import ExitCode


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder to write; the run itself by default."
)
@json_option
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool) -> None:
    """Write index.html, report.md and records.csv from RUNS (run folders).

    \b
    trtllm-harness report reports/demo
    trtllm-harness report reports/monday reports/tuesday --out reports/both
    """
    from harness.report import write_report
    from harness.results.store import read_run

    if out is None and len(runs) > 1:
        raise click.UsageError("several runs need --out: the folder of the common report")
    read = [read_run(path) for path in runs]
    index = write_report(read, out or runs[0])
    damage = [text for run in read for text in run.damage]
    for text in damage:
        click.echo(f"warning: {text}", err=True)
    if as_json:
        echo_json({"report": str(index), "cases": sum(len(run.records) for run in read), "damage": damage})
    else:
        click.echo(f"report: {index}")
    if damage:
        click.get_current_context().exit(ExitCode.INCOMPLETE)
