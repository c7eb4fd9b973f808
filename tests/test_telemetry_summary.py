from __future__ import annotations

from dataclasses import replace

import pytest
from doubles.nvml import FakeGpu, FakeNvml

from harness.runner.telemetry.cpu import CpuReading
from harness.runner.telemetry.cpu_summary import noisy_limit
from harness.runner.telemetry.nvml import Gpu, GpuReading, GpuState, Nvml
from harness.runner.telemetry.sampler import Readings
from harness.runner.telemetry.summary import details, summarise

OWN = frozenset({41})
#: Two seconds of samples in one stretch, amid ten seconds of readings.
WINDOWS = [(4.0, 6.0)]


def a_gpu(number: int = 1) -> Gpu:
    fake = FakeGpu(uuid=f"GPU-{number}")
    return Nvml(FakeNvml(fake)).gpu(fake.uuid)


def gpu_readings(**figures: object) -> tuple[GpuReading, ...]:
    """Every 50 ms for 10 s, 500 W; the energy counter moves every 100 ms."""
    usual = {"sm_clock_mhz": 1700.0, "power_w": 490.0, "temperature_c": 60.0, "reasons": 0}
    return tuple(
        GpuReading(time_s=index * 0.05, energy_j=float(1000 + 50 * (index // 2)), **{**usual, **figures})
        for index in range(201)
    )


def states(pids: frozenset[int] | None = OWN, **more: object) -> tuple[GpuState, ...]:
    return tuple(GpuState(time_s=float(second), pids=pids, mig=False, uncorrected_errors=0) for second in range(11))


def cpu_readings(busy: float = 1.1, own: float = 1.0, **figures: object) -> tuple[CpuReading, ...]:
    return tuple(
        CpuReading(time_s=float(time), busy_s=100 + busy * time, own_s=own * time, threads=9, load_average=1.5)
        for time in range(11)
    )


def seen(**parts: object) -> Readings:
    usual = {"gpus": (a_gpu(),), "readings": (gpu_readings(),), "states": (states(),), "cpu": cpu_readings()}
    return Readings(**{**usual, **parts})


def summary(windows=WINDOWS, absent="", **parts):
    return summarise(seen(**parts), windows, OWN, absent=absent)


def test_a_quiet_row_has_its_figures_and_no_flag():
    row = summary()
    assert row.telemetry_valid
    assert row.telemetry_note is None
    assert (row.sm_clock_mhz, row.temperature_c) == (1700, 60)
    assert row.energy_j == pytest.approx(1000)
    assert row.power_w == pytest.approx(500)
    assert (row.throttle_reasons, row.foreign_processes, row.load_average) == (None, 0, 1.5)
    assert row.foreign_cpus == pytest.approx(0.1)
    assert (row.flags, row.invalid) == ((), "")


def test_of_several_gpus_power_adds_up_and_the_slowest_and_hottest_count():
    row = summary(
        gpus=(a_gpu(1), a_gpu(2)),
        readings=(gpu_readings(), gpu_readings(sm_clock_mhz=1500.0, temperature_c=71.0)),
        states=(states(), states()),
    )
    assert (row.sm_clock_mhz, row.temperature_c) == (1500, 71)
    assert row.energy_j == pytest.approx(2000)
    assert row.power_w == pytest.approx(1000)


def test_short_windows_between_those_of_other_rows_have_clocks_but_no_energy_and_no_power():
    windows = [(4 + index * 0.04, 4.01 + index * 0.04) for index in range(50)]
    row = summary(windows)
    assert row.telemetry_valid
    assert (row.sm_clock_mhz, row.energy_j, row.power_w) == (1700, None, None)
    assert row.telemetry_note is not None
    assert row.telemetry_note.startswith("no energy: samples come in stretches of 10 ms")


def test_without_an_energy_counter_power_is_that_of_readings_a_second_into_the_stretch():
    gpu = a_gpu()
    gpu.not_offered["energy_j"] = "no energy from this GPU, driver and nvidia-ml-py"
    readings = tuple(
        replace(one, energy_j=None, power_w=300.0 if one.time_s < 4.9 else 600.0) for one in gpu_readings()
    )
    row = summary(gpus=(gpu,), readings=(readings,))
    assert (row.telemetry_valid, row.energy_j, row.power_w) == (True, None, 600)
    assert row.telemetry_note == "GPU-1: no energy from this GPU, driver and nvidia-ml-py"


def test_windows_without_a_reading_take_those_beside_them():
    row = summary([(4.01, 4.02)])
    assert (row.telemetry_valid, row.sm_clock_mhz) == (True, 1700)


def test_a_hole_in_the_readings_makes_the_summary_invalid():
    readings = tuple(one for one in gpu_readings() if not 4.4 < one.time_s < 5.4)
    row = summary(readings=(readings,))
    assert not row.telemetry_valid
    assert row.telemetry_note is not None
    assert "GPU-1: readings cover 50% of the samples' time (95% are needed)" in row.telemetry_note


def test_a_failed_query_makes_the_summary_invalid_only_where_it_concerns_the_samples():
    def failing_at(time_s: float) -> tuple[GpuReading, ...]:
        return tuple(
            replace(one, failures=("power: Unknown Error",)) if abs(one.time_s - time_s) < 0.01 else one
            for one in gpu_readings()
        )

    assert summary(readings=(failing_at(8),)).telemetry_valid
    row = summary(readings=(failing_at(5),))
    assert not row.telemetry_valid
    assert row.telemetry_note == "GPU-1: power: Unknown Error (1 queries failed while the samples were taken)"


@pytest.mark.parametrize(
    ("bits", "flags", "reasons", "note"),
    [
        (0x4, (), "sw_power_cap", None),
        (0x1, (), None, None),
        (0x40, ("throttled",), "hw_thermal_slowdown", "hw_thermal_slowdown in 41 of 41 readings"),
        (0x24, ("throttled",), "sw_power_cap,sw_thermal_slowdown", "sw_thermal_slowdown in 41 of 41 readings"),
    ],
)
def test_reasons_are_named_and_heat_flags_the_row(bits, flags, reasons, note):
    row = summary(readings=(gpu_readings(reasons=bits),))
    assert (row.flags, row.throttle_reasons, row.telemetry_note) == (flags, reasons, note)


def test_one_throttled_reading_among_many_is_noted_but_moves_no_median():
    readings = tuple(replace(one, reasons=0x8) if one.time_s == 5.0 else one for one in gpu_readings())
    row = summary(readings=(readings,))
    assert (row.flags, row.throttle_reasons) == ((), "hw_slowdown")
    assert row.telemetry_note == "hw_slowdown in 1 of 41 readings"


def test_processes_of_others_are_counted_and_flag_the_row():
    row = summary(states=(states(frozenset({41, 7, 8})),))
    assert (row.foreign_processes, row.flags) == (2, ("shared_gpu",))
    assert row.telemetry_note == "2 processes of others on the same GPUs"


@pytest.mark.parametrize(
    ("pids", "note"),
    [
        (frozenset(), "the driver lists no process on the GPUs, not even ours, as in containers"),
        (frozenset({90001}), "the driver lists 1 processes on the GPUs, none by an id of ours"),
        (None, "the driver does not tell which processes are on the GPUs"),
    ],
)
def test_where_a_container_hides_processes_their_number_is_unknown(pids, note):
    row = summary(states=(states(pids),))
    assert (row.telemetry_valid, row.foreign_processes, row.flags) == (True, None, ())
    assert row.telemetry_note is not None
    assert row.telemetry_note.startswith(note)


def test_mig_mode_flags_the_row_and_hides_energy_and_a_switch_makes_it_no_measurement():
    on = tuple(replace(state, mig=True) for state in states())
    row = summary(states=(on,))
    assert (row.energy_j, row.power_w, row.flags, row.invalid) == (None, None, ("shared_gpu",), "")
    switched = (*states()[:5], *on[5:])
    assert summary(states=(switched,)).invalid == "GPU-1: MIG mode was switched while the samples were taken"


def test_uncorrected_memory_errors_make_the_row_no_measurement():
    counted = tuple(replace(state, uncorrected_errors=3 if state.time_s > 4 else 1) for state in states())
    row = summary(states=(counted,))
    assert row.invalid == "GPU-1: 2 uncorrected memory errors (ECC) while the samples were taken"


def test_load_of_others_makes_a_row_on_the_cpu_noisy():
    nothing: dict[str, tuple[()]] = {"gpus": (), "readings": (), "states": ()}
    row = summary(**nothing, cpu=cpu_readings(busy=2.0))
    assert (row.telemetry_valid, row.flags, row.foreign_processes) == (True, ("noisy",), None)
    assert row.foreign_cpus == pytest.approx(1)
    assert row.telemetry_note == "other processes kept 1.00 processors busy (limit 0.25), load average 1.50"
    assert summary(**nothing, cpu=cpu_readings(busy=1.2)).flags == ()


def test_a_gpu_only_has_to_be_fed():
    assert noisy_limit(with_gpu=False, cpus=64) == 0.25
    assert noisy_limit(with_gpu=True, cpus=64) == 16
    assert noisy_limit(with_gpu=True, cpus=1) == 0.25


def test_processors_that_were_not_read_long_enough_tell_nothing():
    row = summary(gpus=(), readings=(), states=(), cpu=cpu_readings()[:6])
    assert (row.telemetry_valid, row.foreign_cpus) == (False, None)
    assert row.telemetry_note == "the processors were not read over the whole time of the samples"
    row = summary(gpus=(), readings=(), states=(), cpu=(CpuReading(time_s=5, failures=("processor time: no",)),))
    assert (row.telemetry_valid, row.telemetry_note) == (False, "processor time: no")


def test_what_was_never_observed_is_said_and_not_valid():
    row = summary(gpus=(), readings=(), states=(), absent="no telemetry of the GPUs: no NVIDIA driver answers")
    assert not row.telemetry_valid
    assert row.telemetry_note == "no telemetry of the GPUs: no NVIDIA driver answers"
    assert row.foreign_cpus == pytest.approx(0.1)


def test_no_samples_no_figures():
    row = summary([])
    assert (row.telemetry_valid, row.telemetry_note, row.sm_clock_mhz) == (False, "no samples were timed", None)


def test_details_are_what_no_column_holds():
    with_memory = tuple(replace(one, memory_used_bytes=2.0**30, mem_clock_mhz=3201.0) for one in gpu_readings())
    assert details(seen(readings=(with_memory,)), WINDOWS) == {
        "mem_clock_mhz": 3201, "memory_used_bytes": 2**30, "threads": 9
    }  # fmt: skip
    assert details(seen(), []) == {}


def test_readings_reach_a_time_when_the_seldom_ones_do_too():
    assert seen().reach(10.0)
    assert not seen(states=(states()[:-1],)).reach(10.0)
    assert seen(states=(states()[:-1],)).reach(9.0)
    assert not seen(cpu=()).reach(0.0)
