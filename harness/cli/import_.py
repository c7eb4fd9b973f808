"""`trtllm-harness import`: take reports of other tools into records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import PathType, echo_json, json_option
from harness.errors import ExitCode

if TYPE_CHECKING:
    from harness.results.imports import ImportRow

#: What is shown of a request, with its title.
_OF_A_REQUEST = (
    ("request", "request"), ("status", "status"), ("tokens", "tokens"), ("ttft_ms", "TTFT ms"),
    ("tpot_from_first_token_ms", "TPOT ms, from first token"),
    ("tpot_after_first_chunk_ms", "TPOT ms, after first chunk"), ("note", "note"),
)  # fmt: skip

#: Requests that are shown; all are in `requests.csv`.
_SHOWN = 20


@click.command("import")
@click.argument("reports", metavar="FILE...", nargs=-1, required=True, type=PathType())
@click.option("--out", required=True, type=PathType(folder=True), help="Run folder to write.")
@json_option
def command(reports: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Take reports of other tools into records, and say what each of them holds.

    FILE is a report of trtllm-bench (its --report_json, or the log that it printed), an event log of streamed requests,
    or an export of AIPerf. Blank is what a report does not say; what contradicts itself is flagged `suspect`.

    \b
    trtllm-harness import report.json bench.log --out reports/theirs
    """
    from harness.report import build_report, write_report
    from harness.results.store import read_run
    from harness.runner.import_run import run_import

    rows = run_import(reports, out)
    index = write_report(build_report([read_run(out)]), out)
    for row in rows:
        if row.status == "unreadable":
            click.echo(f"error: {row.file}: {'; '.join(row.notes)}", err=True)
        elif not as_json:
            for line in _lines(row):
                click.echo(line)
    if as_json:
        imports = [{**row.to_data(), "requests_of_it": [asdict(one) for one in row.requests]} for row in rows]
        echo_json({"imports": imports, "run": str(out), "report": str(index)})
    else:
        click.echo(f"run: {out}")
        click.echo(f"report: {index}")
    unreadable = any(row.status == "unreadable" for row in rows)
    click.get_current_context().exit(ExitCode.INCOMPLETE if unreadable else ExitCode.OK)


def _lines(row: ImportRow) -> Iterator[str]:
    """What a file holds: its columns that are known, its requests, and what to know of them."""
    yield f"{row.file}: {row.status}, {row.format}{f' of {row.tool_version}' if row.tool_version else ''}"
    width = max((len(name) for name in row.values), default=0)
    for name, value in row.to_data().items():
        if name in row.values:
            yield f"  {name:<{width}}  {_text(value)}"
    if row.requests:
        yield from _requests(row)
    for note in row.notes:
        yield f"  {'suspect' if row.status == 'suspect' else 'note'}: {note}"
    yield ""


def _requests(row: ImportRow) -> Iterator[str]:
    cells = [[title for _, title in _OF_A_REQUEST]]
    cells += [[_text(getattr(one, name)) for name, _ in _OF_A_REQUEST] for one in row.requests[:_SHOWN]]
    widths = [max(len(line[index]) for line in cells) for index in range(len(_OF_A_REQUEST))]
    for line in cells:
        yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
    if len(row.requests) > _SHOWN:
        yield f"  {len(row.requests) - _SHOWN:,} more are in requests.csv"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}" if value < 1e6 else f"{value:.0f}"
    return str(value)
