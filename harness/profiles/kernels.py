"""What a profile holds, whichever tool wrote it: executions on GPUs, host ranges, totals by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["kernel", "memcpy", "memset"]

#: Format → how it is called.
FORMATS = {
    "nsys-sqlite": "SQLite export of Nsight Systems",
    "nsys-csv": "CSV of nsys stats",
    "torch-trace": "chrome trace of torch.profiler",
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One execution on a GPU: a kernel, a copy or a fill. Times are on the clock of the profile."""

    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    device: str
    """`GPU 0`; with its process where a profile has several."""
    stream: str
    process: int | None = None
    thread: int | None = None
    """Who launched it."""
    launched_ns: int | None = None
    """Start of the host call that launched it; of a graph, of the graph's launch. None where it was not recorded."""
    in_graph: bool = False
    ranges: tuple[str, ...] = ()
    """NVTX ranges around its launch, the outermost first; of a kernel of a CUDA graph, around its capture."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of host time that has a name: an NVTX range, an annotation, or a capture range."""

    name: str
    start_ns: int
    end_ns: int
    process: int | None = None
    thread: int | None = None
    """None: it holds for all threads of its process."""

    def holds(self, at_ns: int, process: int | None, thread: int | None) -> bool:
        """Whether something that a thread did at a time lies in the range; who is not known may be anybody."""
        return (
            self.start_ns <= at_ns < self.end_ns
            and (None in {self.process, process} or self.process == process)
            and (None in {self.thread, thread} or self.thread == thread)
        )


@dataclass(frozen=True, slots=True)
class Total:
    """Executions of one name, added up by the tool: their time is cumulative, when they ran is not known."""

    name: str
    kind: Kind
    count: int
    total_ns: int
    min_ns: int | None = None
    max_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RangeTotal:
    """An NVTX range, added up by the tool. `gpu` says whether its time was projected onto the GPU, or is the host's."""

    name: str
    count: int
    total_ns: int
    gpu: bool


@dataclass(frozen=True, slots=True)
class Trace:
    """A profile as it was read."""

    file: str
    format: str
    tool: str = ""
    """Name and version of what wrote it, where it says so."""
    kernels: tuple[Kernel, ...] = ()
    totals: tuple[Total, ...] = ()
    """Instead of `kernels`, where only totals were written."""
    ranges: tuple[Range, ...] = ()
    range_totals: tuple[RangeTotal, ...] = ()
    captures: tuple[Range, ...] = ()
    """From each cudaProfilerStart to the cudaProfilerStop after it, where the calls were recorded."""
    layerwise: dict[str, object] = field(default_factory=dict)
    """Arguments of the layer-wise benchmarks, which they write into their profiles."""
    launches: int | None = None
    """Host calls that launch kernels or graphs; None where no host calls were recorded."""
    missing: tuple[str, ...] = ()
    """What should be there and is not, so that the profile holds less than ran."""
    notes: tuple[str, ...] = ()
