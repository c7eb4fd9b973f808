"""What a served row is priced as: formula F and the corrections to it, each of which can be left out.

    formula F      TPOT = decode step at the mean context + b · prefill(1, isl) / osl; TTFT = prefill(1, isl)
    corrections    `CORRECTIONS`; docs/cost-model.md, "Corrections for served rows", has the evidence for each

None of their numbers was fitted to the rows that they are tested on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from end_to_end_prices import Ask, Model, Prices, StepTimes, body, decode, prefill, prompt_attention
from end_to_end_rows import ROUTING, ServedRow, variant_of
from end_to_end_simulation import Request, Server, simulate

from harness.cost.kv_cache import kv_bytes_per_token
from harness.cost.memory import fits
from harness.hardware import load_system
from harness.spec.case import Case
from harness.spec.workload import Prefill

#: Name → what it does.
CORRECTIONS = {
    "capacity": "no more sequences at a time than the KV cache holds to their ends",
    "lengths": "InferenceMAX rows: lengths sampled between 0.8 L and L, 0.9 L on average",
    "mixed-step": "a prompt rides in a step with the decoding sequences: weights are read once",
    "block-fp8": "Qwen3-32B FP8: blocks of 128 x 128 and a bf16 KV cache, as in Qwen's own checkpoint",
    "nvfp4-min": "an NVFP4 GEMM takes no longer than FP8 at the same shape",
    "routing": "experts: a skewed routing, as the package assumes it for the model, instead of a balanced one",
    "queue": "TTFT from a simulated burst and closed loop instead of one prompt alone",
    "batch-wait": "InferenceMAX rows of the 70B, 1024/1024 at tp < 8: prompts wait up to 20 steps for company",
}

#: InferenceMAX, all models: RANDOM_RANGE_RATIO and `--num-prompts` per slot.
RANGE_RATIO = 0.8
PROMPTS_PER_SLOT = 10
#: InferenceMAX, scripts of the 70B: `--max_num_tokens`, `batch_wait_timeout_iters` and `batch_wait_max_tokens_ratio`.
MAX_TOKENS = 16384
WAIT_STEPS, WAIT_RATIO = 20, 0.9
#: TensorRT-LLM's own `max_num_tokens`, where no script is known.
DEFAULT_MAX_TOKENS = 8192


@dataclass(frozen=True)
class Serving:
    """A row as it is priced: mean lengths, sequences at a time, and what the server allows."""

    row: ServedRow
    model: Model
    isl: int
    osl: int
    batch: int
    server: Server
    sampled: bool
    """Whether lengths differ from request to request."""
    off: frozenset[str]

    @property
    def context(self) -> int:
        """Mean tokens in the cache of a decoding sequence."""
        return self.isl + self.osl // 2

    def tpot_ms(self, prices: Prices) -> float:
        """Time per output token after the first."""
        step_ms = prices.time_ms(*decode(self.model, self.batch, self.context))
        if "mixed-step" in self.off:
            return step_ms + self.batch * prices.time_ms(*prefill(self.model, self.isl)) / self.osl
        # Every other slot takes a new prompt once while a request decodes; that step has both in one body.
        longer_ms = (
            prices.time_ms(body(self.model, self.batch + self.isl))
            - prices.time_ms(body(self.model, self.batch))
            + prices.time_ms(prompt_attention(self.model, self.isl))
        )
        return step_ms + (self.batch - 1) / self.osl * longer_ms

    def ttft_ms(self, prices: Prices) -> float:
        """Mean time to the first token."""
        if "queue" in self.off:
            return prices.time_ms(*prefill(self.model, self.isl))
        served = simulate(self._times(prices), self.server, self.requests(), self.row.batch)
        return sum(one.ttft_ms for one in served) / len(served)

    def requests(self) -> list[Request]:
        """What the client sends, in order."""
        count = PROMPTS_PER_SLOT * self.row.batch
        if not self.sampled:
            return [Request(self.isl, self.osl)] * count
        import numpy as np

        rng = np.random.default_rng(0)
        isl, osl = (
            rng.integers(int(RANGE_RATIO * length), length, count, endpoint=True).tolist()
            for length in (self.row.isl, self.row.osl)
        )
        return [Request(*lengths) for lengths in zip(isl, osl, strict=True)]

    @property
    def tpot_asks(self) -> list[Ask]:
        """The prices that `tpot_ms` is made of, and one prompt alone."""
        model = self.model
        mixed = body(model, self.batch + self.isl)
        return [*decode(model, self.batch, self.context), *prefill(model, self.isl), mixed]

    def asks(self, prices: Prices) -> list[Ask]:
        """All prices that TPOT and TTFT need."""
        return self.tpot_asks + ([] if "queue" in self.off else self._times(prices).asks())

    def _times(self, prices: Prices) -> StepTimes:
        least = int(RANGE_RATIO * self.row.isl) if self.sampled else self.isl
        return StepTimes(
            prices, self.model, self.server.max_tokens, self.row.batch, least, self.row.isl,
            self.row.isl + self.row.osl,
        )  # fmt: skip


def serve(row: ServedRow, without: Collection[str] = ()) -> Serving | str:
    """A row with all corrections but some, or why it cannot be priced."""
    off = frozenset(without)
    variant = variant_of(row, block_fp8="block-fp8" not in off)
    if isinstance(variant, str) or row.split is None:
        return variant if isinstance(variant, str) else row.problem
    routing = "balanced" if "routing" in off else ROUTING.get(row.model, "balanced")
    model = Model(row.system, variant, row.split, "nvfp4-min" in off, routing)
    sampled = row.inference_max and "lengths" not in off
    mean = (1 + RANGE_RATIO) / 2 if sampled else 1.0
    isl, osl = round(mean * row.isl), round(mean * row.osl)
    # Longer prompts than the default were run somehow: in one piece, it is assumed, beside what decodes.
    scripted = row.inference_max and row.model == "Llama-3.1-70B"
    max_tokens = max(MAX_TOKENS if scripted else DEFAULT_MAX_TOKENS, row.isl + row.batch)
    try:
        capacity = kv_tokens(model, max_tokens)
    except ValueError as error:
        return str(error)
    if "capacity" in off:
        capacity = row.batch * (row.isl + row.osl)
    batch = min(row.batch, capacity // (isl + osl))
    if not batch:
        return f"the KV cache holds {capacity} tokens, not one sequence of {isl + osl}"
    waits = scripted and (row.isl, row.osl) == (1024, 1024) and row.split.tp < 8 and "batch-wait" not in off
    server = Server(max_tokens, capacity, *((WAIT_STEPS, WAIT_RATIO) if waits else ()))
    return Serving(row, model, isl, osl, batch, server, sampled, off)


def kv_tokens(model: Model, max_tokens: int) -> int:
    """Tokens that the KV caches of one model instance hold beside a pass of `max_tokens` tokens."""
    # Activations of the largest pass: one prompt of as many tokens, on every rank that has its own.
    work = Prefill(phase="prefill", batch=model.split.dp, isl=max_tokens)
    case = Case(variant=model.variant, parallelism=model.split, workload=work, system=model.system)
    budget = fits(case, load_system(model.system)).kv_budget_bytes
    each = kv_bytes_per_token(model.variant, model.split)
    return max(0, math.floor(budget / each)) * model.split.dp


def ask_all(served: Iterable[Serving], prices: Prices) -> None:
    """Price in one go what many rows need."""
    prices.answer(ask for one in served for ask in one.asks(prices))
