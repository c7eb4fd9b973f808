"""`trtllm-harness rerun`: ask one case of a run again, and show both answers."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.measure_progress import MeasureProgress
from harness.cli.options import PathType, echo_json, json_option
from harness.errors import ExitCode
from harness.results.metrics import time_column
from harness.runner.slots import FAILED

if TYPE_CHECKING:
    from harness.results.record import Record

#: What is shown of both rows, beside the time.
_SHOWN = (
    "status", "reason", "flags", "answered_with", "harness_version", "device", "host", "samples", "stop_reason",
    "sample_iqr_pct", "warmup_drift_pct", "sm_clock_mhz", "foreign_cpus", "load_average", "started_at",
)  # fmt: skip


@click.command("rerun")
@click.argument("run", type=PathType(folder=True))
@click.argument("attempt")
@click.option("--out", type=PathType(folder=True), help="Run folder to keep the new row in; else it is only shown.")
@json_option
def command(run: Path, attempt: str, out: Path | None, as_json: bool) -> None:
    """Price or measure the case of ATTEMPT in RUN (a run folder) again, and show both rows side by side.

    ATTEMPT is an attempt_id, or the end of one: 000004.r1, or 4. The case is asked of who answered it, under the same
    options; a measured one in one process, alone.

    \b
    trtllm-harness rerun reports/cpu 000004.r1
    """
    from harness.runner.again import ask_again, find_again, rows_of

    again = find_again(run, attempt)
    progress = MeasureProgress(quiet=as_json)
    with nullcontext(str(out)) if out else tempfile.TemporaryDirectory(prefix="trtllm-harness-") as folder:
        try:
            ask_again(again, Path(folder), tell=progress)
        finally:
            progress.clear()
        [now] = rows_of(Path(folder))
    column = time_column(now.phase)
    if as_json:
        echo_json(
            {"before": asdict(again.before), "now": asdict(now), "change_pct": _change_pct(again.before, now, column)}
        )
    else:
        for line in _lines(again.before, now, column):
            click.echo(line)
        if out:
            click.echo(f"run: {out}")
    click.get_current_context().exit(ExitCode.INCOMPLETE if now.status in FAILED else ExitCode.OK)


def _lines(before: Record, now: Record, column: str) -> list[str]:
    """Both rows, a line for each column that one of them has."""
    rows = [("", "before", "now")]
    for name in ("attempt_id", column, *_SHOWN):
        values = (getattr(before, name), getattr(now, name))
        if any(value not in (None, []) for value in values):
            rows.append((name, _text(values[0]), _text(values[1])))
    widths = [max(len(row[index]) for row in rows) for index in range(2)]
    lines = [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip() for row in rows]
    change_pct = _change_pct(before, now, column)
    if change_pct is not None:
        lines.append(f"{column} changed by {change_pct:+.2f} %")
    if now.arms and before.arms:
        lines.append("measured alone now; before it shared its process and turns with other cases")
    return lines


def _change_pct(before: Record, now: Record, column: str) -> float | None:
    old, new = getattr(before, column), getattr(now, column)
    return (new / old - 1) * 100 if old and new else None


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
