"""One case made ready: its layers in memory, an iteration a call away, and the check that it did its work."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.backends.base import ArmFacts, CannotAnswer, OpTime, Taken
from harness.backends.torch_ops.attention import BOTTOM_RIGHT
from harness.backends.torch_ops.ceiling import Ceiling
from harness.backends.torch_ops.device import Device, is_out_of_memory
from harness.backends.torch_ops.layer import Stack
from harness.backends.torch_ops.options import SDPA_BACKENDS
from harness.backends.torch_ops.sizing import LayerPlan
from harness.backends.torch_ops.timing import Clock
from harness.cost.ops import Op
from harness.spec.axes import Scalar
from harness.spec.workload import Decode, Prefill

#: Attention kernels in the order in which they are tried. On a GPU without `math`, which writes all scores to memory:
#: that is no kernel anyone would serve with. Decode takes flash attention first, which splits the cache over SMs.
SDPA_ORDER: dict[tuple[str, str], tuple[str, ...]] = {
    ("cuda", "prefill"): ("cudnn", "flash", "efficient"),
    ("cuda", "decode"): ("flash", "cudnn", "efficient"),
    ("cpu", "prefill"): ("flash", "math"),
    ("cpu", "decode"): ("flash", "math"),
}

#: Passes in which ops are timed one by one.
_OP_PASSES = {"prefill": 3, "decode": 7}

#: Runs before a CUDA graph is captured (PyTorch's notes on CUDA graphs ask for a few).
_RUNS_BEFORE_CAPTURE = 3


class TorchArm:
    """Layers of a case on a device. Made by TorchBackend."""

    def __init__(
        self, stack: Stack, plan: LayerPlan, device: Device, clock: Clock, ceiling: Ceiling, work: Prefill | Decode,
        sdpa: str | None, ops: list[Op],
    ) -> None:  # fmt: skip
        self.stack = stack
        self._plan, self._device, self._clock, self._ceiling = plan, device, clock, ceiling
        self._work, self._ops = work, [op.name for op in ops]
        self._sdpa = self._first_kernel((sdpa,) if sdpa else SDPA_ORDER[device.kind, work.phase])
        self._graph = self._capture() if device.is_cuda and work.phase == "decode" else None
        self._iterate: Callable[[], Any] = self._graph.replay if self._graph else stack.run
        self._facts = self._state()

    @property
    def facts(self) -> ArmFacts:
        """Layers, bytes and how attention and experts run."""
        return self._facts

    def _state(self) -> ArmFacts:
        plan, stack = self._plan, self.stack
        details: dict[str, Scalar] = {
            "dtype": str(stack.steps[0].x.dtype).removeprefix("torch."),
            "sdpa": self._sdpa,
            "attention": "; ".join(stack.attention_ways),
            "rotary": "in the attention op, with the KV write",
            "cuda_graph": self._graph is not None,
            "layer_numbers": ", ".join(map(str, plan.layers)),
            "distinct_weights_and_caches": len(plan.layers),
            "weight_bytes": int(plan.weights),
            "kv_bytes": int(plan.kv),
            "last_level_cache_bytes": self._device.cache_bytes,
            "beyond_cache": plan.beyond_cache,
        }
        if stack.loads:
            details["experts"] = stack.moe_way
            details["experts_touched"] = max(load.touched for load in stack.loads)
            details["expert_tokens_most"] = max(max(load.counts) for load in stack.loads)
        return ArmFacts(len(plan.layers), plan.scale, plan.read, details)

    def take(self, count: int) -> Taken:
        """Run and time iterations; too fast for this machine's memory is `invalid`."""
        with self._running("running"):
            times = tuple(self._clock.times_ms(self._iterate, count))
        return Taken(times, self._too_fast(times))

    def op_times(self) -> list[OpTime]:
        """Time each op in passes through all layers, without a CUDA graph: caches are as in an iteration.

        An op with several executions of different shapes (chunks) is their mean. Median over the passes.
        """
        passes: list[dict[str, float]] = []
        with self._running("timing ops"):
            self._clock.ops_ms(self.stack.run)
            for _ in range(_OP_PASSES[self._work.phase]):
                times: dict[str, list[float]] = {}
                for name, time_ms in self._clock.ops_ms(self.stack.run):
                    times.setdefault(name, []).append(time_ms)
                passes.append({name: statistics.fmean(each) for name, each in times.items()})
        named = [name for name in dict.fromkeys(self._ops) if name in passes[0]]
        return [OpTime(name, 1000 * statistics.median(one[name] for one in passes)) for name in named]

    def close(self) -> None:
        """Free weights, caches and graph."""
        self._iterate = _closed
        self._graph = None
        self.stack.layers.clear()
        self.stack.steps.clear()
        self._device.release()

    def _too_fast(self, times: tuple[float, ...]) -> str:
        if not self._plan.beyond_cache:
            return ""
        return self._ceiling.judge(self._plan.read, statistics.median(times))

    @contextmanager
    def _running(self, what: str) -> Iterator[None]:
        with ExitStack() as contexts:
            contexts.enter_context(self._device.guard(what))
            contexts.enter_context(torch.inference_mode())
            contexts.enter_context(self._kernel(self._sdpa))
            yield

    def _kernel(self, name: str) -> AbstractContextManager[Any]:
        """PyTorch's attention held to one kernel."""
        if name not in SDPA_BACKENDS:
            return nullcontext()
        held: AbstractContextManager[Any] = sdpa_kernel([getattr(SDPBackend, SDPA_BACKENDS[name])])
        return held

    def _first_kernel(self, names: tuple[str, ...]) -> str:
        """Run once with each kernel until one can; FP8 inputs are calibrated by it."""
        ways = set(self.stack.attention_ways)
        if not ways:
            names = ("none",)
        elif ways == {BOTTOM_RIGHT}:
            names = ("flash",)
        reasons = []
        for name in names:
            try:
                with warnings.catch_warnings(), torch.inference_mode(), self._kernel(name):
                    warnings.simplefilter("ignore")  # PyTorch warns why a kernel cannot; so does the error
                    self.stack.run()
                    self._device.synchronize()
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                reasons.append(f"{name}: {str(error).splitlines()[0]}")
            else:
                return name
        raise CannotAnswer(f"no attention kernel of PyTorch takes this case ({'; '.join(reasons)})")

    def _capture(self) -> Any:
        """Record one iteration as a CUDA graph."""
        with torch.inference_mode(), self._kernel(self._sdpa):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_RUNS_BEFORE_CAPTURE):
                    self.stack.run()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.stack.run()
        return graph


def _closed() -> None:
    raise RuntimeError("this arm is closed")
