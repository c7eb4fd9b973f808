"""Random models and splits for `against_engine.py`: what lint accepts, fits into memory and has rows of its kind.

Attention heads of a rank, head sizes and expert shapes are drawn from those that were measured on both systems; hidden
sizes, FFNs, layers, batches and lengths are anything. A draw that is not a valid case is thrown away.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.cost.memory import fits
from harness.hardware import load_system
from harness.lint import lint_case
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill, Routing

SYSTEMS = ("b200_sxm", "h200_sxm")
#: Kinds of split, drawn alike; twice the one that has rows of few shapes, so that enough of its draws are answered.
DENSE_SPLITS = ("one", "tp", "tp pp", "adp")
MOE_SPLITS = ("one", "tp", "ep", "tp pp", "adp", "adp ep", "adp ep")
#: (query heads, KV heads) of one rank, at most 32 to one.
_RANK_HEADS = (
    (4, 1), (4, 2), (4, 4), (8, 1), (8, 2), (8, 4), (8, 8), (16, 1), (16, 2), (16, 4), (16, 8), (16, 16), (24, 4),
    (32, 1), (32, 2), (32, 4), (32, 8), (32, 32), (48, 8), (64, 2), (64, 4), (64, 8),
)  # fmt: skip
#: Hidden, expert size, top k, experts.
_EXPERTS = (
    (2048, 512, 8, 256), (2048, 768, 8, 128), (3072, 1024, 8, 256), (3072, 1536, 8, 256), (4096, 1024, 10, 512),
    (4096, 1536, 8, 128), (4096, 2048, 8, 256), (4096, 14336, 2, 8), (5120, 8192, 1, 16), (5120, 8192, 1, 128),
    (6144, 2048, 8, 256), (6144, 2560, 8, 160), (6144, 16384, 2, 8), (7168, 2048, 8, 256), (7168, 2048, 8, 384),
)  # fmt: skip
#: Of these, the shapes whose exchanges were measured, between 8 GPUs.
_EXCHANGED = ((6144, 2048, 8, 256), (7168, 2048, 8, 256), (7168, 2048, 8, 384))
#: Attention and KV formats that go together.
_ATTENTION = (("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8"))
_WEIGHTS = {"b200_sxm": ("bf16", "fp8", "fp8_block", "nvfp4"), "h200_sxm": ("bf16", "fp8", "fp8_block")}
_MAX_PREFILL_TOKENS = 16_384


@dataclass(frozen=True)
class Question:
    """One model on one system, asked for a decode step and a prefill. Batches are those of one rank."""

    kind: str
    """`dense` or `moe`."""
    splits: tuple[str, ...]
    """Which of `tp`, `pp`, `ep`, `adp` it has."""
    variant: Variant
    parallelism: Parallelism
    system: str
    routing: Routing
    decode_batch: int
    kvsl: int
    prefill_batch: int
    isl: int

    @property
    def decode(self) -> Case:
        """The decode step, with the sequences of all ranks."""
        ranks = self.parallelism.dp
        return self._case(Decode(phase="decode", batch=self.decode_batch * ranks, kvsl=self.kvsl, routing=self.routing))

    @property
    def prefill(self) -> Case:
        """The prefill, with the prompts of all ranks."""
        ranks = self.parallelism.dp
        return self._case(
            Prefill(phase="prefill", batch=self.prefill_batch * ranks, isl=self.isl, routing=self.routing)
        )

    def _case(self, workload: Decode | Prefill) -> Case:
        return Case(variant=self.variant, parallelism=self.parallelism, workload=workload, system=self.system)


def draw_questions(seed: int) -> Iterator[Question]:
    """Valid questions without end, alternately dense and MoE, no two alike."""
    draw = random.Random(seed)
    seen: set[tuple[str, str]] = set()
    while True:
        for kind, splits in (("dense", DENSE_SPLITS), ("moe", MOE_SPLITS)):
            split = draw.choice(splits)
            question = _draw(draw, kind, split)
            while question is None or _ids(question) in seen:
                question = _draw(draw, kind, split)
            seen.add(_ids(question))
            yield question


def _ids(question: Question) -> tuple[str, str]:
    return question.decode.case_id, question.prefill.case_id


def _draw(draw: random.Random, kind: str, split: str) -> Question | None:
    """One question, or None where what was drawn is no valid case."""
    system = draw.choice(SYSTEMS)
    parallelism = _parallelism(draw, split)
    tokens = _MAX_PREFILL_TOKENS // (parallelism.dp if kind == "moe" else 1)
    isl = min(round(2 ** draw.uniform(7, 13)), tokens)
    question = Question(
        kind=kind,
        splits=_names(parallelism),
        variant=_variant(draw, kind, split, parallelism, system),
        parallelism=parallelism,
        system=system,
        routing=_routing(draw, kind, split),
        decode_batch=round(2 ** draw.uniform(0, 7)),
        kvsl=round(2 ** draw.uniform(9, 15)),
        prefill_batch=draw.randint(1, max(1, min(4, tokens // isl))),
        isl=isl,
    )
    return question if _is_valid(question) else None


def _parallelism(draw: random.Random, split: str) -> Parallelism:
    names = split.split()
    tp = 1 if split == "one" else 8 if split == "adp ep" else draw.choice((2, 4, 8))
    ep = tp if "ep" in names else 1
    if split == "ep" and draw.random() < 0.5:
        ep //= 2  # each expert cut in two as well
    return Parallelism(tp=tp, pp=draw.choice((2, 4)) if "pp" in names else 1, ep=ep, attention_dp="adp" in names)


def _names(split: Parallelism) -> tuple[str, ...]:
    has = {"tp": split.tp > 1 and not split.attention_dp, "pp": split.pp > 1, "ep": split.ep > 1}
    return tuple(name for name, holds in (has | {"adp": split.attention_dp}).items() if holds)


def _routing(draw: random.Random, kind: str, split: str) -> Routing:
    """Any that the engine can be told; where tokens travel to experts it has no balanced rows and takes others."""
    if kind == "dense":
        return "balanced"
    return "power_law_1.2" if split == "adp ep" else draw.choice(("balanced", "power_law_1.2"))


def _variant(draw: random.Random, kind: str, split: str, parallelism: Parallelism, system: str) -> Variant:
    ranks = 1 if parallelism.attention_dp else parallelism.tp
    q_heads, kv_heads = draw.choice(_RANK_HEADS)
    # Half of those with one KV head a rank have each on two ranks.
    repeated = kv_heads == 1 and ranks > 1 and draw.random() < 0.5
    attention, cache = draw.choice(_ATTENTION)
    data: dict[str, Any] = {
        "name": f"{kind} {split}",
        "layers": draw.randint(8, 96),
        "hidden": 128 * draw.randint(8, 96),
        "q_heads": q_heads * ranks,
        "kv_heads": ranks // 2 if repeated else kv_heads * ranks,
        "head_dim": draw.choice((64, 128, 256)),
        "ffn": 128 * 8 * draw.randint(2, 28),
        "vocab": draw.choice((32_000, 128_256, 151_936)),
        "weights": draw.choice(_WEIGHTS[system]),
        "attn_format": attention,
        "kv_format": cache,
    }
    if kind == "moe":
        hidden, inter, top_k, experts = draw.choice(_EXCHANGED if split == "adp ep" else _EXPERTS)
        data |= {"hidden": hidden, "ffn": 0, "experts": {"count": experts, "top_k": top_k, "inter": inter}}
    return Variant.model_validate(data)


def _is_valid(question: Question) -> bool:
    """Whether lint has no error about either phase and both fit."""
    for case in (question.decode, question.prefill):
        if any(finding.severity == "error" for finding in lint_case(case)):
            return False
        if not fits(case, load_system(case.system)).fits:
            return False
    return True
