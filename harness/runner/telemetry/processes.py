"""Whose processes are on the GPUs, as far as the driver lets one tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.runner.telemetry import stretches
from harness.runner.telemetry.nvml import GpuState
from harness.runner.telemetry.stretches import Window


@dataclass(frozen=True, slots=True)
class Foreign:
    """Processes of others on the GPUs of a row."""

    count: int | None
    """The most at once; None where they cannot be told from our own."""
    note: str = ""
    flags: tuple[str, ...] = ()


def foreign_on_gpus(
    states: Sequence[Sequence[GpuState]], windows_s: Sequence[Window], own_pids: frozenset[int]
) -> Foreign:
    """Count foreign processes over the time of `windows_s`; `states` are those of each GPU.

    A driver may list processes by the ids of the host, where a container sees others, or leave them out (NVIDIA/
    nvidia-docker#1483, NVIDIA/open-gpu-kernel-modules#614). Our own process is on these GPUs while it is measured: if
    none of ours is listed, the ids are of no use, and the count stays unknown.
    """
    if not states:
        return Foreign(None)
    listed = [
        (state.time_s, state.pids)
        for of_gpu in states
        for state in stretches.around(of_gpu, windows_s)
        if state.pids is not None
    ]
    if not listed:
        return Foreign(None, "the driver does not tell which processes are on the GPUs")
    everyone = frozenset().union(*(pids for _, pids in listed))
    if not everyone:
        return Foreign(None, "the driver lists no process on the GPUs, not even ours, as in containers")
    if not everyone & own_pids:
        return Foreign(
            None,
            f"the driver lists {len(everyone)} processes on the GPUs, none by an id of ours, as in containers: "
            "whose they are cannot be told",
        )
    count = max(len(pids - own_pids) for _, pids in listed)
    if not count:
        return Foreign(0)
    return Foreign(count, f"{count} processes of others on the same GPUs", ("shared_gpu",))
