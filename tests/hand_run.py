"""A small run whose attention times are written here by hand, so that a test can work out every number of its report.

Eight shapes on two GPUs: 64 query heads, G 8 to 64, decode at batch 1 and 8 with 32768 cached tokens, ten layers. Every
GEMM takes 10 µs, and so do experts. On H200 one case is refused and one left out by the study.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.cost.ops import DecodeAttention, Elementwise, Gemm, Kernel, Moe
from harness.hardware import load_system
from harness.pricing.base import KernelPrice
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.results.build import Answerer, priced_attempt, unpriced_attempt
from harness.results.store import Attempt, Run, open_run, read_run
from harness.spec.base import parse
from harness.spec.expand import expand
from harness.spec.load import base_variant
from harness.spec.study import Study, Suite

G_VALUES = (8, 16, 32, 64)
#: GPU and batch → time of one attention kernel at each G, in ms; None is refused.
ATTENTION_MS: dict[tuple[str, int], tuple[float | None, ...]] = {
    ("b200_sxm", 1): (0.020, 0.020, 0.020, 0.200),
    ("b200_sxm", 8): (0.080, 0.050, 0.040, 1.600),
    ("h200_sxm", 1): (0.030, 0.030, 0.030, 0.240),
    ("h200_sxm", 8): (0.140, 0.090, 0.080, None),
}
REFUSAL = "b 8 at G 64 lies beyond the last row"
LEFT_OUT = "left out on purpose"
VERSIONS = "aiconfigurator-core 0.12.0, trtllm 1.3.0rc20"

STUDY_DATA: dict[str, Any] = {
    "name": "group-size",
    "title": "Decode lives on G",
    "guidelines": "A1d",
    "about": "Does attention get faster with G?",
    "limits": ["KVSL ends at 32768."],
    "level": "layer",
    "variant": {
        "name": "hand", "layers": 10, "hidden": 4096, "q_heads": 64, "kv_heads": 8, "head_dim": 128, "ffn": 8192,
        "vocab": 32000, "kv_format": "fp8",
    },
    "axes": {"G": list(G_VALUES)},
    "workloads": {"decode": {"batch": [1, 8], "kvsl": 32768}},
    "systems": ["b200_sxm", "h200_sxm"],
    "exclude": [{"when": {"system": "h200_sxm", "batch": 1, "G": 64}, "reason": LEFT_OUT}],
    "claims": [
        {
            "id": "gain", "guideline": "A1d", "kind": "ratio", "axis": "G",
            "statement": "Doubling G from 8 to 16 pays.",
            "quantity": {"op": "layer.attn.attention", "measure": "time_us"}, "where": {"batch": 8},
            "value": 16, "over": 8, "at_most": 0.75, "scatter_pct": 5,
        },
        {
            "id": "limit", "guideline": "A1d", "kind": "ratio", "axis": "G",
            "statement": "G 64 is no slower than G 32.",
            "quantity": {"op": "layer.attn.attention", "measure": "time_us"}, "where": {"batch": 8},
            "value": 64, "over": 32, "at_most": 1.0, "scatter_pct": 5,
        },
    ],
    "plots": [
        {
            "title": "Attention over G", "x": "G", "lines": "batch", "panels": "system",
            "y": {"op": "layer.attn.attention", "measure": "time_us"},
        },
        {"title": "Step over G", "x": "G", "lines": "batch", "panels": "system", "y_scale": "linear"},
    ],
}  # fmt: skip
STUDY = parse(Study, STUDY_DATA, "group-size")
SUITE = Suite(name="hand", title="A run made by hand", about="Two GPUs.", studies=("group-size",))


class WrittenPricer:
    """Answers from the table above."""

    name = "tables"

    def __init__(self, system: str) -> None:
        self.system = system

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        return [self._price(kernel) for kernel in kernels]

    def versions(self) -> dict[str, str]:
        return {"trtllm": "1.3.0rc20"}

    def _price(self, kernel: Kernel) -> KernelPrice:
        if isinstance(kernel, Gemm | Moe):
            return KernelPrice(0.010, "interpolated", note="between two rows")
        if isinstance(kernel, DecodeAttention):
            time_ms = ATTENTION_MS[self.system, kernel.batch][G_VALUES.index(int(kernel.group_size))]
            if time_ms is None:
                return KernelPrice.refuse("refused", REFUSAL)
            return KernelPrice(time_ms, "exact", ("l2_warm",) if kernel.batch == 1 else ())
        assert isinstance(kernel, Elementwise)
        return KernelPrice.refuse("unsupported", "no rows")


def hand_run(folder: Path, *, answered_by: str = "tables", study: Study = STUDY, suite: Suite = SUITE) -> Run:
    """Write the run to `folder` and read it back; `answered_by` is `tables` or `roofline`."""
    with open_run(folder, suite, [study]) as run:
        run.append(_attempts(study, answered_by))
        run.write_environment({"harness": "0.0.1", "packages": {"pandas": "2.2"}, "command": ["run", "hand"]})
    return read_run(folder)


def _attempts(study: Study, answered_by: str) -> list[Attempt]:
    made = []
    answerer = Answerer(answered_by, VERSIONS if answered_by == "tables" else "roofline of gpus.yaml")
    for number, planned in enumerate(expand(study, base_variant(study))):
        attempt, when = f"RUN.{number:06d}", "2026-03-01T12:00:00+00:00"
        if planned.skip_reason:
            made.append(unpriced_attempt(planned, "skipped", planned.skip_reason, answerer, attempt, when))
            continue
        limit = RooflinePricer(load_system(planned.case.system))
        pricer = WrittenPricer(planned.case.system) if answered_by == "tables" else limit
        (price,) = price_cases([planned.case], "layer", pricer, limit)
        made.append(priced_attempt(planned, price, answerer, attempt, when))
    return made
