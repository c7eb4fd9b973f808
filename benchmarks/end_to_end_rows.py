"""Served rows: what the package's `silicon_sample.csv` says of whole models, and the public shapes of those models.

The sample (aiconfigurator-core 0.12, `systems/silicon_sample.csv`) has one measured mean TTFT and TPOT per row; here are
its aggregated TensorRT-LLM rows. `batch_size` counts the sequences of one model instance, or of one rank where the row
has attention DP. Shapes are those of the models' public `config.json`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.pricing.tables.availability import systems_root
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Experts, Mla, Variant, WeightFormats

_LLAMA_70B = {"layers": 80, "hidden": 8192, "q_heads": 64, "kv_heads": 8, "head_dim": 128, "ffn": 28672}
_LLAMA_8B = {"layers": 32, "hidden": 4096, "q_heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336}
_QWEN_32B = {"layers": 64, "hidden": 5120, "q_heads": 64, "kv_heads": 8, "head_dim": 128, "ffn": 25600}
_QWEN_235B = {"layers": 94, "hidden": 4096, "q_heads": 64, "kv_heads": 4, "head_dim": 128, "ffn": 0}
_DEEPSEEK = {"layers": 61, "hidden": 7168, "q_heads": 128, "kv_heads": 128, "head_dim": 128, "ffn": 18432}

#: Model → fields of its variant, precision apart.
SHAPES: dict[str, dict[str, Any]] = {
    "Llama-3.1-70B": {**_LLAMA_70B, "vocab": 128256},
    "Llama-3.1-8B": {**_LLAMA_8B, "vocab": 128256},
    "Qwen3-32B": {**_QWEN_32B, "vocab": 151936},
    "Qwen3-235B-A22B": {**_QWEN_235B, "vocab": 151936, "experts": Experts(count=128, top_k=8, inter=1536)},
    "DeepSeek-V3": {
        **_DEEPSEEK,
        "vocab": 129280,
        "attention": ("mla",),
        "mla": Mla(),
        "experts": Experts(count=256, top_k=8, inter=2048, shared_inter=2048, dense_layers=3),
    },
}
#: Some MoE rows on single nodes name tp · ep ranks, 16 or 64, where their id says tp 8.
_NODE_GPUS, _NODES = 8, ("h100_sxm", "h200_sxm", "b200_sxm")
#: Beginning of `model_path`, without the owner → model. DeepSeek-R1 and V3.1 have the shape of V3.
_NAMES = {
    "Llama-3.1-70B": "Llama-3.1-70B",
    "Llama-3.1-8B": "Llama-3.1-8B",
    "Qwen3-32B": "Qwen3-32B",
    "Qwen3-235B": "Qwen3-235B-A22B",
    "DeepSeek": "DeepSeek-V3",
    "gpt-oss-120b": "gpt-oss-120b",
}


@dataclass(frozen=True)
class ServedRow:
    """One measured row. `split` is None where its columns cannot be right; `problem` then says why."""

    row_id: str
    model: str
    system: str
    precision: str
    isl: int
    osl: int
    batch: int
    """Requests that one model instance is sent at a time."""
    ttft_ms: float
    tpot_ms: float
    split: Parallelism | None
    problem: str = ""
    inference_max: bool = False
    """Whether the row comes from InferenceMAX, whose scripts are known."""

    @property
    def group(self) -> tuple[str, str, str]:
        """What errors are pooled over: model, GPU, precision."""
        return self.model, self.system, self.precision


def load_rows() -> list[ServedRow]:
    """All aggregated TensorRT-LLM rows of the installed package, in its order."""
    with (systems_root() / "silicon_sample.csv").open(newline="", encoding="utf-8") as file:
        return [_row(line) for line in csv.DictReader(file) if (line["backend"], line["mode"]) == ("trtllm", "agg")]


def _row(line: Mapping[str, str]) -> ServedRow:
    split, problem = _split(line)
    return ServedRow(
        row_id=line["id"],
        model=_model(line["model_path"]),
        system=line["system"],
        precision=line["precision"] or "bf16",
        isl=_whole(line["isl"]),
        osl=_whole(line["osl"]),
        batch=_whole(line["batch_size"]) * max(1, _whole(line["attention_dp_size"])),
        ttft_ms=float(line["silicon_ttft_ms"]),
        tpot_ms=float(line["silicon_tpot_ms"]),
        split=split,
        problem=problem,
        # Exports of its dashboard: every one says whether the run was work in progress.
        inference_max="; wip=" in line["silicon_data_source"],
    )


def _split(line: Mapping[str, str]) -> tuple[Parallelism | None, str]:
    tp, dp, moe_tp, ep = (
        max(1, _whole(line[name])) for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    )
    if "experts" not in SHAPES.get(_model(line["model_path"]), {"experts": None}):
        return Parallelism(tp=tp), ""
    ranks = tp * dp
    if ranks > _NODE_GPUS and line["system"] in _NODES:
        return None, f"its columns say more than the {_NODE_GPUS} ranks of a node"
    return Parallelism(tp=ranks, ep=ep, moe_tp=moe_tp, attention_dp=dp > 1), ""


def _model(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    return next(model for start, model in _NAMES.items() if name.startswith(start))


def _whole(cell: str) -> int:
    return int(float(cell or 0))


def variant_of(row: ServedRow, *, block_fp8: bool = True) -> Variant | str:
    """The model of a row as a variant, or why there is none.

    FP8 and FP4 checkpoints are taken to be NVIDIA's (one scale per tensor, or NVFP4; KV cache and prefill attention in
    FP8), except for Qwen's and DeepSeek's own FP8 ones, which have blocks of 128 x 128 and no scale for KV. `block_fp8`
    False takes the dense ones of these as NVIDIA's too.
    """
    if row.model not in SHAPES:
        return "its experts are MXFP4, which no variant has"
    shape, blocks = SHAPES[row.model], row.model.startswith(("Qwen", "DeepSeek"))
    blocks = blocks and row.precision == "fp8" and (block_fp8 or row.model != "Qwen3-32B")
    weights = {"bf16": "bf16", "fp8": "fp8_block" if blocks else "fp8", "fp4": "nvfp4"}[row.precision]
    cache = "bf16" if blocks or row.precision == "bf16" else "fp8"
    formats = WeightFormats.model_validate({"attention": weights, "ffn": weights, "experts": weights})
    return Variant.model_validate(
        {"name": row.model, **shape, "weights": formats, "kv_format": cache, "attn_format": cache}
    )


def by_group(rows: Iterable[ServedRow]) -> dict[tuple[str, str, str], list[ServedRow]]:
    """Rows by model, GPU and precision, in order of first appearance."""
    groups: dict[tuple[str, str, str], list[ServedRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return groups
