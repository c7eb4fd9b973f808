"""Facts from a preflight file that states its own limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.lint.facts import Facts
from harness.spec.base import Spec, parse

Count = Annotated[int, Field(gt=0)]


class Limits(Spec):
    """The few limits a preflight file may state; what it leaves out is not judged."""

    nvfp4_min_sm: Count | None = None
    nvfp4_block: Count | None = None
    fp8_gemm_multiple: Count | None = None
    fp8_block_scale: Count | None = None
    head_size_multiple: Count | None = None
    fused_attention_head_sizes: dict[int, dict[Literal["bf16", "fp8", "nvfp4"], tuple[int, ...]]] = {}
    fast_decode_group_sizes: tuple[int, ...] = ()


def facts_from_limits(limits: Mapping[str, Any], where: str = "limits") -> Facts:
    """Build facts from a `limits` mapping and nothing else; raise UsageError with every finding.

    A KV format that the list of an SM leaves out has no fused kernel there; an SM without a list is not judged.
    """
    given = parse(Limits, limits, where)
    multiple = given.head_size_multiple
    blocks = {
        "nvfp4": (given.nvfp4_block, "values share one scale"),
        "fp8": (given.fp8_gemm_multiple, "values fill what FP8 GEMMs are aligned to"),
        "fp8_block": (given.fp8_block_scale, "values on a side share one scale"),
    }
    facts: dict[str, Any] = {
        "block_sizes": {name: {"multiple": n, "why": why, "evidence": where} for name, (n, why) in blocks.items() if n},
        "fused_head_sizes": [
            {"sm": [sm], "kv": [kv], "sizes": sizes.get(kv, ()), "evidence": where}
            for sm, sizes in given.fused_attention_head_sizes.items()
            for kv in ("bf16", "fp8", "nvfp4")
        ],
    }
    if multiple:
        facts["head_size_multiple"] = {
            "multiple": multiple,
            "why": "kernels load so many values at once",
            "evidence": where,
        }
    if given.fast_decode_group_sizes:
        facts["fast_group_sizes"] = [{"sizes": given.fast_decode_group_sizes, "evidence": where}]
    if given.nvfp4_min_sm:
        facts["formats"] = [{"part": "weights", "format": "nvfp4", "min_sm": given.nvfp4_min_sm, "evidence": where}]
    return parse(Facts, facts, where)
