"""How many tokens each expert gets: as the workload states, imposed, for a router of random weights says nothing."""

from __future__ import annotations

import random
from typing import NamedTuple


class Load(NamedTuple):
    """Tokens that each expert gets; they add up to tokens · top_k, and none has more than all tokens."""

    counts: tuple[int, ...]
    balanced: bool

    @property
    def touched(self) -> int:
        """Experts that get a token, whose weights are read."""
        return sum(count > 0 for count in self.counts)


def expert_load(routing: str, tokens: int, top_k: int, experts: int, seed: int) -> Load:
    """Share tokens · top_k among experts: `balanced`, each the same or one more; `power_law_A`, by a drawn power law.

    The power law is the one under which the published kernels were timed: expert e's share is drawn from a density
    x^-A on [1, 0.8 tokens], or on [0.01, 2] for fewer choices than experts, then scaled and rounded (aiconfigurator,
    collector/helper.py, `sample_power_law` and `power_law_logits_v3`, read 2026-11-30).
    """
    chosen = tokens * top_k
    if routing == "balanced":
        each, rest = divmod(chosen, experts)
        return Load(tuple(each + (expert < rest) for expert in range(experts)), balanced=True)
    alpha = float(routing.rpartition("_")[2])
    low, high = (1.0, 0.8 * tokens) if chosen > experts else (0.01, 2.0)
    draw = random.Random(seed)  # noqa: S311 - a load, no secret
    shares = [_inverse(draw.random(), alpha, low, max(high, low)) for _ in range(experts)]
    return Load(_whole(shares, chosen, tokens), balanced=False)


def _inverse(uniform: float, alpha: float, low: float, high: float) -> float:
    power = 1.0 - alpha
    return float(((high**power - low**power) * uniform + low**power) ** (1.0 / power))


def _whole(shares: list[float], total: int, most: int) -> tuple[int, ...]:
    """Whole numbers in proportion to `shares` that add up to `total`, none above `most`; the largest give or take."""
    scale = total / sum(shares)
    counts = [min(most, round(share * scale)) for share in shares]
    order = sorted(range(len(counts)), key=lambda expert: -counts[expert])
    missing = total - sum(counts)
    while missing:
        step = 1 if missing > 0 else -1
        for expert in order:
            if missing and 0 <= counts[expert] + step <= most:
                counts[expert] += step
                missing -= step
    return tuple(counts)
