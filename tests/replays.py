"""Arms whose times are known beforehand, for tests of sampling."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from random import Random

from harness.backends.base import ArmFacts, CannotAnswer, OpTime, Taken
from harness.backends.measurement import Measurement
from harness.runner.sampling import SamplingPolicy, sample_rounds

TRACES = Path(__file__).parent / "traces"
#: Sampling alone.
COLD = {"warmup_decode": 0, "warmup_prefill": 0, "max_warmup": 0}


class Replay:
    """An arm that takes the times given, one after the other, and writes its number into a log at each turn."""

    def __init__(self, times: Iterable[float], number: int = 0, log: list[int] | None = None) -> None:
        self._times = iter(times)
        self._number, self._log = number, log if log is not None else []
        self.facts = ArmFacts(layers_run=2, details={"dtype": "fp32"})

    def take(self, count: int) -> Taken:
        self._log.append(self._number)
        return Taken(tuple(islice(self._times, count)))

    def op_times(self) -> list[OpTime]:
        return [OpTime("attention", 12.0)]

    def close(self) -> None:
        pass


class Failing(Replay):
    """One that answers so many times and no more."""

    def __init__(self, times: Iterable[float], answers: int, number: int = 0, log: list[int] | None = None) -> None:
        super().__init__(times, number, log)
        self._answers = answers

    def take(self, count: int) -> Taken:
        self._answers -= 1
        if self._answers < 0:
            raise CannotAnswer("the KV cache does not fit", status="oom")
        return super().take(count)


def sampled(times: Iterable[float], **policy: float) -> Measurement:
    """One decode arm, sampled without warm-up; time stands still, so that no budget ends."""
    rules = SamplingPolicy(**{**COLD, **policy})
    ((_, measurement),) = sample_rounds({0: Replay(times)}, {0: "decode"}, rules, Random(0), clock=lambda: 0.0)
    assert isinstance(measurement, Measurement)
    return measurement


def recorded(name: str) -> list[float]:
    """A trace of `tests/traces`, in µs."""
    return json.loads((TRACES / f"{name}.json").read_text())["times_us"]
