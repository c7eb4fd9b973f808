"""`trtllm-harness baseline`: named levels that series are held against. Nothing moves one but these commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.history import baselines_option, read_history, reading_options
from harness.cli.options import echo_json, json_option
from harness.errors import ExitCode

if TYPE_CHECKING:
    from harness.analysis.baselines import Baseline


@click.group("baseline")
def command() -> None:
    """Pin, list and move named baselines in reports/baselines.yaml.

    \b
    trtllm-harness baseline pin release-1.3 reports/nightly --note "shipped"
    trtllm-harness history reports/nightly --baseline release-1.3
    """


@command.command("pin")
@click.argument("name")
@reading_options
@click.option("--note", default="", help="Why, for whoever reads the file.")
def pin(name: str, note: str, baselines: Path | None, **reading: Any) -> None:
    """Pin the levels of the last nights of every series of ROOT|TABLE under NAME."""
    from harness.analysis.baselines import BASELINES_FILE, baseline_of, pin_baseline

    file = baselines or BASELINES_FILE
    baseline = baseline_of(read_history(**reading), name, note)
    pin_baseline(file, baseline)
    click.echo(f"pinned {_told(baseline)} in {file}")


@command.command("move")
@click.argument("name")
@reading_options
@click.option("--note", default="", help="Why; the note that is there stays without it.")
def move(name: str, note: str, baselines: Path | None, **reading: Any) -> None:
    """Move NAME to the levels of the last nights of every series of ROOT|TABLE."""
    from harness.analysis.baselines import BASELINES_FILE, baseline_of, move_baseline

    file = baselines or BASELINES_FILE
    baseline = baseline_of(read_history(**reading), name, note)
    before = move_baseline(file, baseline)
    click.echo(f"moved {_told(baseline)} in {file}, from {before.night}")
    for key, level in baseline.levels.items():
        old = before.levels.get(key)
        if old is not None and old.value != level.value:
            change = 100 * (level.value / old.value - 1)
            click.echo(f"  {level.label}: {old.value:g} to {level.value:g} {level.unit} ({change:+.1f} %)")


@command.command("list")
@baselines_option
@json_option
def list_command(baselines: Path | None, as_json: bool) -> None:
    """All baselines: their age, how many series they have, and on which hosts."""
    from harness.analysis.baselines import BASELINES_FILE, read_baselines

    file = baselines or BASELINES_FILE
    known = read_baselines(file)
    if as_json:
        echo_json({"file": str(file), "baselines": {name: _data(one) for name, one in known.items()}})
        return
    for one in known.values():
        note = f": {one.note}" if one.note else ""
        moved = f", moved from {', '.join(one.moved_from)}" if one.moved_from else ""
        click.echo(f"{_told(one)}, pinned {one.pinned_at}{moved}{note}")
    if not known:
        click.echo(f"{file}: no baselines; `trtllm-harness baseline pin NAME ROOT` makes one")
    click.get_current_context().exit(ExitCode.OK)


def _told(baseline: Baseline) -> str:
    count = len(baseline.levels)
    hosts = sorted({level.environment["host"] for level in baseline.levels.values() if "host" in level.environment})
    where = f" on {', '.join(hosts)}" if hosts else ""
    return f"{baseline.name}: {count:,} series{where} as of {baseline.night}"


def _data(baseline: Baseline) -> dict[str, Any]:
    return {
        "night": baseline.night,
        "pinned_at": baseline.pinned_at,
        "note": baseline.note,
        "moved_from": list(baseline.moved_from),
        "levels": [
            {
                "label": one.label,
                "value": one.value,
                "unit": one.unit,
                "night": one.night,
                "environment": dict(one.environment),
            }
            for one in baseline.levels.values()
        ],
    }
