"""Studies answered by hand: every kernel takes the time that a test says it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd
from shapes import LLAMA_8B

from harness.cost.ops import DecodeAttention, Elementwise, Kernel, PrefillAttention
from harness.hardware import load_system
from harness.pricing.base import KernelPrice, KernelPricer
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.results.build import Answerer, priced_attempt
from harness.results.store import Attempt
from harness.spec.base import parse
from harness.spec.expand import expand
from harness.spec.load import base_variant
from harness.spec.study import Study

ATTENTION = {"op": "layer.attn.attention", "measure": "time_us"}

Frames = tuple[pd.DataFrame, pd.DataFrame]


class HandPricer:
    """Attention takes what `attention_us` says, or is refused for the reason it gives; every GEMM takes 1 ms."""

    name = "tables"

    def __init__(self, attention_us: Callable[[Any], float | str], flags: Callable[[Any], tuple[str, ...]]) -> None:
        self.attention_us, self.flags = attention_us, flags

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        return [self._one(kernel) for kernel in kernels]

    def _one(self, kernel: Kernel) -> KernelPrice:
        if isinstance(kernel, Elementwise):
            return KernelPrice.refuse("unsupported", "no table")
        if not isinstance(kernel, DecodeAttention | PrefillAttention):
            return KernelPrice(1.0, "exact")
        answer = self.attention_us(kernel)
        if isinstance(answer, str):
            return KernelPrice.refuse("refused", answer)
        return KernelPrice(answer / 1000, "exact", flags=self.flags(kernel))

    def versions(self) -> dict[str, str]:
        return {}


def a_study(*claims: dict[str, Any], **changes: Any) -> Study:
    """Decode of 16 query heads over G at b 8, KVSL 65536, in one layer, on B200."""
    data = {
        "name": "s",
        "title": "t",
        "level": "layer",
        "variant": {**LLAMA_8B, "layers": 1, "q_heads": 16, "kv_heads": 16},
        "axes": {"G": [1, 2, 4, 8]},
        "workloads": {"decode": {"batch": 8, "kvsl": 65536}},
        "systems": ["b200_sxm"],
        "claims": [{"id": "c", "guideline": "A1d", "statement": "so it is", **claim} for claim in claims],
        **changes,
    }
    return parse(Study, data, "s")


def answered(
    study: Study,
    attention_us: Callable[[Any], float | str],
    flags: Callable[[Any], tuple[str, ...]] = lambda _: (),
) -> Frames:
    """Records and ops of a study whose attention takes `attention_us(kernel)` µs; a text is why it is refused."""
    return priced(study, lambda _: HandPricer(attention_us, flags))


def roofline_of(system: str) -> RooflinePricer:
    return RooflinePricer(load_system(system))


def priced(study: Study, pricer_of: Callable[[str], KernelPricer] = roofline_of) -> Frames:
    """Records and ops of a study, each system priced by its pricer, in the order of the study."""
    plan = list(enumerate(expand(study, base_variant(study))))
    attempts: dict[int, Attempt] = {}
    for system in study.systems:
        mine = [(number, one) for number, one in plan if one.case.system == system]
        level = "layer" if study.level == "layer" else "model"
        pricer = pricer_of(system)
        prices = price_cases([one.case for _, one in mine], level, pricer, roofline_of(system), study.ops)
        for (number, one), price in zip(mine, prices, strict=True):
            answerer = Answerer(pricer.name, "by hand")
            attempts[number] = priced_attempt(
                one, price, answerer, f"{study.name}.{number:04d}", "2026-11-30T00:00:00Z"
            )
    in_order = [attempts[number] for number, _ in plan]
    records = pd.DataFrame([asdict(attempt.record) for attempt in in_order])
    return records, pd.DataFrame([asdict(op) for attempt in in_order for op in attempt.ops])
