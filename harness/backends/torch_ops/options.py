"""What `--on torch` can be told beside the study."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from harness.errors import UsageError
from harness.spec.axes import Scalar

#: Attention kernels that can be asked for by name, and what PyTorch calls them in `torch.nn.attention.SDPBackend`.
SDPA_BACKENDS = {
    "cudnn": "CUDNN_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of this backend; None leaves the choice to it."""

    device: str | None = None
    """`cuda` or `cpu`; left out, `cuda` where there is one."""
    threads: int | None = None
    """Threads of one op on the processor; left out, one for each physical core that may be used."""
    layers: int | None = None
    """Decoder layers to run at most; left out, as many as `harness.backends.torch_ops.sizing` says."""
    sdpa: str | None = None
    """The attention kernel to take instead of the first that can: a key of SDPA_BACKENDS."""


def read_options(given: Mapping[str, Scalar]) -> Options:
    """Check what was given; raise UsageError with every finding."""
    known = [field.name for field in fields(Options)]
    findings = [f"--on torch has no option {name!r}; it has {', '.join(known)}" for name in given if name not in known]
    for name in ("threads", "layers"):
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            findings.append(f"--on torch: {name} must be a whole number of at least 1, not {value!r}")
    threads, cpus = given.get("threads"), os.cpu_count() or 1
    if isinstance(threads, int) and threads > cpus:
        findings.append(f"--on torch: threads must be at most {cpus}, the processors of this machine, not {threads}")
    for name, allowed in (("device", ("cuda", "cpu")), ("sdpa", tuple(SDPA_BACKENDS))):
        value = given.get(name)
        if value is not None and value not in allowed:
            findings.append(f"--on torch: {name} must be one of {', '.join(allowed)}, not {value!r}")
    if findings:
        raise UsageError(*findings)
    values = dict(given)
    return Options(**values)  # type: ignore[arg-type]
