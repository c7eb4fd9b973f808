"""`trtllm-harness history`: what changed over many nights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import PathType, echo_json, json_option
from harness.errors import ExitCode, UsageError, combine_exit_codes

if TYPE_CHECKING:
    from harness.analysis.history import History

#: Options that say what is read and how it is judged; `baseline` takes them too.
READING = (
    click.argument("paths", metavar="ROOT|TABLE...", nargs=-1, required=True, type=PathType()),
    click.option(
        "--policy", multiple=True, metavar="NAME=VALUE",
        help="What counts as a change: threshold=2%, nights=2, noise=3, gap=3, history=5, news=28. Repeatable.",
    ),
    click.option(
        "--metric", "metrics", multiple=True, metavar="NAME",
        help="Judge only this metric; NAME=lower or NAME=higher judges a column of a table that is not known.",
    ),
    click.option(
        "--environment", multiple=True, metavar="COLUMN", help="Column of a table that was found in place."
    ),
    click.option(
        "--night", "nights", multiple=True, metavar="[RUN=]DATE",
        help="Night to which all rows of a run count, in place of the UTC date of its start.",
    ),
    click.option("--as-of", metavar="DATE", help="Judge as of this night; by default the last one of all."),
    click.option("--cache", type=PathType(folder=True), help="Folder for what was read; default ROOT/.history-cache."),
    click.option("--no-cache", is_flag=True, help="Read everything again and keep nothing."),
)  # fmt: skip

baselines_option = click.option(
    "--baselines", type=PathType(), default=None, help="File of named baselines; default reports/baselines.yaml."
)


def reading_options(function: Any) -> Any:
    """The argument and options of `READING`, and `--baselines`."""
    for option in reversed((*READING, baselines_option)):
        function = option(function)
    return function


@click.command("history")
@reading_options
@click.option("--baseline", metavar="NAME", help="Hold series against this named baseline, not their own level.")
@click.option("--out", type=PathType(folder=True), help="Folder for history.html, .md, .json and .csv.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown, for a job summary.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one line of CSV for each series.")
@click.option("--all", "everything", is_flag=True, help="List every series, also unchanged ones.")
@json_option
def command(
    baseline: str | None,
    baselines: Path | None,
    out: Path | None,
    as_markdown: bool,
    as_csv: bool,
    everything: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Judge every series of many nights: what regressed, improved, moved with its environment, or stopped.

    ROOT is a folder of run folders, TABLE a CSV or Parquet table of runs. A night is the UTC date on which a run
    started. Every series is held against its own anchored level, or against a named baseline (see `baseline`).
    Exit code 1 when a series regressed or newly fails, 3 when one lately has no data or something was unreadable.

    \b
    trtllm-harness history reports/nightly --out reports/history
    trtllm-harness history runs.csv --policy threshold=5% --policy nights=3
    """
    from harness.report.history import history_csv, history_data, print_history, render_markdown, write_history

    if as_json + as_markdown + as_csv > 1:
        raise click.UsageError("--json, --markdown and --csv each are what is printed; take one")
    history = read_history(**reading, baseline=baseline, baselines=baselines)
    for text in history.damage:
        click.echo(f"warning: {text}", err=True)
    page = write_history(history, out) if out else None
    if as_json:
        echo_json({**history_data(history), **({"report": str(page)} if page else {})})
    elif as_markdown:
        click.echo(render_markdown(history), nl=False)
    elif as_csv:
        click.echo(history_csv(history), nl=False)
    else:
        print_history(history, everything=everything)
        if page:
            click.echo(f"report: {page}")
    worse = ExitCode.WORSE if history.is_worse else ExitCode.OK
    incomplete = ExitCode.INCOMPLETE if history.is_incomplete else ExitCode.OK
    click.get_current_context().exit(combine_exit_codes([worse, incomplete]))


def read_history(
    paths: Sequence[Path],
    policy: Sequence[str],
    metrics: Sequence[str],
    environment: Sequence[str],
    nights: Sequence[str],
    as_of: str | None,
    cache: Path | None,
    no_cache: bool,
    baseline: str | None = None,
    baselines: Path | None = None,
) -> History:
    """Read and judge what the options name."""
    from harness.analysis.baselines import BASELINES_FILE, read_baselines, require_baseline
    from harness.analysis.history import Index, judge_history, parse_night, parse_nights, parse_policy, read_sources
    from harness.analysis.inputs import Options
    from harness.cli.compare import parse_metrics

    judged_by = parse_policy(policy)
    day = parse_night(as_of, "--as-of") if as_of else None
    options = Options(environment=tuple(environment), metrics=parse_metrics([one for one in metrics if "=" in one]))
    file = baselines or BASELINES_FILE
    pins = require_baseline(read_baselines(file), baseline, file).pins() if baseline else {}
    found = read_sources(paths, Index(cache_folder(paths, cache, no_cache), options), parse_nights(nights))
    unknown = options.unknown(name for source in found.sources for name in source.columns)
    if unknown and not found.damage:
        raise UsageError(*(f"{name}: no table has such a column" for name in unknown))
    if not found.sources and found.damage:
        from harness.errors import UnreadableInput

        raise UnreadableInput("\n".join(found.damage))
    return judge_history(
        found.sources,
        judged_by,
        as_of=day,
        metrics=[one for one in metrics if "=" not in one],
        damage=found.damage,
        remarks=found.remarks,
        pins=pins,
        baseline=baseline,
    )


def cache_folder(paths: Sequence[Path], cache: Path | None, no_cache: bool) -> Path | None:
    """Where what was read is kept: in the root, where one folder is named that is no run itself."""
    from harness.analysis.history import CACHE_FOLDER
    from harness.results.store import is_run

    if no_cache:
        if cache:
            raise UsageError("--cache and --no-cache contradict each other")
        return None
    if cache:
        return cache
    roots = [path for path in paths if path.is_dir() and not is_run(path)]
    return roots[0] / CACHE_FOLDER if roots else None
