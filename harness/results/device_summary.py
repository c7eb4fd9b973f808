"""What telemetry saw of the machine while one row was measured, as the record keeps it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSummary:
    """Figures over the time of the samples; null where the device does not tell. Fields are columns of the record."""

    telemetry_valid: bool
    telemetry_note: str | None = None
    sm_clock_mhz: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """Of all GPUs, over the samples' time; the record divides it by their tokens."""
    temperature_c: float | None = None
    throttle_reasons: str | None = None
    foreign_processes: int | None = None
    foreign_cpus: float | None = None
    load_average: float | None = None
    flags: tuple[str, ...] = ()
    """Record flags that follow: `noisy`, `throttled`, `shared_gpu`."""
    invalid: str = ""
    """Why the row is no measurement at all, such as a MIG slice that was reconfigured meanwhile."""
