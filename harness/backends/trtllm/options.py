"""What `--on trtllm` can be told beside the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from harness.errors import UsageError
from harness.spec.axes import Scalar

LAUNCHERS = ("spawn", "mpirun")
#: Of the layer-wise runner: its members of `BalanceMethod`.
BALANCE_METHODS = ("NotModified", "Balanced", "ImbalancedRanks", "ImbalancedExperts")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of this backend; None leaves the choice to it."""

    launcher: str = "spawn"
    """Who starts ranks: TensorRT-LLM itself (`spawn`), or `mpirun`, within which this process then is."""
    layerwise_checkout: str | None = None
    """A checkout of TensorRT-LLM of the installed version, whose examples/layer_wise_benchmarks is run."""
    layerwise_gpus: int | None = None
    """GPUs that stand for all of a case's at level `layer` (`--scaled-from`); left out, as many as it has."""
    layers: int | None = None
    """Decoder layers to run at level `layer`; left out, as many as their kinds need."""
    balance_method: str | None = None
    """How tokens go to experts at level `layer`, instead of what the workload says."""
    balance_ratio: float | None = None
    """Share of the tokens that are balanced where `balance_method` is an Imbalanced one."""


def read_options(given: Mapping[str, Scalar]) -> Options:
    """Check what was given; raise UsageError with every finding."""
    known = [field.name for field in fields(Options)]
    findings = [f"--on trtllm has no option {name!r}; it has {', '.join(known)}" for name in given if name not in known]
    for name in ("layerwise_gpus", "layers"):
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            findings.append(f"--on trtllm: {name} must be a whole number of at least 1, not {value!r}")
    for name, allowed in (("launcher", LAUNCHERS), ("balance_method", BALANCE_METHODS)):
        value = given.get(name)
        if value is not None and value not in allowed:
            findings.append(f"--on trtllm: {name} must be one of {', '.join(allowed)}, not {value!r}")
    findings += _of_balance(given)
    checkout = given.get("layerwise_checkout")
    if checkout is not None and not (Path(str(checkout)) / "examples" / "layer_wise_benchmarks" / "run.py").is_file():
        findings.append(
            f"--on trtllm: layerwise_checkout {checkout}: no examples/layer_wise_benchmarks/run.py there; give the "
            "root of a checkout of NVIDIA/TensorRT-LLM"
        )
    if findings:
        raise UsageError(*findings)
    values = dict(given)
    return Options(**values)  # type: ignore[arg-type]


def _of_balance(given: Mapping[str, Scalar]) -> list[str]:
    method, ratio = given.get("balance_method"), given.get("balance_ratio")
    imbalanced = isinstance(method, str) and method.startswith("Imbalanced")
    if ratio is None:
        return ["--on trtllm: an Imbalanced balance_method needs balance_ratio, 0 to 1"] if imbalanced else []
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        return [f"--on trtllm: balance_ratio must be from 0 to 1, not {ratio!r}"]
    return (
        [] if imbalanced else ["--on trtllm: balance_ratio needs balance_method ImbalancedRanks or ImbalancedExperts"]
    )
