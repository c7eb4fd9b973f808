"""What every pricer speaks: kernels in, one `KernelPrice` each out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from harness.cost.ops import Kernel

#: Where the time of one op of a priced case comes from, best to worst.
Source = Literal["exact", "interpolated", "estimated", "formula", "extrapolated", "modelled"]
SOURCES: tuple[Source, ...] = ("exact", "interpolated", "estimated", "formula", "extrapolated", "modelled")

#: `unsupported`: no such kernel or slice exists in what answers. `refused`: it exists, but the question lies outside
#: what may be answered honestly.
Refusal = Literal["unsupported", "refused"]


@dataclass(frozen=True, slots=True)
class KernelPrice:
    """The time of one execution of one kernel, or why there is none.

    `time_ms` is None exactly when `refusal` is set. `source` says how the time was got. `flags` are record flags such
    as `l2_warm`, `unmeasured`, `extrapolated`. `note` explains in a sentence: both rows of an NVFP4 minimum, the
    distance and error band of an extrapolation, the nearest slices that exist.
    """

    time_ms: float | None
    source: Source | None
    flags: tuple[str, ...] = ()
    note: str = ""
    refusal: Refusal | None = None

    @classmethod
    def refuse(cls, refusal: Refusal, note: str) -> KernelPrice:
        return cls(time_ms=None, source=None, note=note, refusal=refusal)


class KernelPricer(Protocol):
    """Prices kernels on one system; vectorised, in-process, no side effects."""

    #: `tables` or `roofline`
    name: str

    def price(self, kernels: Sequence[Kernel]) -> list[KernelPrice]:
        """Return one price per kernel, in order; never raises for a kernel it cannot answer."""
        ...

    def versions(self) -> dict[str, str]:
        """What answered: package, version and table version, for the record."""
        ...
