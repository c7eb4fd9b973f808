from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from doubles.nvml import FakeGpu, FakeNvml

from harness.errors import EnvironmentUnfit
from harness.runner.telemetry import CLOCKS_NOTE, locked_clocks, restore_left_clocks

TDP = (0xFFFFFF01, 0xFFFFFF01)
TESTS = Path(__file__).parent

#: A program that locks and waits; what is locked is in a file, as the real state is in the driver.
_PROGRAM = """
import sys, time
from pathlib import Path
sys.path[:0] = [{tests!r}, {repository!r}]
from doubles.nvml import FakeGpu, FakeNvml
from harness.runner.telemetry import locked_clocks

class Recording(FakeNvml):
    def nvmlDeviceSetGpuLockedClocks(self, handle, low, high):
        super().nvmlDeviceSetGpuLockedClocks(handle, low, high)
        Path("locked").touch()
    def nvmlDeviceResetGpuLockedClocks(self, handle):
        super().nvmlDeviceResetGpuLockedClocks(handle)
        Path("locked").unlink()

with locked_clocks(Path(), ["GPU-1"], nvml=Recording(FakeGpu(uuid="GPU-1"))):
    print("locked", flush=True)
    {then}
"""


def a_node(**options: object) -> FakeNvml:
    return FakeNvml(FakeGpu(uuid="GPU-1"), FakeGpu(uuid="GPU-2"), **options)


def locks(double: FakeNvml) -> list[object]:
    return [gpu.locked for gpu in double.machine]


def start(folder: Path, then: str) -> subprocess.Popen[str]:
    code = _PROGRAM.format(tests=str(TESTS), repository=str(TESTS.parent), then=then)
    program = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "locked\n", program.communicate()[1]
    assert (folder / "locked").exists()
    return program


def test_clocks_are_held_inside_the_block_only(tmp_path):
    double = a_node()
    with locked_clocks(tmp_path, ["GPU-1", "GPU-2"], nvml=double):
        assert locks(double) == [TDP, TDP]
        note = json.loads((tmp_path / CLOCKS_NOTE).read_text())
        assert note["gpus"] == ["GPU-1", "GPU-2"]
    assert locks(double) == [None, None]
    assert list(tmp_path.iterdir()) == []
    assert double.opened == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_releases_them(tmp_path, error):
    double = a_node()

    def fail_inside() -> None:
        with locked_clocks(tmp_path, ["GPU-1"], mhz=1500, nvml=double):
            assert locks(double) == [(1500, 1500), None]
            raise error

    with pytest.raises(error):
        fail_inside()
    assert locks(double) == [None, None]
    assert not (tmp_path / CLOCKS_NOTE).exists()


def test_a_signal_is_handled_as_before_afterwards(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with locked_clocks(tmp_path, ["GPU-1"], nvml=a_node()):
        pass
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_process_releases_them_first(tmp_path, number):
    program = start(tmp_path, "time.sleep(600)")
    program.send_signal(number)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == -number, errors
    assert list(tmp_path.iterdir()) == []


def test_leaving_by_sys_exit_releases_them(tmp_path):
    program = start(tmp_path, "sys.stdin.readline(); sys.exit(7)")
    _, errors = program.communicate("go on\n", timeout=60)
    assert program.returncode == 7, errors
    assert list(tmp_path.iterdir()) == []


def test_after_a_kill_the_next_run_in_the_folder_releases_them(tmp_path):
    program = start(tmp_path, "time.sleep(600)")
    program.kill()
    program.communicate(timeout=60)
    assert (tmp_path / "locked").exists()
    double = a_node()
    double.machine[0].locked = TDP
    assert restore_left_clocks(tmp_path, nvml=double) == (
        "released the clocks of GPU-1, which an earlier run left locked"
    )
    assert locks(double) == [None, None]
    assert restore_left_clocks(tmp_path, nvml=double) == ""


def test_without_permission_nothing_is_locked_and_the_message_says_so(tmp_path):
    double = a_node(root=False)
    with (
        pytest.raises(EnvironmentUnfit, match=r"clocks of GPU-1 cannot be locked: only root may.*; leave it out"),
        locked_clocks(tmp_path, ["GPU-1", "GPU-2"], nvml=double),
    ):
        pytest.fail("the block was entered")
    assert locks(double) == [None, None]
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_refuses_after_another_was_locked_releases_that(tmp_path):
    double = a_node()
    double.machine[1].failing["nvmlDeviceSetGpuLockedClocks"] = "NotSupported"
    with (
        pytest.raises(EnvironmentUnfit, match="clocks of GPU-2 cannot be locked: this GPU or driver does not offer it"),
        locked_clocks(tmp_path, ["GPU-1", "GPU-2"], nvml=double),
    ):
        pytest.fail("the block was entered")
    assert locks(double) == [None, None]


def test_a_clock_that_the_gpu_does_not_take_is_refused(tmp_path):
    with (
        pytest.raises(EnvironmentUnfit, match="Invalid Argument; `nvidia-smi -q -d SUPPORTED_CLOCKS` lists"),
        locked_clocks(tmp_path, ["GPU-1"], mhz=5000, nvml=a_node()),
    ):
        pytest.fail("the block was entered")


def test_clocks_that_cannot_be_released_are_an_error_and_the_note_stays(tmp_path):
    double = a_node()
    with (
        pytest.raises(EnvironmentUnfit, match=r"clocks stay locked: GPU-1 \(release the clocks: GPU is lost\)"),
        locked_clocks(tmp_path, ["GPU-1"], nvml=double),
    ):
        double.machine[0].failing["nvmlDeviceResetGpuLockedClocks"] = "GpuIsLost"
    with pytest.raises(EnvironmentUnfit, match="`nvidia-smi -i GPU-1 --reset-gpu-clocks` releases them"):
        restore_left_clocks(tmp_path, nvml=double)
    assert (tmp_path / CLOCKS_NOTE).exists()


def test_a_note_of_another_host_is_left_to_it(tmp_path):
    (tmp_path / CLOCKS_NOTE).write_text('{"gpus": ["GPU-1"], "host": "node-0.example", "clock_mhz": null}\n')
    double = a_node()
    assert "may still be locked on node-0.example" in restore_left_clocks(tmp_path, nvml=double)
    assert double.calls == []
    assert (tmp_path / CLOCKS_NOTE).exists()


def test_without_a_driver_clocks_cannot_be_locked(tmp_path):
    with (
        pytest.raises(EnvironmentUnfit, match="--lock-clocks: no NVIDIA driver answers"),
        locked_clocks(tmp_path, ["GPU-1"], nvml=FakeNvml(driver=False)),
    ):
        pytest.fail("the block was entered")
