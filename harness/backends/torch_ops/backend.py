"""The backend `torch`: decoder layers of a case, executed by PyTorch on one GPU or on this processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.backends.base import BackendFacts, CannotAnswer, Setting
from harness.backends.torch_ops.formats import check_alignment, check_formats, check_kind
from harness.backends.torch_ops.options import Options, read_options
from harness.backends.torch_ops.sizing import plan_layers
from harness.cost.decompose import decompose
from harness.errors import EnvironmentUnfit, MissingExtra
from harness.spec.case import Case
from harness.spec.study import Level
from harness.spec.workload import Serve

if TYPE_CHECKING:
    from harness.backends.torch_ops.arm import TorchArm
    from harness.backends.torch_ops.ceiling import Ceiling
    from harness.backends.torch_ops.device import Device
    from harness.backends.torch_ops.timing import Clock

#: First PyTorch whose attention takes grouped heads.
OLDEST = (2, 5)


class TorchBackend:
    """Runs cases at level `layer` on the device that the system key of a case means."""

    name = "torch"

    def __init__(self, clock: Clock | None = None) -> None:
        """`clock` times instead of the device's own."""
        self._clock = clock
        self._options = Options()
        self._seed = 0
        self._prepared = 0
        self._device: Device | None = None
        self._ceiling: Ceiling | None = None

    def open(self, setting: Setting) -> BackendFacts:
        """Take the device and measure its memory's bandwidth.

        Raises MissingExtra without PyTorch, EnvironmentUnfit for one that is too old or without the GPU asked for,
        UsageError for unknown options.
        """
        self._options, self._seed = read_options(setting.options), setting.seed
        try:
            import torch
        except ImportError as error:
            raise MissingExtra("torch", "--on torch", str(error)) from error
        version = str(torch.__version__)
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise EnvironmentUnfit(f"torch {version} is too old: {OLDEST[0]}.{OLDEST[1]} or later is needed")
        from harness.backends.torch_ops.ceiling import Ceiling
        from harness.backends.torch_ops.device import bandwidth_ceiling, open_device

        device = open_device(self._options)
        ceiling = Ceiling(lambda: bandwidth_ceiling(device))
        self._device, self._ceiling = device, ceiling
        return BackendFacts(
            provenance="measured",
            versions=f"torch {version}" + (f", CUDA {torch.version.cuda}" if device.is_cuda else ""),
            device=device.name,
            gpu_uuids=device.uuids,
            details={
                **device.details,
                "last_level_cache_bytes": device.cache_bytes,
                "memory_bytes": device.memory_bytes,
                "bandwidth_ceiling_bytes_per_s": ceiling.bytes_per_s,
            },
        )

    def prepare(self, case: Case, level: Level) -> TorchArm:
        """Put the layers of one case into memory and run them once. Raises CannotAnswer with the reason."""
        import torch

        from harness.backends.torch_ops.arm import TorchArm
        from harness.backends.torch_ops.layer import Stack
        from harness.backends.torch_ops.timing import clock_of

        assert self._device, "open comes first"
        assert self._ceiling
        device, work = self._device, case.workload
        check_kind(case, level)
        assert not isinstance(work, Serve)
        self._check_place(case)
        try:
            ops = decompose(case, "layer")
        except ValueError as error:
            raise CannotAnswer(str(error)) from error
        dtype = getattr(torch, check_formats(ops, device.capability))
        check_alignment(ops)
        plan = plan_layers(
            case, self._seed, device.cache_bytes, device.free_bytes(), device.memory_bytes, self._options.layers
        )
        self._prepared += 1
        generator = torch.Generator(device=device.kind).manual_seed(1_000_003 * self._seed + self._prepared)
        with device.guard("preparing the layers"), torch.inference_mode():
            stack = Stack(case, plan.kinds, dtype, generator, self._seed)
            return TorchArm(
                stack, plan, device, self._clock or clock_of(device.kind), self._ceiling, work, self._options.sdpa, ops
            )

    def close(self) -> None:
        """Let go of the device."""
        if self._device:
            self._device.release()
        self._device = self._ceiling = None

    def _check_place(self, case: Case) -> None:
        assert self._device
        if self._device.system == case.system:
            return
        here = self._device.name + (f" ({self._device.system})" if self._device.system else "")
        hint = "; device=cpu runs on the processor" if case.system == "cpu" else ""
        raise CannotAnswer(f"this worker runs on {here}, and the case asks for {case.system}{hint}")
