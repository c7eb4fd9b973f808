"""Why a GPU's clock is where it is: NVML's clocks event reasons (formerly throttle reasons), by name."""

from __future__ import annotations

#: Bits and names as in the NVML reference (docs.nvidia.com/deploy/nvml-api, group nvmlClocksEventReasons) and in
#: nvidia-ml-py 13.615.71 of 2026; the names are those of `nvidia-smi --query-gpu=clocks_event_reasons.*`.
_NAMES = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
IDLE = 0x001
#: What disturbs a measurement: heat, and a supply that pulls the brake. A power cap does not: at full load it is how
#: the part runs at its rated power, the same for every variant; it is named in the record all the same.
DISTURBING = 0x008 | 0x020 | 0x040 | 0x080


def reason_names(bits: int) -> list[str]:
    """Names of the bits that are set, lowest first; a bit that no documented name has is given as a number."""
    single = (1 << position for position in range(bits.bit_length()))
    return [_NAMES.get(bit, f"bit_{bit:#x}") for bit in single if bits & bit]
