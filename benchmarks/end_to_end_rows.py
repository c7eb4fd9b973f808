"""Served rows: what the package's `silicon_sample.csv` says of whole models, and the public shapes of those models.

The sample (aiconfigurator-core 0.12, `systems/silicon_sample.csv`) has a measured TTFT and TPOT per row; here are its
aggregated TensorRT-LLM rows. `batch_size` counts the sequences of one model instance, or of one rank where the row has
attention DP. Shapes are those of the models' public `config.json`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.pricing.tables.availability import systems_root
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Experts, Mla, Variant
from harness.spec.workload import Routing

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
#: The most ranks that a row is believed to have. Those that name more have tp · ep of them (16 or 64 where the id says
#: tp 8), or all GPUs of several instances.
_MOST_RANKS = 8
#: Routing of experts as the package's own models assume it (`_power_law_alpha` of its sdk/models/deepseek.py, moe.py).
ROUTING: dict[str, Routing] = {"DeepSeek-V3": "power_law_1.01", "Qwen3-235B-A22B": "power_law_1.2"}
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
    if ranks > _MOST_RANKS:
        return None, f"its columns name more than {_MOST_RANKS} ranks: tp · ep, or several instances"
    return Parallelism(tp=ranks, ep=ep, moe_tp=moe_tp, attention_dp=dp > 1), ""


def _model(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    return next(model for start, model in _NAMES.items() if name.startswith(start))


def _whole(cell: str) -> int:
    return int(float(cell or 0))


def variant_of(row: ServedRow, *, block_fp8: bool = True) -> Variant | str:
    """The model of a row as a variant, or why there is none.

    Quantised models have an FP8 KV cache. Llama's checkpoints are taken to be NVIDIA's, with one scale per tensor or
    NVFP4, Qwen's and DeepSeek's FP8 ones their own, with blocks of 128 x 128; NVIDIA's NVFP4 checkpoint of DeepSeek
    leaves attention in bf16. `block_fp8` False takes Qwen3-32B FP8 to have one scale per tensor, as the sample says.
    """
    if row.model not in SHAPES:
        return "its experts are MXFP4, which no variant has"
    shape = SHAPES[row.model]
    per_tensor = row.model.startswith("Llama") or (row.model == "Qwen3-32B" and not block_fp8)
    weights = {"bf16": "bf16", "fp8": "fp8" if per_tensor else "fp8_block", "fp4": "nvfp4"}[row.precision]
    cache = "bf16" if row.precision == "bf16" else "fp8"
    latent = "mla" in shape
    formats = {"attention": "bf16" if latent and weights == "nvfp4" else weights, "ffn": weights, "experts": weights}
    return Variant.model_validate(
        {"name": row.model, **shape, "weights": formats, "kv_format": cache, "attn_format": "bf16" if latent else cache}
    )


def by_group(rows: Iterable[ServedRow]) -> dict[tuple[str, str, str], list[ServedRow]]:
    """Rows by model, GPU and precision, in order of first appearance."""
    groups: dict[tuple[str, str, str], list[ServedRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return groups
