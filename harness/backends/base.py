"""What runs cases for real: a backend, in a worker process of its own, and the arms that it times.

An arm is one case made ready: weights and KV cache in place, one iteration a call away. A worker prepares its arms,
warms them up, and then takes iterations from them in turn, so that what disturbs the machine meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from harness.spec.axes import Scalar
from harness.spec.case import Case
from harness.spec.study import Level


class CannotAnswer(Exception):
    """Raised by a backend for a case that it, this device or this version cannot run as asked; never substituted.

    `status` is that of the record: `unsupported` for what cannot be, `oom` for what does not fit, `invalid` for what
    ran and was not what was asked.
    """

    def __init__(self, reason: str, status: Literal["unsupported", "oom", "invalid"] = "unsupported") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """What answers, told once per process after `open`."""

    provenance: Literal["measured", "simulated"]
    """`simulated` where anything below the harness is a test double."""
    versions: str
    """Readable, comparable: `torch 2.13.0, CUDA 13.0`; `--resume` asks anew what other versions answered."""
    device: str
    gpu_uuids: tuple[str, ...] = ()
    """GPUs in use, in order of rank; empty on a CPU."""
    details: Mapping[str, Scalar] = field(default_factory=dict)
    """What else is worth keeping with the run: threads, drivers, environment variables that matter."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Consecutive timed iterations of one arm."""

    times_ms: tuple[float, ...]
    """Device time of each, the slowest rank's."""
    invalid: str = ""
    """Why these iterations did not do the work that was asked, in words; no row with this enters a statistic."""


@dataclass(frozen=True, slots=True)
class OpTime:
    """One op of an arm, timed by itself. `op` is a name that `harness.cost.decompose` gives this case."""

    op: str
    time_us: float
    """Median of one execution."""


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """How one arm ran."""

    layers_run: int
    """Decoder layers that one iteration goes through."""
    scale: float = 1.0
    """What a time is multiplied with to be that of the case: layers of the case / layers run where only some ran."""
    hbm_bytes: float | None = None
    """Bytes of weights and KV that one iteration, of `layers_run` layers, has to read. Null: not known."""
    details: Mapping[str, Scalar] = field(default_factory=dict)
    """What else is worth knowing: the attention kernel chosen, dtype, how many copies of the KV cache."""
    take: int = 1
    """Iterations that are best taken together, where the way to the first of them is long: a turn takes as many."""


class Arm(Protocol):
    """One case made ready to be timed."""

    @property
    def facts(self) -> ArmFacts: ...

    def take(self, count: int) -> Taken:
        """Run and time `count` iterations, one after the other; unscaled times. May raise CannotAnswer."""
        ...

    def op_times(self) -> list[OpTime]:
        """Time the ops one by one, apart from `take`, which this may disturb; empty where they cannot be told apart."""
        ...

    def close(self) -> None:
        """Free what the arm holds on the device."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a worker is given to open a backend with."""

    engine: Path | None = None
    """Engine directory, for backends that load one."""
    seed: int = 0
    """Of everything random: data, order, prompts. Other replicates have other seeds."""
    scratch: Path | None = None
    """A folder that may be written to, gone after the run."""
    options: Mapping[str, Scalar] = field(default_factory=dict)
    """Options of one backend, such as `threads`."""


class Backend(Protocol):
    """Runs cases. One per worker process; everything heavy is imported in `open`."""

    name: str
    """Who answers, in records: `torch`, `trtllm`."""

    def open(self, setting: Setting) -> BackendFacts:
        """Get the device ready. Raises `harness.errors.MissingExtra` or EnvironmentUnfit where it cannot be."""
        ...

    def prepare(self, case: Case, level: Level) -> Arm:
        """Make one case ready. Raises CannotAnswer with the reason."""
        ...

    def close(self) -> None:
        """Let go of the device; called once, after the arms were closed."""
        ...
