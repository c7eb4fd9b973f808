"""Telemetry: what the machine did while rows were measured, seen from a process that times nothing itself.

A thread of the supervisor reads the GPUs (through NVML) and the processors; `Telemetry.summary` reduces that to the
stretches in which one row's samples were taken. Absent instruments leave nulls and a note, failing ones an invalid
summary that says why; neither ends a run.
"""

from __future__ import annotations

from harness.runner.telemetry.clocks import CLOCKS_NOTE, locked_clocks, restore_left_clocks
from harness.runner.telemetry.preflight import Preflight, preflight
from harness.runner.telemetry.telemetry import Telemetry, open_telemetry
from harness.runner.telemetry.visible import visible_gpu_uuids

__all__ = [
    "CLOCKS_NOTE",
    "Preflight",
    "Telemetry",
    "locked_clocks",
    "open_telemetry",
    "preflight",
    "restore_left_clocks",
    "visible_gpu_uuids",
]
