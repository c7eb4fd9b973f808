"""`trtllm-harness systems`: the GPUs that are known, and what is known of each."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.options import Gpu, echo_json, json_option
from harness.hardware import System, known_systems, load_system

_COLUMNS = ("system", "GPU", "sm", "bf16", "FP8", "NVFP4 TFLOP/s", "memory GiB", "TB/s", "tables")


@click.group("systems")
def command() -> None:
    """List and show GPUs: dense peaks, memory, links, with the source of each fact."""


@command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """All known GPUs, and whether published kernel measurements of them can be used here."""
    systems = [load_system(key) for key in known_systems()]
    if as_json:
        echo_json([_data(system) for system in systems])
        return
    rows = [_COLUMNS, *(_row(system) for system in systems)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command.command("show")
@click.argument("system", type=Gpu())
@json_option
def show(system: str, as_json: bool) -> None:
    """Everything known of one GPU."""
    data = _data(load_system(system))
    if as_json:
        echo_json(data)
        return
    evidence = data.pop("evidence")
    for name, value in data.items():
        click.echo(f"{name:<32} {_text(value)}")
    click.echo("evidence")
    for entry in evidence:
        click.echo(f"  {', '.join(entry['fields'])}: {entry['source']} ({entry['date']})")


def _data(system: System) -> dict[str, Any]:
    return {**system.model_dump(mode="json"), "tables": _has_tables(system.key)}


def _has_tables(key: str) -> bool:
    from harness.pricing.tables import tabled_systems, tables_available

    return tables_available()[0] and key in tabled_systems()


def _row(system: System) -> tuple[str, ...]:
    peaks = (system.peak_flop_per_s[name] for name in ("bf16", "fp8", "nvfp4"))
    return (
        system.key,
        system.gpu_name,
        str(system.sm),
        *("-" if peak is None else f"{peak / 1e12:,.0f}" for peak in peaks),
        f"{system.memory_bytes / 2**30:.1f}",
        f"{system.memory_bandwidth_bytes_per_s / 1e12:.2f}",
        "yes" if _has_tables(system.key) else "no",
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        "-" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    )
