"""What a worker says of one arm it has timed: plain data that crosses the pipe, and what the record is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from harness.backends.base import ArmFacts, OpTime


@dataclass(frozen=True, slots=True)
class Measurement:
    """One arm, timed. Times are unscaled, in the order in which they were taken."""

    facts: ArmFacts
    warmup_ms: tuple[float, ...]
    times_ms: tuple[float, ...]
    rounds: tuple[int, ...]
    """Of each time, the round of the interleaved arms, from 0."""
    windows_s: tuple[tuple[float, float], ...]
    """Start and end of every stretch in which `times_ms` were taken, `time.monotonic()`; what telemetry looks at."""
    stop_reason: str
    warmup_drift_pct: float | None
    op_times: tuple[OpTime, ...] = ()
    invalid: str = ""
    """Why this did not do the work that was asked."""

    def to_data(self) -> dict[str, Any]:
        """Plain data for the pipe."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Measurement:
        """What `to_data` made; raises TypeError or KeyError for anything else."""
        lists = {name: tuple(data[name]) for name in ("warmup_ms", "times_ms", "rounds")}
        windows = tuple((float(start), float(end)) for start, end in data["windows_s"])
        ops = tuple(OpTime(**one) for one in data["op_times"])
        return cls(**{**data, **lists, "facts": ArmFacts(**data["facts"]), "windows_s": windows, "op_times": ops})
