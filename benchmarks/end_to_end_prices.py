"""Times of forward passes, put together from this project's own prices.

A pass over some tokens is a body (projections, FFN, norms, exchanges; it depends on the number of tokens alone), the
attention of each prompt, the attention of the decoding sequences, and a head (final norm and lm_head over one row per
sequence). So the passes of an in-flight batch, prompts and decoding sequences together, are priced from the ops of
plain cases: `decompose` takes these apart, the tables pricer answers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from harness.cost.decompose import decompose
from harness.hardware import load_system
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Decode, Prefill, Routing

Part = Literal["body", "attention", "head"]


class Unpriced(Exception):
    """A pass that has no price; its text is the pricer's reason."""


class Model(NamedTuple):
    """One model on some GPUs. `as_is` takes NVFP4 GEMM rows as they are, `routing` is that of its experts."""

    system: str
    variant: Variant
    split: Parallelism
    as_is: bool = False
    routing: Routing = "balanced"


class Ask(NamedTuple):
    """One part of a plain case."""

    model: Model
    part: Part
    prompts: bool
    batch: int
    tokens: int
    """Length of the prompts, or tokens that each decoding sequence has in the cache."""

    @property
    def case(self) -> Case:
        workload: Prefill | Decode = Decode(
            phase="decode", batch=self.batch, kvsl=self.tokens, routing=self.model.routing
        )
        if self.prompts:
            workload = Prefill(phase="prefill", batch=self.batch, isl=self.tokens, routing=self.model.routing)
        return Case(
            variant=self.model.variant, parallelism=self.model.split, workload=workload, system=self.model.system
        )


def body(model: Model, tokens: int) -> Ask:
    """Everything but attention and head, over `tokens` tokens."""
    return Ask(model, "body", prompts=True, batch=1, tokens=tokens)


def prompt_attention(model: Model, isl: int) -> Ask:
    """Attention of one prompt."""
    return Ask(model, "attention", prompts=True, batch=1, tokens=isl)


def decode_attention(model: Model, batch: int, kvsl: int) -> Ask:
    """Attention of `batch` decoding sequences."""
    return Ask(model, "attention", prompts=False, batch=batch, tokens=kvsl)


def head(model: Model, sequences: int) -> Ask:
    """Final norm and lm_head over the last token of each sequence."""
    return Ask(model, "head", prompts=False, batch=sequences, tokens=1)


def prefill(model: Model, isl: int) -> tuple[Ask, ...]:
    """One prompt alone."""
    return prompt_attention(model, isl), body(model, isl), head(model, 1)


def decode(model: Model, batch: int, kvsl: int) -> tuple[Ask, ...]:
    """One decode step."""
    return decode_attention(model, batch, kvsl), body(model, batch), head(model, batch)


class Prices:
    """What has been asked so far; `answer` prices all that is new in one go per system."""

    def __init__(self) -> None:
        self._known: dict[Ask, float | str] = {}
        self._beyond: set[Ask] = set()
        self._pricers: dict[tuple[str, bool], tuple[TablesPricer, RooflinePricer]] = {}

    def answer(self, asks: Iterable[Ask]) -> None:
        """Price what is not known yet."""
        groups: dict[tuple[str, bool, Part], list[Ask]] = {}
        for ask in dict.fromkeys(asks):
            if ask not in self._known:
                groups.setdefault((ask.model.system, ask.model.as_is, ask.part), []).append(ask)
        for (system, as_is, part), new in groups.items():
            pricer, roofline = self._pricer(system, as_is)
            cases = [ask.case for ask in new]
            only = _names(cases, part)
            for ask, price in zip(new, price_cases(cases, "model", pricer, roofline, only), strict=True):
                self._known[ask] = price.time_ms if price.time_ms is not None else price.reason or price.status
                if "extrapolated" in price.flags:
                    self._beyond.add(ask)

    def time_ms(self, *asks: Ask) -> float:
        """Sum of parts; raises Unpriced where one has no price."""
        self.answer(asks)
        times = [self._known[ask] for ask in asks]
        for time in times:
            if isinstance(time, str):
                raise Unpriced(time)
        return sum(time for time in times if not isinstance(time, str))

    def extrapolated(self, *asks: Ask) -> bool:
        """Whether one of these, asked before, was answered from beyond the rows."""
        return not self._beyond.isdisjoint(asks)

    def _pricer(self, system: str, as_is: bool) -> tuple[TablesPricer, RooflinePricer]:
        if (system, as_is) not in self._pricers:
            part = load_system(system)
            self._pricers[system, as_is] = (
                TablesPricer(system, l2_bytes=part.l2_bytes, allow_extrapolation=True, as_is=as_is),
                RooflinePricer(part),
            )
        return self._pricers[system, as_is]


