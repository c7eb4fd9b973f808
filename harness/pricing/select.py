"""Which pricer answers: `--on tables|roofline|auto`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from harness.errors import UsageError
from harness.hardware import load_system
from harness.pricing.base import KernelPricer
from harness.pricing.roofline import RooflinePricer
from harness.spec.study import Study

On = Literal["auto", "tables", "roofline"]


def select_pricer(
    on: On, system_key: str, *, allow_extrapolation: bool = False, as_is: bool = False
) -> tuple[KernelPricer, str]:
    """Return the pricer for one system and why it was taken.

    `auto` takes the tables where they are installed and hold the GPU, else the roofline. Raises MissingExtra or
    UsageError when tables are asked for by name and cannot answer, and UsageError for `cpu`, which nobody prices.
    """
    system = load_system(system_key)
    if on == "roofline":
        return RooflinePricer(system), "asked for"
    from harness.pricing.tables import TablesPricer, tabled_systems, tables_available

    if on == "auto":
        available, why = tables_available()
        if not available:
            return RooflinePricer(system), why
        if system_key not in tabled_systems():
            return RooflinePricer(system), f"no published TensorRT-LLM kernel measurements of {system.gpu_name}"
    pricer = TablesPricer(system_key, l2_bytes=system.l2_bytes, allow_extrapolation=allow_extrapolation, as_is=as_is)
    return pricer, "asked for" if on == "tables" else "published kernel measurements are installed"


def check_levels(studies: Iterable[Study]) -> None:
    """Raise UsageError that names every study of a level that no pricer answers: `serve`."""
    findings = [
        f"study {study.name}: level serve is of requests that a server answered, which no pricer has times of; "
        "level: model asks for their prefill and decode"
        for study in studies
        if study.level == "serve"
    ]
    if findings:
        raise UsageError(*findings)
