"""`trtllm-harness variants`: the synthetic models there are, and what one of them amounts to."""

from __future__ import annotations

from typing import Any

import click

from harness import catalog
from harness.cli.options import Entry, echo_json, json_option
from harness.cost.kv_cache import kv_bytes_per_token
from harness.cost.parameters import parameter_count
from harness.spec.load import load_variant
from harness.spec.variant import Variant

#: Column → how it is headed.
_COLUMNS = {
    "name": "name", "class": "class", "hidden": "H", "q_heads": "QH", "kv_heads": "KH", "head_dim": "Hsz", "ffn": "H'",
    "layers": "L", "experts": "experts", "parameters": "parameters",
}  # fmt: skip


@click.group("variants")
def command() -> None:
    """List and show synthetic model variants.

    \b
    trtllm-harness variants list
    trtllm-harness variants show dense-8b --set kv_heads=4
    """


@command.command("list")
@json_option
def list_variants(as_json: bool) -> None:
    """List every variant by name, with its sizes."""
    rows = [_row(load_variant(name)) for name in catalog.names("variants")]
    if as_json:
        echo_json(rows)
        return
    texts = [list(_COLUMNS.values()), *([_text(row[column]) for column in _COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for cells in texts:
        names, numbers = cells[:2], cells[2:]
        left = "  ".join(cell.ljust(width) for cell, width in zip(names, widths[:2], strict=True))
        right = "  ".join(cell.rjust(width) for cell, width in zip(numbers, widths[2:], strict=True))
        click.echo(f"{left}  {right}")


@command.command("show")
@click.argument("variant", type=Entry("variants"))
@click.option("--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Change a field: kv_heads=4. Repeatable.")
@json_option
def show(variant: str, sets: tuple[str, ...], as_json: bool) -> None:
    """Show every field of VARIANT, its group size, its KV bytes per token and its parameters."""
    shape = load_variant(variant, sets)
    fields, derived = shape.model_dump(mode="json"), _derived(shape)
    if as_json:
        echo_json({**fields, **derived})
        return
    lines = [*fields.items(), *derived.items()]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {_text(value)}")


def _row(shape: Variant) -> dict[str, Any]:
    """What the list says of one variant."""
    sizes = {
        name: getattr(shape, name) for name in ("name", "hidden", "q_heads", "kv_heads", "head_dim", "ffn", "layers")
    }
    experts = shape.experts.count if shape.experts else None
    return {**sizes, "class": _class(shape), "experts": experts, "parameters": parameter_count(shape)}


def _class(shape: Variant) -> str:
    kind = "moe" if shape.experts else "dense"
    return f"{kind}, mla" if "mla" in shape.attention else kind


def _derived(shape: Variant) -> dict[str, Any]:
    """What follows from the fields. KV bytes are those that the first token of a sequence adds on one GPU."""
    return {
        "class": _class(shape),
        "group_size": shape.group_size,
        "kv_bytes_per_token": kv_bytes_per_token(shape),
        "parameters": parameter_count(shape),
    }


def _text(value: Any) -> str:
    """A value for people: thousands apart, whole numbers whole, nothing for what is absent."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return "-" if value is None else str(value)
