"""Why a case does not fit, and what would make it: the smallest parallelism, or the widest KV format, that does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.cost.memory import MemoryRules, MemoryVerdict, fits, memory_rules
from harness.hardware import System
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import KvFormat
from harness.spec.workload import Decode

#: Widest first.
_KV_FORMATS: tuple[KvFormat, ...] = ("bf16", "fp8", "nvfp4")

#: Search no further than this many GPUs for one model instance.
_MOST_GPUS = 512


@dataclass(frozen=True, slots=True)
class Remedies:
    """Each None where nothing of its kind helps."""

    kv_format: KvFormat | None
    parallelism: Parallelism | None

    @property
    def text(self) -> str:
        """`kv_format fp8, or tp 2` in words; empty where nothing helps."""
        found = [f"kv_format {self.kv_format}"] if self.kv_format else []
        found += [self.parallelism.label] if self.parallelism else []
        return ", or ".join(found)


@dataclass(frozen=True, slots=True)
class Misfit:
    """A case that does not fit: what it needs and what would help. Plans and lint tell it alike."""

    verdict: MemoryVerdict
    remedies: Remedies

    @property
    def why(self) -> str:
        """How much is missing, of what, and whether nothing helps."""
        hopeless = "" if self.remedies.text else f"; nothing up to {_MOST_GPUS} GPUs makes it fit"
        return f"{self.verdict.text}{hopeless}"

    @property
    def text(self) -> str:
        """All of it in one sentence."""
        works = self.remedies.text
        return f"{self.why}; fits with {works}" if works else self.why


def misfit(case: Case, system: System, rules: MemoryRules | None = None) -> Misfit | None:
    """Weigh a case; None where it fits. Raises ValueError where its split is impossible."""
    verdict = fits(case, system, rules)
    return None if verdict.fits else Misfit(verdict, remedies(case, system, rules))


def rejection(case: Case, system: System, rules: MemoryRules | None = None) -> str | None:
    """Why a case does not fit and what would, in one sentence; None where it fits."""
    found = misfit(case, system, rules)
    return found.text if found else None


def remedies(case: Case, system: System, rules: MemoryRules | None = None) -> Remedies:
    """Return what makes a case fit that does not, each alone: a narrower KV format, more GPUs."""
    rules = rules or memory_rules()
    return Remedies(_kv_format(case, system, rules), _parallelism(case, system, rules))


def _kv_format(case: Case, system: System, rules: MemoryRules) -> KvFormat | None:
    if case.variant.kv_format not in _KV_FORMATS:  # fp32, which no GPU runs here: there lint knows better
        return None
    for kv_format in _KV_FORMATS[_KV_FORMATS.index(case.variant.kv_format) + 1 :]:
        stored = case.variant.model_copy(update={"kv_format": kv_format})
        if system.sm in rules.kv_format_sm[kv_format] and _fits(case, system, rules, variant=stored):
            return kv_format
    return None


def _parallelism(case: Case, system: System, rules: MemoryRules) -> Parallelism | None:
    candidates = _wider(case, system.sm in rules.helix_sm)
    return next((split for split in candidates if _fits(case, system, rules, parallelism=split)), None)


def _fits(case: Case, system: System, rules: MemoryRules, **changed: object) -> bool:
    try:
        return fits(case.model_copy(update=changed), system, rules).fits
    except ValueError:
        return False


def _wider(case: Case, has_helix: bool) -> Iterator[Parallelism]:
    """Splits over more GPUs by powers of two, fewest GPUs first; tp before Helix before pp."""
    split, times = case.parallelism, 2
    helix = has_helix and isinstance(case.workload, Decode) and not split.attention_dp
    while split.world_size * times <= _MOST_GPUS:
        ways = [(pp, cp) for pp in _powers(times) for cp in _powers(times // pp) if cp == 1 or helix]
        for pp, cp in ways:
            yield _scaled(split, times // (pp * cp), cp, pp)
        times *= 2


def _scaled(split: Parallelism, tp: int, cp: int, pp: int) -> Parallelism:
    """More ranks in a stage go to EP where there is EP, else to cutting experts."""
    ep = split.ep * tp * cp if split.ep > 1 else 1
    return Parallelism(
        tp=split.tp * tp, cp=split.cp * cp, pp=split.pp * pp, ep=ep, attention_dp=split.attention_dp, slots=split.slots
    )


def _powers(limit: int) -> list[int]:
    """Powers of two up to a power of two: 1, 2, … `limit`."""
    return [1 << power for power in range(limit.bit_length())]
