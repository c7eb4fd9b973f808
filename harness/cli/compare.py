"""`trtllm-harness compare`: what changed between two results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import PathType, echo_json, json_option
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.analysis.inputs import Options, Results
    from harness.results.metrics import Direction


@click.command("compare")
@click.argument("base", type=PathType())
@click.argument("candidate", type=PathType())
@click.option(
    "--policy", default="auto", show_default=True, metavar="auto|interval|threshold:N%",
    help="What counts as a change: an interval over replicates, or more than N % of the median. auto takes the "
    "interval where there are replicates or should be, and threshold:5% for tables and reports without.",
)  # fmt: skip
@click.option(
    "--environment", multiple=True, metavar="COLUMN", help="Column of a table that was found in place, not asked for."
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="COLUMN=lower|higher",
    help="Judge this column too. Says what is better.",
)
@click.option("--out", type=PathType(folder=True), help="Folder for compare.html, .md, .json and .junit.xml.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a pull request or a job summary.")
@click.option("--all", "everything", is_flag=True, help="List everything, also what is the same.")
@json_option
def command(
    base: Path,
    candidate: Path,
    policy: str,
    environment: tuple[str, ...],
    metrics: tuple[str, ...],
    out: Path | None,
    as_markdown: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Compare CANDIDATE with BASE: what is worse, better, the same, newly failing, or cannot be told.

    Each is a run folder, a CSV or Parquet table of results, or a report of trtllm-bench. Rows are paired by the whole
    of what was asked, never by position or name alone. Exit code 1 when something is worse or newly failing, 3 when
    nothing could be compared or an input was damaged.

    \b
    trtllm-harness compare reports/monday reports/tuesday --out reports/tuesday
    trtllm-harness compare base.csv new.csv --policy threshold:3%
    trtllm-harness compare base.csv new.csv --markdown >> "$GITHUB_STEP_SUMMARY"
    """
    from harness.analysis.compare import compare, parse_policy
    from harness.analysis.inputs import Options, read_results
    from harness.report.compare import comparison_data, print_comparison, render_markdown, write_comparison

    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown both are what is printed; take one")
    judged = parse_policy(policy)
    options = Options(environment=environment, metrics=parse_metrics(metrics))
    read = [read_results(path, options) for path in (base, candidate)]
    _check_columns(options, read)
    found = compare(read[0], read[1], judged)
    for text in found.damage:
        click.echo(f"warning: {text}", err=True)
    page = write_comparison(found, out) if out else None
    if as_json:
        echo_json({**comparison_data(found), **({"report": str(page)} if page else {})})
    elif as_markdown:
        click.echo(render_markdown(found), nl=False)
    else:
        print_comparison(found, everything=everything)
        if page:
            click.echo(f"\nreport: {page}")
    click.get_current_context().exit(found.exit_code)


def parse_metrics(texts: Sequence[str]) -> dict[str, Direction]:
    """`latency=lower` and the like."""
    found: dict[str, Direction] = {}
    for text in texts:
        name, _, direction = text.rpartition("=")
        if not name or direction not in {"lower", "higher"}:
            raise UsageError(f"--metric {text}: is COLUMN=lower or COLUMN=higher, whichever is better")
        found[name] = "lower" if direction == "lower" else "higher"
    return found


def _check_columns(options: Options, inputs: Sequence[Results]) -> None:
    """Refuse options about columns that no table has."""
    unknown = options.unknown(name for results in inputs for name in results.columns)
    if unknown:
        raise UsageError(*(f"{name}: neither table has such a column" for name in unknown))
