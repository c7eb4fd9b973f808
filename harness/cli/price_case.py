"""`trtllm-harness price case`: one phase of one variant, however many GPUs it is spread over."""

from __future__ import annotations

from typing import Any

import click

from harness.analysis.words import mix_text
from harness.cli.options import Entry, Gpu, deployment_options, echo_json, json_option, pricing_options
from harness.cost.pipeline import imbalance
from harness.hardware import load_system
from harness.pricing.compose import CasePrice, price_cases
from harness.pricing.helix import OVERLAP
from harness.pricing.roofline import RooflinePricer
from harness.pricing.select import select_pricer
from harness.results.record import PROVENANCE_OF
from harness.runner.plan import out_of_memory
from harness.spec.case import Case


@click.command("case")
@click.option("--variant", required=True, type=Entry("variants"), help="Variant, by name or path.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change a field: variant.kv_heads=4, workload.batch=8, parallelism.tp=2.",
)
@click.option(
    "--level",
    type=click.Choice(["model", "layer"]),
    default="model",
    show_default=True,
    help="layer leaves out embedding and lm_head, and does not ask whether the model fits.",
)
@click.option("--gpu", required=True, type=Gpu(), help="GPU, for example b200_sxm.")
@pricing_options
@deployment_options
@json_option
def case(
    variant: str, sets: tuple[str, ...], level: Any, gpu: str, on: Any, allow_extrapolation: bool, tables_as_is: bool,
    helix_overlap: bool, ignore_memory: bool, as_json: bool,
) -> None:  # fmt: skip
    """One phase of one variant: --set workload.phase=decode --set workload.batch=8 --set workload.kvsl=32768.

    \b
    trtllm-harness price case --gpu b200_sxm --variant dense-70b --set parallelism.tp=8 \\
        --set workload.phase=decode --set workload.batch=32 --set workload.kvsl=8192
    """
    from harness.spec.load import case_from_sets

    system = load_system(gpu)
    asked = case_from_sets(variant, sets, gpu)
    rejection = _rejection(asked, level, ignore_memory)
    pricer, why = select_pricer(on, gpu, allow_extrapolation=allow_extrapolation, as_is=tables_as_is)
    if rejection:
        price = CasePrice("refused", rejection)
    else:
        [price] = price_cases([asked], level, pricer, RooflinePricer(system), helix_overlap=helix_overlap)
    data = {
        "case_id": asked.case_id,
        "variant": asked.variant.name,
        "parallelism": asked.parallelism.label,
        "world_size": asked.parallelism.world_size,
        "workload": asked.workload.label,
        "gpu": gpu,
        "level": level,
        "value_ms": price.time_ms,
        "status": "rejected" if rejection else price.status,
        "reason": price.reason,
        "source": price.worst_source,
        "source_shares": price.source_shares(),
        "provenance": PROVENANCE_OF[pricer.name],
        "answered_by": pricer.versions(),
        "assumptions": [OVERLAP] if helix_overlap and asked.parallelism.cp > 1 else [],
        "stage_ms": list(price.stage_ms),
        "roofline_ms": price.roofline_ms,
        "bound": price.bound,
        "intensity_flop_per_byte": _intensity(price),
        "link_bytes": sum(one.op.count * one.op.kernel.link_bytes for one in price.ops),
        "flags": price.flags,
        "ops": [_op(one) for one in price.ops],
    }
    if as_json:
        echo_json(data)
        return
    _print(data, why)


def _rejection(asked: Case, level: str, ignore_memory: bool) -> str:
    """What keeps a case from being priced: lint errors, or memory where a whole model is asked for."""
    from harness.lint import lint_case

    errors = [finding.message for finding in lint_case(asked) if finding.severity == "error"]
    if errors or ignore_memory or level != "model":
        return "; ".join(errors)
    return out_of_memory(asked)


def _intensity(price: CasePrice) -> float | None:
    moved = sum(one.op.hbm_bytes for one in price.ops)
    return sum(one.op.flops for one in price.ops) / moved if moved else None


def _op(priced: Any) -> dict[str, Any]:
    return {
        "op": priced.op.name,
        "count": priced.op.count,
        "time_us": None if priced.price.time_ms is None else priced.price.time_ms * 1000,
        "total_ms": priced.total_ms,
        "source": priced.price.source,
        "note": priced.price.note or None,
    }


def _print(data: dict[str, Any], why: str) -> None:
    click.echo(f"{data['variant']}, {data['parallelism']}, {data['workload']}, {data['gpu']}, {data['level']} level")
    for op in data["ops"]:
        total = "no answer" if op["total_ms"] is None else f"{op['total_ms']:10.4f} ms"
        click.echo(f"  {op['op']:<28} x{op['count']:<4} {total}  {op['source'] or op['note']}")
    if data["value_ms"] is None:
        click.echo(f"{data['status']}: {data['reason']}")
    else:
        sources = mix_text(data["source_shares"])
        click.echo(f"time      {data['value_ms']:.4f} ms  ({data['provenance']}: {sources}; {why})")
    if data["stage_ms"]:
        stages = " + ".join(f"{time_ms:.4f}" for time_ms in data["stage_ms"])
        click.echo(f"stages    {stages} ms, the slowest {imbalance(data['stage_ms']):.3f} times the mean")
    if data["roofline_ms"]:
        click.echo(f"roofline  {data['roofline_ms']:.4f} ms  ({data['bound']})")
    if data["flags"]:
        click.echo(f"flags     {', '.join(data['flags'])}")
    for text in data["assumptions"]:
        click.echo(f"assumed   {text}")
