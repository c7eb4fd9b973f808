"""Variants and cases that many tests start from."""

from __future__ import annotations

from typing import Any

from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

LLAMA_8B: dict[str, Any] = {
    "name": "llama-8b",
    "layers": 32,
    "hidden": 4096,
    "q_heads": 32,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 14336,
    "vocab": 128256,
}

#: What makes experts of 128 out of a dense variant.
MOE: dict[str, Any] = {"ffn": 0, "hidden": 4096, "experts": {"count": 128, "top_k": 8, "inter": 1536}}


def variant(**changes: Any) -> Variant:
    return Variant(**{**LLAMA_8B, **changes})


def decode(
    batch: int = 8, kvsl: int = 4096, system: str = "b200_sxm", workload: dict[str, Any] | None = None, **shape: Any
) -> Case:
    asked = {"phase": "decode", "batch": batch, "kvsl": kvsl, **(workload or {})}
    return Case(variant=variant(**shape), workload=asked, system=system)


def prefill(
    batch: int = 1, isl: int = 4096, system: str = "b200_sxm", workload: dict[str, Any] | None = None, **shape: Any
) -> Case:
    asked = {"phase": "prefill", "batch": batch, "isl": isl, **(workload or {})}
    return Case(variant=variant(**shape), workload=asked, system=system)


def over(case: Case, **split: Any) -> Case:
    """The same case on another parallelism."""
    return case.model_copy(update={"parallelism": Parallelism(**split)})
