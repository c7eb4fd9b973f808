"""`trtllm-harness profile`: what ran on the GPU, kernel by kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.options import PathType, echo_json, json_option
from harness.errors import ExitCode, UnreadableInput

if TYPE_CHECKING:
    from harness.profiles import Against, Choice, Comparison, Profile


@click.group("profile")
def command() -> None:
    """Read profiles of real runs: kernels by op category, gaps, overlap, beside a composed price."""


@command.command("import")
@click.argument("profiles", metavar="FILE...", nargs=-1, required=True, type=PathType())
@click.option("--case", metavar="RUN:ATTEMPT", help="Attempt whose composed price stands beside the profile.")
@click.option(
    "--range",
    "range_name",
    metavar="NAME",
    help="Count what was launched in NVTX ranges of this name; * and ? as in file names.",
)
@click.option("--skip", type=click.IntRange(0), help="Leave out the first ranges, the warm-up.")
@click.option("--iterations", type=click.IntRange(1), help="Iterations that the profile holds; else its ranges say.")
@click.option("--out", type=PathType(), help="File (.json, .csv, .md), or folder for all three.")
@json_option
def import_profiles(
    profiles: tuple[Path, ...],
    case: str | None,
    range_name: str | None,
    skip: int | None,
    iterations: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Say where the time of each FILE goes; kernels that are not known are listed, not guessed.

    FILE is a report of Nsight Systems (.nsys-rep, where nsys is on PATH), its SQLite export, CSV of `nsys stats`, or a
    chrome trace of torch.profiler (.json, .json.gz); each stands for itself. Cumulative kernel time is not elapsed
    time: every figure says which it is.

    \b
    trtllm-harness profile import decode.sqlite --range '*_forward_step *: 0 ctx reqs*'
    trtllm-harness profile import decode.sqlite --case reports/demo:000004 --out reports/decode
    """
    from harness.profiles import Choice, find_against
    from harness.report.profile import profile_lines
    from harness.report.profile_files import profiles_data, write_profiles

    against = find_against(case) if case else None
    choice = Choice(range_name, skip, iterations)
    found: list[tuple[Profile, Comparison | None]] = []
    for path in profiles:
        try:
            found.append(_read(path, choice, against))
        except UnreadableInput as error:
            click.echo(f"error: {error}", err=True)
            continue
        if not as_json:
            for line in profile_lines(*found[-1]):
                click.echo(line)
            click.echo()
    if as_json:
        echo_json(profiles_data(found))
    for written in write_profiles(found, out) if out and found else []:
        click.echo(f"wrote {written}", err=as_json)
    click.get_current_context().exit(ExitCode.OK if len(found) == len(profiles) else ExitCode.INCOMPLETE)


def _read(path: Path, choice: Choice, against: Against | None) -> tuple[Profile, Comparison | None]:
    from harness.profiles import compare, make_profile, read_trace

    profile = make_profile(read_trace(path), choice)
    return profile, compare(profile, against) if against else None
