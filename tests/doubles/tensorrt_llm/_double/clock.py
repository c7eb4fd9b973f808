"""How long things take: the roofline of the harness, times 1.15, with seeded noise.

    step = roofline(batch, KV length) · 1.15 · process · rank · noise

`process` is log-normal with 0.5 % and the same for all of a process, `noise` log-normal with 1 % per iteration and
rank, `rank` up to 3 % for ranks other than 0. `TRTLLM_DOUBLE_NOISE` = `iteration,process,rank` in percent changes
these.
`TRTLLM_DOUBLE_SEED` makes them repeatable; with a truth file, its n-th process is another one each time.
"""

from __future__ import annotations

import json
import math
import os
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from harness.cost.collectives import COLLECTIVES
from harness.cost.decompose import Section, section_ops
from harness.cost.ops import Kernel, Op
from harness.cost.passes import Pass
from harness.cost.ranks import rank_shape
from harness.pricing.roofline import RooflinePricer
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill
from tensorrt_llm._double import gpu

FACTOR = 1.15
#: Decode steps without a CUDA graph wait for the CPU.
EAGER = 1.35
#: What the first decode steps after a change of the batch take longer.
SETTLING = (1.25, 1.05)
#: The first iteration of all compiles, tunes and loads.
FIRST_S = 30.0


class Truth:
    """The file of `TRTLLM_DOUBLE_TRUTH`, JSON Lines; nothing without it."""

    def __init__(self) -> None:
        name = os.environ.get("TRTLLM_DOUBLE_TRUTH")
        self.path = Path(name) if name else None

    def tell(self, rows: list[dict[str, Any]]) -> None:
        if self.path and rows:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write("".join(json.dumps(row) + "\n" for row in rows))

    def processes(self) -> int:
        """How many processes opened the file before."""
        if self.path is None or not self.path.exists():
            return 0
        return sum('"event": "open"' in line for line in self.path.read_text(encoding="utf-8").splitlines())


class Clock:
    """Times of one model on one split."""

    def __init__(self, variant: Variant, split: Parallelism, opened: int = 0) -> None:
        self.pricer = RooflinePricer(gpu())
        self.variant, self.split = _computable(variant, self.pricer), split
        self.shape = rank_shape(self.variant, split)
        self.time_ms = lru_cache(maxsize=None)(self._time_ms)
        iteration, process, rank = _noise()
        seed = os.environ.get("TRTLLM_DOUBLE_SEED") or str(os.getpid())
        self._random = Random(f"{seed} {opened}")
        self._iteration = iteration
        self.process = math.exp(process * self._random.gauss(0, 1))
        skew = Random(f"{seed} ranks")
        self.ranks = [1.0, *(1 + rank * skew.uniform(-1, 1) for _ in range(split.world_size - 1))]

    def decode_ms(self, sequences: int, kv: int, draft: int = 0, section: Section | None = None) -> float:
        """A step of `sequences` sequences a rank with `kv` tokens cached each."""
        ways = self.shape.dp
        work = Decode(phase="decode", batch=sequences * ways, kvsl=max(1, kv), draft_len=draft)
        tokens = sequences * (1 + draft)
        return self._sum_ms(Pass(self.variant, work, self.shape, sequences, tokens, tokens * ways), section)

    def prefill_ms(
        self, sequences: int, tokens: int, past: int = 0, *, last: bool = True, section: Section | None = None
    ) -> float:
        """A pass over `tokens` tokens a rank, of `sequences` prompts of which `past` tokens each are cached."""
        ways, chunk = self.shape.dp, max(1, round(tokens / sequences))
        work = Prefill(phase="prefill", batch=sequences * ways, isl=chunk + past)
        made = Pass(self.variant, work, self.shape, sequences, tokens, tokens * ways, chunk, past, last)
        return self._sum_ms(made, section)

    def draw(self) -> float:
        """The noise of one iteration on one rank."""
        return math.exp(self._iteration * self._random.gauss(0, 1))

    def chance(self) -> float:
        return self._random.random()

    def _sum_ms(self, run: Pass, section: Section | None) -> float:
        whole = Section(0, self.variant.layers, sends=self.split.pp - 1)
        ops = section_ops(run, self.split, section or whole, "layer" if section else "model")
        return FACTOR * self.process * sum(op.count * self.time_ms(op.kernel) for op in ops)

    def share_of_experts(self, sequences: int, section: Section) -> float:
        """Share of a step's time in the experts' kernels."""
        run = Pass(
            self.variant, Decode(phase="decode", batch=sequences, kvsl=1), self.shape, sequences, sequences, sequences
        )  # fmt: skip
        ops: list[Op] = section_ops(run, self.split, section, "layer")
        times = [op.count * self.time_ms(op.kernel) for op in ops]
        return sum(time for op, time in zip(ops, times, strict=True) if op.category == "moe") / sum(times)

    def _time_ms(self, kernel: Kernel) -> float:
        limit = self.pricer.time(kernel)
        if limit is None and isinstance(kernel, COLLECTIVES):
            raise RuntimeError("[TensorRT-LLM][ERROR] no link between the GPUs that the double knows the rate of")
        if limit is None:
            raise RuntimeError(f"[TensorRT-LLM][ERROR] no kernel on SM {gpu().sm}: {kernel}")
        return limit.time_ms


def _computable(variant: Variant, pricer: RooflinePricer) -> Variant:
    """Weights in a format that the GPU computes in: NVFP4 on Hopper is stored in 4 bits and computed in more."""
    if pricer.system.peak_flop_per_s["nvfp4"] is not None:
        return variant
    stored = variant.weights.model_dump()
    return variant.model_copy(
        update={
            "weights": variant.weights.model_copy(
                update={group: "bf16" if one == "nvfp4" else one for group, one in stored.items()}
            )
        }
    )


def _noise() -> tuple[float, float, float]:
    given = [float(part) / 100 for part in os.environ.get("TRTLLM_DOUBLE_NOISE", "1,0.5,3").split(",")]
    iteration, process, rank = [*given, 0.0, 0.0][:3]
    return iteration, process, rank


def first_ms() -> float:
    return 1000 * float(os.environ.get("TRTLLM_DOUBLE_FIRST_S", FIRST_S))
