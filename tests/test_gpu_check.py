"""The GPU check's steps, on the processor: everything but the GPU is tried before one is at hand."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile

import pytest
from command_line import REPOSITORY

import harness

SCRIPT = REPOSITORY / "benchmarks" / "gpu_check.sh"


def check(*arguments):
    """Run the script with this Python, in any folder."""
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(["bash", SCRIPT, *arguments], cwd="/", env=environment, capture_output=True, text=True)


@pytest.mark.thorough
@pytest.mark.torch
def test_its_cpu_half_measures_and_leaves_its_records_where_it_was_told(tmp_path):
    done = check("--cpu", "--out", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok     ") == 8  # layers that equal the float64 reference
    assert "WRONG" not in done.stdout
    rows = harness.load(tmp_path / "runs" / "gpu-check-cpu")
    assert list(rows["status"]) == ["ok"] * 4
    assert set(rows["answered_by"]) == {"torch"}
    assert set(rows["layers_run"]) == {1}
    assert "gpu-check-cpu: 4 rows; no prices here" in (tmp_path / "summary.txt").read_text()
    with tarfile.open(tmp_path / "gpu-check.tar.gz") as archive:
        assert {"./summary.txt", "./runs/gpu-check-cpu/records.parquet"} <= set(archive.getnames())


def test_a_wrong_argument_is_told():
    done = check("--gpu")
    assert (done.returncode, done.stderr) == (2, "unknown argument: --gpu\n")


def test_what_was_measured_before_is_not_thrown_away(tmp_path):
    (tmp_path / "runs" / "gpu-check-cpu").mkdir(parents=True)
    done = check("--cpu", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "holds measured runs already, which are not thrown away; take another --out" in done.stderr


@pytest.mark.torch
def test_a_summary_of_nothing_is_no_success(tmp_path):
    (tmp_path / "runs").mkdir()
    command = [sys.executable, REPOSITORY / "benchmarks" / "gpu_check.py", "summary", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "WRONG: nothing was measured\n")
