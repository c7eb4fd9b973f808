"""How one model is spread over GPUs."""

from __future__ import annotations

from pydantic import model_validator

from harness.spec.base import Spec
from harness.spec.bounds import Flag, Heads, Layers, Ways


class Parallelism(Spec):
    """Tensor, pipeline, KV-sequence (Helix), expert and attention-data parallelism.

    EP lives inside the tp·cp ranks of a stage and adds no GPU: ep · moe_tp = tp · cp. A split that breaks this is legal
    here and judged by `harness.lint`.
    """

    tp: Ways = 1
    pp: Ways = 1
    cp: Ways = 1
    """Ways the KV sequence is split in decode (`context_parallel_size`, Helix)."""
    ep: Ways = 1
    moe_tp: Ways | None = None
    """Ways each expert is split; left out, tp·cp / ep."""
    attention_dp: Flag = False
    """Attention replicated per rank, each with its own sequences."""
    slots: Heads | None = None
    """Expert slots under EPLB, copies included; as many as experts moves them only. Left out, no EPLB."""
    pp_partition: tuple[Layers, ...] | None = None
    """Layers of each pipeline stage; left out, as even as possible, the first stages one more."""

    @model_validator(mode="after")
    def _partition_has_a_part_per_stage(self) -> Parallelism:
        parts = self.pp_partition
        if parts is not None and len(parts) != self.pp:
            raise ValueError(f"pp_partition names {len(parts)} stages, but pp is {self.pp}; give one number per stage")
        return self

    @property
    def world_size(self) -> int:
        """GPUs of one model instance: tp·pp·cp."""
        return self.tp * self.pp * self.cp

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage: tp·cp."""
        return self.tp * self.cp

    @property
    def expert_tp(self) -> int:
        """Ways each expert is split; 0 where ep has more ranks than the stage."""
        return self.moe_tp or self.tp * self.cp // self.ep

    @property
    def dp(self) -> int:
        """Attention data-parallel ways."""
        return self.tp if self.attention_dp else 1

    @property
    def label(self) -> str:
        """Short text for tables: `tp 4 · ep 4`."""
        ways = [("tp", self.tp), ("pp", self.pp), ("kvp", self.cp), ("ep", self.ep)]
        parts = [f"{name} {n}" for name, n in ways if n > 1] + (["ADP"] if self.attention_dp else [])
        parts += [f"EPLB {self.slots}"] if self.slots else []
        parts += [f"stages {'+'.join(map(str, self.pp_partition))}"] if self.pp_partition else []
        return " · ".join(parts) or "1 GPU"
