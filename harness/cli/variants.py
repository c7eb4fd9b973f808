"""`trtllm-harness variants`: the synthetic models there are, what one amounts to, and new ones from model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness import catalog, files
from harness.cli.options import Entry, PathType, echo_json, json_option
from harness.cost.kv_cache import kv_bytes_per_token
from harness.cost.parameters import parameter_count
from harness.errors import UsageError
from harness.spec.bounds import checked_name
from harness.spec.load import load_variant
from harness.spec.variant import Variant

#: Column → how it is headed.
_COLUMNS = {
    "name": "name", "class": "class", "hidden": "H", "q_heads": "QH", "kv_heads": "KH", "head_dim": "Hsz", "ffn": "H'",
    "layers": "L", "experts": "experts", "parameters": "parameters",
}  # fmt: skip


@click.group("variants")
def command() -> None:
    """List and show synthetic model variants, and make one of a model folder.

    \b
    trtllm-harness variants list
    trtllm-harness variants show dense-8b --set kv_heads=4
    trtllm-harness variants import path/to/model --name mine
    """


_sets = click.option(
    "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Change a field: kv_heads=4. Repeatable."
)


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
@_sets
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


@command.command("import")
@click.argument("folder", metavar="DIR", type=PathType())
@click.option("--name", help="Name of the variant; default that of the file or of DIR.")
@click.option(
    "--out", metavar="FILE.yaml", type=PathType(), help="Where to write; default model_configs/variants/NAME.yaml."
)
@_sets
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def import_folder(
    folder: Path, name: str | None, out: Path | None, sets: tuple[str, ...], force: bool, as_json: bool
) -> None:
    """Write a variant with the shape of DIR, a model folder of Hugging Face, to perturb.

    Reads its config.json and hf_quant_config.json, no weights. What they leave open is said, and settled with --set.
    """
    source = folder if folder.name == catalog.MODEL_CONFIG else folder / catalog.MODEL_CONFIG
    shape = load_variant(source, sets)
    if name is None:
        name = out.stem if out else shape.name
    try:
        checked_name(name)
    except ValueError as error:
        raise UsageError(f"--name {name[:40]!r}: {error}") from None
    target = out or files.checked_path(f"model_configs/variants/{name}.yaml")
    if target.suffix not in {".yaml", ".yml"} or (not out and Path(name).name != name):
        raise UsageError(
            f"{target}: is no name for a variant's file; give --out FILE.yaml, or a --name without slashes"
        )
    if target.exists() and not force:
        raise UsageError(f"{target}: is there already; --force replaces it, --name and --out write another file")
    fields = {field: value for field, value in shape.to_yaml_data().items() if field != "name"}
    count = parameter_count(shape)
    title = f"# The shape of {shape.name!r}, read from its config.json: {count:,} parameters."
    fields |= {} if name == target.stem else {"name": name}
    files.write_atomic(target, f"{title}\n{files.dump_yaml(fields)}")
    if as_json:
        echo_json({"path": str(target), "name": name, "parameters": count})
    else:
        click.echo(f"wrote {target}: {count:,} parameters")


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
