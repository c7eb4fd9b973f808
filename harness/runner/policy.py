"""How long an arm is warmed up and sampled: the numbers that a run is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.errors import UsageError

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingPolicy:
    """When warm-up and sampling end. Raises UsageError, with all findings, for values that cannot be kept to."""

    warmup_decode: int = 20
    """Warm-up iterations of a decode arm at least."""
    warmup_prefill: int = 3
    """The same for prefill, whose iterations are long."""
    drift_window: int = 20
    """Warm-up iterations, the last ones, that drift is looked for in; fewer where fewer were taken."""
    drift_pct: float = 0.5
    """Drift over the window, in % of its median, that is taken for none."""
    max_warmup: int = 100
    """Warm-up iterations at most; what drifts longer is sampled as it is, and its drift recorded."""
    target_pct: float = 0.5
    """Half-width of the 95 % interval of the median, in % of the median, at which an arm is `precise`."""
    min_samples: int = 30
    """Below it the width of an interval is a matter of luck. Where an iteration takes seconds `budget_s` ends first."""
    max_samples: int = 300
    budget_s: float = 60.0
    """Seconds of iterations of one arm, warm-up included; the arms of a group share theirs."""
    take: int = 1
    """Iterations that an arm runs in one turn."""

    def __post_init__(self) -> None:
        findings = [
            f"{name} {value}: must be at least {least}"
            for name, least in _LEAST.items()
            if (value := getattr(self, name)) < least
        ]
        findings += [
            f"{name} {value}: must be a number above 0"
            for name in _POSITIVE
            if not 0 < (value := getattr(self, name)) < float("inf")
        ]
        if self.max_samples < self.min_samples:
            findings.append(f"max_samples {self.max_samples}: must be at least min_samples, {self.min_samples}")
        if self.max_warmup < max(self.warmup_decode, self.warmup_prefill):
            findings.append(f"max_warmup {self.max_warmup}: must be at least warmup_decode and warmup_prefill")
        if findings:
            raise UsageError(*findings)

    def warmup_floor(self, phase: Phase) -> int:
        """Warm-up iterations of an arm of this phase at least."""
        return self.warmup_decode if phase == "decode" else self.warmup_prefill


_LEAST = {
    "warmup_decode": 0,
    "warmup_prefill": 0,
    "drift_window": 3,
    "max_warmup": 0,
    "min_samples": 1,
    "max_samples": 1,
    "take": 1,
}
_POSITIVE = ("drift_pct", "target_pct", "budget_s")