def _names(cases: Sequence[Case], part: Part) -> Collection[str]:
    """Names of the ops that make up one part."""
    shapes = {(case.variant, case.parallelism): case for case in cases}
    return {op.name for case in shapes.values() for op in decompose(case) if part_of(op.name) == part}


def part_of(name: str) -> Part:
    """The part of a pass that an op belongs to."""
    if name.endswith(".attention"):
        return "attention"
    return "head" if name.startswith(("final_norm", "lm_head")) else "body"


@dataclass(frozen=True)
class StepTimes:
    """Times of any pass of one model, linear between those that were priced: a simulation asks for too many."""

    prices: Prices
    model: Model
    most_tokens: int
    most_batch: int
    least_isl: int
    most_isl: int
    most_context: int

    def asks(self) -> list[Ask]:
        """All that is priced."""
        model = self.model
        found = [body(model, tokens) for tokens in self._tokens]
        found += [prompt_attention(model, isl) for isl in self._lengths]
        found += [decode_attention(model, batch, kvsl) for batch in self._batches for kvsl in self._contexts]
        return found + [head(model, batch) for batch in self._batches]

    def body_ms(self, tokens: float) -> float:
        """Everything but attention and head."""
        return self._body(tokens)

    def prompt_attention_ms(self, isl: float) -> float:
        """Attention of one prompt."""
        return self._prompt(isl)

    def head_ms(self, sequences: float) -> float:
        """Final norm and lm_head."""
        return self._head(sequences)

    def decode_attention_ms(self, batch: int, kvsl: float) -> float:
        """Attention of the decoding sequences at their mean length; 0 without any."""
        if not batch:
            return 0.0
        at = bisect_left(self._batches, batch)
        if self._batches[at] == batch:
            return self._decode[at](kvsl)
        low, high = self._batches[at - 1], self._batches[at]
        share = (batch - low) / (high - low)
        return (1 - share) * self._decode[at - 1](kvsl) + share * self._decode[at](kvsl)

    @cached_property
    def _tokens(self) -> list[int]:
        return _steps(1, self.most_tokens, 1.25)

    @cached_property
    def _lengths(self) -> list[int]:
        return _steps(self.least_isl, self.most_isl, 1.1)

    @cached_property
    def _batches(self) -> list[int]:
        return _steps(1, self.most_batch, 2)

    @cached_property
    def _contexts(self) -> list[int]:
        return _steps(self.least_isl, self.most_context, 1.5)

    @cached_property
    def _body(self) -> Callable[[float], float]:
        return self._line(self._tokens, [body(self.model, tokens) for tokens in self._tokens])

    @cached_property
    def _prompt(self) -> Callable[[float], float]:
        return self._line(self._lengths, [prompt_attention(self.model, isl) for isl in self._lengths])

    @cached_property
    def _head(self) -> Callable[[float], float]:
        return self._line(self._batches, [head(self.model, batch) for batch in self._batches])

    @cached_property
    def _decode(self) -> list[Callable[[float], float]]:
        return [
            self._line(self._contexts, [decode_attention(self.model, batch, kvsl) for kvsl in self._contexts])
            for batch in self._batches
        ]

    def _line(self, at: list[int], asks: list[Ask]) -> Callable[[float], float]:
        return polyline(at, [self.prices.time_ms(ask) for ask in asks])


def polyline(at: Sequence[float], values: Sequence[float]) -> Callable[[float], float]:
    """Straight between points, constant beyond."""

    def value(x: float) -> float:
        right = bisect_left(at, x)
        if right == 0 or right == len(at):
            return values[min(right, len(at) - 1)]
        share = (x - at[right - 1]) / (at[right] - at[right - 1])
        return values[right - 1] + share * (values[right] - values[right - 1])

    return value


def _steps(first: int, last: int, factor: float) -> list[int]:
    """Whole numbers from `first` to `last`, each at most `factor` times the one before where that is more than one."""
    found = [first]
    while found[-1] < last:
        found.append(min(last, max(found[-1] + 1, int(found[-1] * factor))))
    return found
