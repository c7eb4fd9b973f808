from __future__ import annotations

import inspect

import pytest
from doubles.nvml import ERRORS, FakeGpu, FakeNvml

from harness.runner.telemetry.nvml import Gpu, Nvml, NvmlAbsent
from harness.runner.telemetry.reasons import reason_names


def opened(gpu: FakeGpu, **options: object) -> Gpu:
    return Nvml(FakeNvml(gpu, **options)).gpu(gpu.uuid)


def test_the_double_has_the_names_arguments_constants_and_errors_of_the_installed_module():
    pynvml = pytest.importorskip("pynvml")
    names = [name for name in vars(FakeNvml) if name.startswith(("nvml", "NVML")) and not name.startswith("NVMLError")]
    assert len(names) > 25
    for name in names:
        ours, theirs = vars(FakeNvml)[name], getattr(pynvml, name)
        if inspect.isfunction(ours):
            parameters = list(inspect.signature(ours).parameters.values())[1:]
            assert [(one.name, one.default) for one in parameters] == [
                (one.name, one.default) for one in inspect.signature(theirs).parameters.values()
            ], name
        elif not inspect.isclass(ours):
            assert ours == theirs, name
    for name, error in ERRORS.items():
        real = getattr(pynvml, f"NVMLError_{name}")
        assert issubclass(real, pynvml.NVMLError)
        assert (real().value, str(real())) == (error.value, str(error()))
    assert not issubclass(pynvml.NVMLLibraryMismatchError, pynvml.NVMLError)


@pytest.mark.parametrize("old_driver", [False, True])
@pytest.mark.parametrize("version", [11.0, 11.525, 12.535, 12.575, 13.615])
def test_every_version_of_the_module_gives_the_same_reading(version, old_driver):
    gpu = opened(
        FakeGpu(
            sm_clock_mhz=1755, mem_clock_mhz=3201, power_mw=412_500, energy_mj=7_000_250, temperature_c=61,
            reasons=0x4, used_bytes=2**30, pids=[41, 42], ecc_errors=3,
        ),
        version=version,
        old_driver=old_driver,
    )  # fmt: skip
    reading, state = gpu.reading(), gpu.state()
    assert (gpu.uuid, gpu.name) == ("GPU-11111111-aaaa-bbbb-cccc-000000000001", "NVIDIA H200")
    assert (reading.sm_clock_mhz, reading.mem_clock_mhz) == (1755, 3201)
    assert (reading.power_w, reading.energy_j, reading.temperature_c) == (412.5, 7000.25, 61)
    assert (reading.reasons, reading.memory_used_bytes) == (0x4, 2**30)
    assert (state.pids, state.mig, state.uncorrected_errors) == (frozenset({41, 42}), False, 3)
    assert reading.failures == state.failures == ()
    assert gpu.not_offered == {}


def test_what_a_gpu_does_not_offer_is_null_asked_once_and_no_failure():
    double = FakeNvml(FakeGpu(ecc_errors=None, mig=None))
    gpu = Nvml(double).gpu(double.machine[0].uuid)
    states = [gpu.state() for _ in range(3)]
    assert [state.uncorrected_errors for state in states] == [None] * 3
    assert not any(state.mig or state.failures for state in states)
    assert double.calls.count("nvmlDeviceGetTotalEccErrors") == 1
    assert gpu.not_offered == {"uncorrected_errors": "no ECC errors from this GPU, driver and nvidia-ml-py"}


def test_a_query_that_fails_is_named_and_the_others_go_on():
    fake = FakeGpu(failing={"nvmlDeviceGetPowerUsage": "Unknown"})
    gpu = opened(fake)
    reading = gpu.reading()
    assert (reading.power_w, reading.sm_clock_mhz) == (None, 1755)
    assert reading.failures == ("power: Unknown Error",)
    fake.failing.clear()
    assert gpu.reading().power_w == 400


def test_a_lost_gpu_fails_every_query_and_raises_nothing():
    double = FakeNvml(FakeGpu())
    gpu = Nvml(double).gpu(double.machine[0].uuid)
    double.machine.clear()
    assert len(gpu.reading().failures) == 7
    assert gpu.state().pids is None


def test_a_slice_reads_clocks_of_its_gpu_and_processes_of_its_own():
    whole = FakeGpu(mig=[1, 1], pids=[1, 2, 3])
    part = FakeGpu(uuid="MIG-22222222-aaaa-bbbb-cccc-000000000002", parent=whole, pids=[3], used_bytes=5)
    gpu = Nvml(FakeNvml(whole, part)).gpu(part.uuid)
    assert (gpu.reading().sm_clock_mhz, gpu.reading().memory_used_bytes) == (1755, 5)
    assert (gpu.state().pids, gpu.state().mig) == (frozenset({3}), True)


def test_a_uuid_as_pytorch_gives_it_is_found():
    gpu = Nvml(FakeNvml(FakeGpu())).gpu("11111111-aaaa-bbbb-cccc-000000000001")
    assert gpu.uuid == "GPU-11111111-aaaa-bbbb-cccc-000000000001"


def test_without_driver_or_gpu_the_reason_is_told():
    with pytest.raises(NvmlAbsent, match=r"no NVIDIA driver answers \(initialise NVML: NVML Shared Library Not Found"):
        Nvml(FakeNvml(driver=False))
    with pytest.raises(NvmlAbsent, match=r"no such GPU \(GPU GPU-9: Not Found\)"):
        Nvml(FakeNvml(FakeGpu())).gpu("GPU-9")


def test_the_double_refuses_what_the_driver_refuses():
    double = FakeNvml(FakeGpu(), root=False)
    handle = double.machine[0]
    with pytest.raises(ERRORS["Uninitialized"]):
        double.nvmlDeviceGetPowerUsage(handle)
    double.nvmlInit()
    with pytest.raises(ERRORS["InvalidArgument"]):
        double.nvmlDeviceGetPowerUsage(0)
    with pytest.raises(ERRORS["InvalidArgument"]):
        double.nvmlDeviceGetHandleByIndex(1)
    with pytest.raises(ERRORS["NoPermission"]):
        double.nvmlDeviceSetGpuLockedClocks(handle, 1500, 1500)
    double.nvmlShutdown()
    with pytest.raises(ERRORS["Uninitialized"]):
        double.nvmlShutdown()


def test_reasons_have_names_and_unknown_bits_a_number():
    assert reason_names(0) == []
    assert reason_names(0x4 | 0x40 | 0x1000) == ["sw_power_cap", "hw_thermal_slowdown", "bit_0x1000"]
