"""Engines for tests of the store: small files, and weights that are written in pieces and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.engines.engine_spec import EngineSpec, Progress, WeightsJob
from harness.engines.manifest import WeightsOrigin, engine_variant
from harness.spec.variant import Variant

VARIANT = Variant(layers=2, hidden=256, q_heads=4, kv_heads=2, head_dim=64, ffn=512, vocab=1000)

FILES = {
    "config.json": '{"architectures": ["LlamaForCausalLM"]}\n',
    "tokenizer.json": '{"version": "1.0"}\n',
    "extra/special_tokens_map.json": "{}\n",
}


def spec(files: dict[str, str] | None = None, **changes: Any) -> EngineSpec:
    """An engine without weights; `changes` are fields of the variant."""
    variant = VARIANT.model_copy(update=changes)
    return EngineSpec(engine_variant(variant), "LlamaForCausalLM", {**FILES, **(files or {})}, ("a note",))


def with_weights(
    plain: EngineSpec,
    write: Callable[[Path, Progress], dict[str, Any]],
    seed: int = 0,
    disk_bytes: int = 3_000,
    memory_bytes: int = 1_000,
) -> EngineSpec:
    """The same engine with weights that `write` makes."""
    job = WeightsJob(seed, {"nvidia-modelopt": "1.0"}, disk_bytes, memory_bytes, write)
    return replace(plain, weights=job, origin=WeightsOrigin(mode="modelopt", seed=seed, versions=dict(job.versions)))


def write_shards(folder: Path, progress: Progress) -> dict[str, Any]:
    """Three shards, each whole or absent, going on after the last one that is there; a hidden file counts the tries."""
    tries = folder / ".tries"
    tries.write_text(f"{int(tries.read_text() or 0) + 1 if tries.exists() else 1}")
    for number in range(3):
        shard = folder / f"model-{number}.safetensors"
        progress(number, 3, shard.name)
        if not shard.exists():
            half = folder / f".half-{number}"
            with half.open("wb") as file:
                for _ in range(4):
                    file.write(bytes([number]) * 250)
                    file.flush()
            half.rename(shard)
    return {"shards": 3}


SHARDS = {f"model-{number}.safetensors": bytes([number]) * 1000 for number in range(3)}
