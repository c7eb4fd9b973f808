"""`trtllm-harness engines`: list, show, verify and prune the engines of a store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import PathType, echo_json, json_option
from harness.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from harness.engines.manifest import Engine
    from harness.spec.variant import Variant

_SHA_DIGITS = 12

store_option = click.option(
    "--store", type=PathType(folder=True), required=True, envvar="TRTLLM_HARNESS_STORE",
    show_envvar=True, metavar="DIR", help="Folder of engines, made if missing.",
)  # fmt: skip


@click.group("engines")
def command() -> None:
    """List, show, verify and prune the engines of a store.

    \b
    trtllm-harness engines list --store engines
    trtllm-harness engines show 3f9a0c --store engines
    """


@command.command("list")
@store_option
@json_option
def list_engines(store: Path, as_json: bool) -> None:
    """List every engine, the one wanted last first.

    What unfinished builds left is listed too.
    """
    from harness.engines.prune import holdings
    from harness.engines.space import gigabytes
    from harness.engines.store import EngineStore

    engines = EngineStore(store)
    rows: list[dict[str, Any]] = []
    for held in holdings(engines):
        found = engines.inspect(held.key, contents=False)
        manifest = found.engine.manifest if found.engine else None
        if not (manifest or found.damage or held.unfinished_bytes):
            continue  # a build that failed before it wrote anything
        rows.append(
            {
                "key": held.key,
                "state": "damaged" if found.damage else "whole" if manifest else "unfinished",
                "architecture": manifest.architecture if manifest else None,
                "shape": _shape(manifest.variant) if manifest else None,
                "formats": _formats(manifest.variant) if manifest else None,
                "weights": manifest.weights.mode if manifest else None,
                "settings": len(engines.settings(held.key)),
                "plans": len(engines.plans(held.key)),
                "bytes": held.engine_bytes,
                "unfinished_bytes": held.unfinished_bytes,
                "wanted_at": _utc(held.last_wanted_s),
            }
        )
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        beside = f"{row['settings']} settings" + (f", {row['plans']} plans" if row["plans"] else "")
        what = f"{row['architecture']}  {row['shape']}; {row['formats']}; weights {row['weights']}; {beside}"
        size = gigabytes(row["bytes"] + row["unfinished_bytes"])
        state = "" if row["state"] == "whole" else f"  [{row['state']}]"
        click.echo(f"{row['key']}  {size:>9}  {row['wanted_at'] or '':<20}  {what if row['shape'] else '-'}{state}")
    total = sum(row["bytes"] + row["unfinished_bytes"] for row in rows)
    click.echo(f"{len(rows)} engine{'s' * (len(rows) != 1)} in {store}, {gigabytes(total)}")


@command.command("show")
@click.argument("engine")
@click.option(
    "--store",
    type=PathType(folder=True),
    envvar="TRTLLM_HARNESS_STORE",
    metavar="DIR",
    help="Where a key is looked up.",
)
@json_option
def show(engine: str, store: Path | None, as_json: bool) -> None:
    """Show what a person would check of ENGINE.

    ENGINE is a key, the beginning of one, or a folder.
    """
    from harness.engines.manifest import read_engine
    from harness.engines.store import EngineStore

    folder = Path(engine)
    if store and not folder.is_dir():
        engines = EngineStore(store)
        folder = engines.engine_path(engines.find(engine))
    elif not folder.is_dir():
        raise UsageError(f"{engine}: no such folder; to look up a key say --store DIR")
    found = read_engine(folder / "engine" if (folder / "engine").is_dir() else folder)
    if as_json:
        echo_json(_as_data(found))
    else:
        _echo(found)


@command.command("verify")
@click.argument("keys", nargs=-1)
@store_option
@json_option
def verify(keys: tuple[str, ...], store: Path, as_json: bool) -> None:
    """Compare every engine with its checksums.

    All of them, or those named by KEYS, with their settings and plans. Exit code 3 where something is damaged; `build`
    makes it anew.
    """
    from harness.engines.plans import plan_is_whole
    from harness.engines.store import EngineStore, settings_are_whole

    engines = EngineStore(store)
    there = filter(lambda key: engines.engine_path(key).exists(), engines.keys())
    wanted = [engines.find(key) for key in keys] or list(there)
    rows: list[dict[str, Any]] = []
    for key in wanted:
        damage = list(engines.inspect(key).damage)
        damage += [f"llm_args/{path.name}: changed" for path in engines.settings(key) if not settings_are_whole(path)]
        damage += [f"plans/{path.name}: changed" for path in engines.plans(key) if not plan_is_whole(path)]
        rows.append({"key": key, "damage": damage})
    damaged = [row for row in rows if row["damage"]]
    if as_json:
        echo_json(rows)
    else:
        for row in damaged:
            for text in row["damage"]:
                click.echo(f"{row['key']}: {text}")
        click.echo(f"{len(rows) - len(damaged)} of {len(rows)} engines in {store} are as they were written")
    if damaged:
        click.get_current_context().exit(ExitCode.INCOMPLETE)


@command.command("prune")
@click.option("--keep-gb", type=click.FloatRange(min=0), required=True, help="Keep this many GB (1000^3 bytes).")
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
@store_option
@json_option
def prune_engines(keep_gb: float, dry_run: bool, store: Path, as_json: bool) -> None:
    """Remove engines until the rest fits.

    What unfinished builds left goes first, then the engines that were not wanted for longest.
    """
    from harness.engines.prune import prune
    from harness.engines.space import gigabytes
    from harness.engines.store import EngineStore

    done = prune(EngineStore(store), round(keep_gb * 1e9), dry_run=dry_run)
    if as_json:
        echo_json(
            {
                "removed": [{"key": held.key, "bytes": held.engine_bytes} for held in done.removed],
                "unfinished": [{"key": held.key, "bytes": held.unfinished_bytes} for held in done.unfinished],
                "in_use": list(done.in_use),
                "kept": done.kept,
                "kept_bytes": done.kept_bytes,
                "dry_run": dry_run,
            }
        )
        return
    verb = "would remove" if dry_run else "removed"
    for held in done.unfinished:
        click.echo(f"{verb} {held.key}, unfinished, {gigabytes(held.unfinished_bytes)}")
    for held in done.removed:
        click.echo(f"{verb} {held.key}, {gigabytes(held.engine_bytes)}, last wanted {_utc(held.last_wanted_s)}")
    for key in done.in_use:
        click.echo(f"kept {key}: another process is writing it")
    click.echo(f"{done.kept} engine{'s' * (done.kept != 1)} kept, {gigabytes(done.kept_bytes)}")


def _as_data(engine: Engine) -> dict[str, Any]:
    from harness.engines.plans import read_plan
    from harness.engines.settings import read_settings

    home = engine.path.parent
    return {
        "path": str(engine.path),
        **engine.manifest.model_dump(mode="json", exclude={"inputs"}),
        "bytes": engine.manifest.total_bytes,
        "settings": [{"path": str(path), **read_settings(path)} for path in _beside(home, "llm_args")],
        "plans": [{"path": str(path), **read_plan(path)} for path in _beside(home, "plans")],
    }


def _echo(engine: Engine) -> None:
    """Everything a person would check, in the order in which it matters."""
    from harness.engines.space import gigabytes

    manifest, data = engine.manifest, _as_data(engine)
    figures = manifest.figures
    for name, text in (
        ("key", manifest.key),
        ("path", str(engine.path)),
        ("architecture", manifest.architecture),
        ("shape", _shape(manifest.variant)),
        ("formats", _formats(manifest.variant)),
        ("parameters", f"{figures.parameters:,}"),
        ("weight bytes", f"{figures.weight_bytes:,.0f} ({gigabytes(figures.weight_bytes)}) on one GPU at tp 1"),
        ("KV bytes", f"{figures.kv_bytes_per_token:,.0f} a token on one GPU at tp 1"),
        ("weights", manifest.weights.text),
        ("built", f"{manifest.built_at} by trtllm-harness {manifest.harness}"),
    ):
        click.echo(f"{name:<13} {text}")
    for name, value in manifest.weights.details.items():
        click.echo(f"  {name}: {_setting(value)}")
    for note in manifest.notes:
        click.echo(f"{'note':<13} {note}")
    click.echo(f"files         {len(manifest.files)}, {gigabytes(manifest.total_bytes)}")
    width = max(len(entry.name) for entry in manifest.files)
    for entry in manifest.files:
        click.echo(f"  {entry.name:<{width}}  {entry.bytes:>15,}  sha256 {entry.sha256[:_SHA_DIGITS]}")
    for one in data["settings"]:
        click.echo(f"settings      {one['path']}")
        _echo_settings({**one["fields"], **({"environment": one["environment"]} if one["environment"] else {})})
    for one in data["plans"]:
        click.echo(f"plan          {one['path']}")
        _echo_settings({name: one[name] for name in ("trtllm", "gpu", "sizes")})


def _echo_settings(fields: Mapping[str, Any], prefix: str = "") -> None:
    for name, value in fields.items():
        if isinstance(value, dict):
            _echo_settings(value, f"{prefix}{name}.")
        else:
            click.echo(f"  {prefix}{name}: {_setting(value)}")


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_setting, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_setting(inner)}" for name, inner in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _shape(variant: Variant) -> str:
    """`80 layers, H 8192, QH 64, KH 8, Hsz 128, H' 28672, vocabulary 128256`."""
    parts = [f"{variant.layers} layer{'s' * (variant.layers != 1)}", f"H {variant.hidden}", f"QH {variant.q_heads}"]
    if variant.mla:
        parts.append(f"MLA latent {variant.mla.kv_lora_rank} + {variant.mla.rope_head_dim}")
    else:
        parts += [f"KH {variant.kv_heads}", f"Hsz {variant.head_dim}"]
    if variant.experts:
        one = variant.experts
        parts.append(f"{one.count} experts of {one.inter}, {one.top_k} a token")
        parts += [f"shared expert of {one.shared_inter}"] if one.shared_inter else []
    if variant.ffn and (not variant.experts or variant.experts.dense_layers):
        parts.append(f"H' {variant.ffn}")
    if variant.attention != ("full",) and not variant.mla:
        parts.append(f"attention {' '.join(variant.attention)} (window {variant.window})")
    return ", ".join([*parts, f"vocabulary {variant.vocab}"])


def _formats(variant: Variant) -> str:
    """`attention fp8, ffn fp8, lm_head bf16, KV fp8`."""
    weights = variant.weights
    groups = {"attention": weights.attention}
    if variant.experts:
        groups["experts"] = weights.experts
    if not variant.experts or variant.experts.dense_layers:
        groups["ffn"] = weights.ffn
    return ", ".join(
        f"{name} {one}" for name, one in {**groups, "lm_head": weights.lm_head, "KV": variant.kv_format}.items()
    )


def _beside(home: Path, kind: str) -> list[Path]:
    return sorted(path for path in (home / kind).glob("*") if path.is_dir() and not path.name.startswith("."))


def _utc(seconds: float) -> str | None:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds)) if seconds else None
