"""GPU models and their node shapes, read from `harness/data/gpus.yaml`, where each fact has its source and date."""

from __future__ import annotations

import datetime as dt
import difflib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.errors import UnreadableInput, UsageError
from harness.files import read_yaml

GPUS_FILE = Path(__file__).parent / "data" / "gpus.yaml"

#: The key that means the processor of the machine that runs a case. It is in no file: nothing is known beforehand.
CPU = "cpu"

#: The tensor-core rates that a system has or lacks.
COMPUTE_FORMATS = ("tf32", "bf16", "fp8", "nvfp4", "int8")

_Count = Annotated[int, Field(strict=True, gt=0)]
_Rate = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]


class Evidence(BaseModel):
    """Where some facts of a system are from, and when that was read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: tuple[str, ...] = Field(min_length=1)
    source: str = Field(min_length=1)
    date: dt.date


class System(BaseModel):
    """One GPU model in its usual node. Rates are per GPU, dense; None means the part has none, or nobody knows.

    `peak_flop_per_s` is the datasheet's rate, reached at `datasheet_sm_clock_mhz`; a short kernel at the maximum clock
    can pass it. `gpus_per_domain` counts the GPUs that NVLink joins. Bandwidths of links are those of one direction.
    `unconfirmed` names facts without a source that could be read, `derived` those worked out from others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    gpu_name: str = Field(min_length=1)
    compute_capability: str = Field(pattern=r"^\d+\.\d$")
    sm: _Count
    sms: _Count
    max_sm_clock_mhz: _Rate | None
    datasheet_sm_clock_mhz: _Rate | None
    bf16_flop_per_clock_per_sm: _Count
    l2_bytes: _Count | None
    tdp_w: _Rate
    peak_flop_per_s: dict[str, _Rate | None]
    memory_bytes: _Count
    memory_bandwidth_bytes_per_s: _Rate
    nvlink_bandwidth_bytes_per_s: _Rate | None
    gpus_per_domain: _Count
    gpus_per_node: _Count
    nic_bandwidth_bytes_per_s: _Rate | None
    host_link_bandwidth_bytes_per_s: _Rate | None
    unconfirmed: tuple[str, ...]
    derived: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    notes: str = ""

    @field_validator("peak_flop_per_s")
    @classmethod
    def _names_every_format(cls, peaks: dict[str, float | None]) -> dict[str, float | None]:
        if set(peaks) != set(COMPUTE_FORMATS):
            raise ValueError(f"needs exactly {', '.join(COMPUTE_FORMATS)}; null where the GPU has no such rate")
        return peaks

    @model_validator(mode="after")
    def _names_facts_that_exist(self) -> System:
        named = {*self.unconfirmed, *self.derived, *(field for one in self.evidence for field in one.fields)}
        unknown = {name for name in named if name.split(".")[0] not in System.model_fields}
        if unknown:
            raise ValueError(f"evidence for facts that do not exist: {', '.join(sorted(unknown))}")
        return self

    def peak(self, compute_format: str) -> float:
        """Return the dense tensor-core rate in FLOP/s of `bf16`, `fp8`, `nvfp4`, `int8` or `tf32`.

        Raises UsageError where this GPU has no such rate; there is no fallback to another format.
        """
        rates = {name: rate for name, rate in self.peak_flop_per_s.items() if rate is not None}
        if compute_format not in rates:
            raise UsageError(
                f"{self.key} ({self.gpu_name}, compute capability {self.compute_capability}) has no {compute_format} "
                f"tensor-core rate; it has {', '.join(rates)}"
            )
        return rates[compute_format]


@lru_cache(maxsize=1)
def _systems() -> dict[str, System]:
    return read_systems(GPUS_FILE)


def read_systems(path: Path) -> dict[str, System]:
    """Read a file like `gpus.yaml`: key → facts. Raises UnreadableInput with every finding."""
    entries = read_yaml(path)
    if not isinstance(entries, dict):
        raise UnreadableInput(f"{path}: expected GPUs by key, such as `b200_sxm:`")
    systems, findings = {}, []
    for key, facts in entries.items():
        try:
            systems[key] = System.model_validate({**facts, "key": key})
        except ValidationError as error:
            findings += [f"{path}: {key}: {_place(one)}{one['msg']}" for one in error.errors()]
    if findings:
        raise UnreadableInput("\n".join(findings))
    return systems


def _place(error: Any) -> str:
    return "".join(f"{part}: " for part in error["loc"])


def known_systems() -> tuple[str, ...]:
    """Return the keys of all systems, as in the file."""
    return tuple(_systems())


def is_gpu(key: str) -> bool:
    """Whether a system key is to name a GPU, known or not, and not the processor of this machine (`cpu`)."""
    return key != CPU


def check_system(key: str) -> None:
    """Raise UsageError, as `load_system` does, for a key that is neither `cpu` nor a known GPU."""
    if is_gpu(key):
        load_system(key)


def load_system(key: str) -> System:
    """Return a GPU by its key, such as `b200_sxm`. Raises UsageError that lists the known ones; and for `cpu`."""
    if not is_gpu(key):
        raise UsageError(
            f"{CPU} is the processor of the machine that runs a case: no peaks, prices or kernel tables of it are "
            "known, so nothing but a backend can answer, for example --on torch"
        )
    systems = _systems()
    if key in systems:
        return systems[key]
    wanted = key.casefold().replace("-", "_")
    close = [known for known in systems if known.startswith(wanted)] if wanted else []
    close = close or difflib.get_close_matches(wanted, systems, n=1)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(f"unknown GPU {key!r}. {hint}Known: {', '.join(systems)}")


def match_device_name(name: str) -> System | None:
    """Return the system whose `gpu_name` a driver reports, or None.

    The whole name counts: B300 is inside GB300, and an H200 NVL or a MIG slice of an H200 is no `h200_sxm`.
    """
    wanted = " ".join(name.split()).casefold()
    return next((system for system in _systems().values() if system.gpu_name.casefold() == wanted), None)
