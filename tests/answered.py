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
    flags: Callable[[Any], tuple[str, ...]] = lambda kernel: (),
) -> Frames:
    """Records and ops of a study whose attention takes `attention_us(kernel)` µs; a text is why it is refused."""
    return priced(study, HandPricer(attention_us, flags))


def priced(study: Study, pricer: KernelPricer | None = None) -> Frames:
    """Records and ops of a study, priced by `pricer` or the roofline."""
    records, ops = [], []
    for number, planned in enumerate(expand(study, base_variant(study))):
        roofline = RooflinePricer(load_system(planned.case.system))
        level = "layer" if planned.level == "layer" else "model"
        [price] = price_cases([planned.case], level, pricer or roofline, roofline, planned.ops)
        answerer = Answerer((pricer or roofline).name, "by hand")
        attempt = priced_attempt(planned, price, answerer, f"{study.name}.{number:04d}", "2026-11-30T00:00:00Z")
        records.append(asdict(attempt.record))
        ops += [asdict(op) for op in attempt.ops]
    return pd.DataFrame(records), pd.DataFrame(ops)
