"""What ranks inherit and how they are started; mpirun is the real one where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.backends.trtllm.launch import Rank, for_own_ranks, mpirun_command, rank_of
from harness.errors import EnvironmentUnfit

PLAIN = {"PATH": "/usr/bin", "HOME": "/root", "TLLM_LOG_LEVEL": "INFO", "SIMPI_X": "1"}


def test_a_plain_shell_keeps_all_that_it_has() -> None:
    tuned = {**PLAIN, "UCX_TLS": "all", "KMP_AFFINITY": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    found = for_own_ranks(tuned)
    assert (dict(found.variables), found.cleared) == (tuned, ())


@pytest.mark.parametrize(
    "inherited",
    [
        {"SLURM_NTASKS": "1", "SLURM_JOB_ID": "7"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_MCA_ess_base_jobid": "1", "UCX_TLS": "all"},
        {"PMI_RANK": "0", "PMI_SIZE": "4", "I_MPI_X": "1"},
        {"PMIX_RANK": "0", "KMP_AFFINITY": "x"},
        {"HYDRA_X": "1", "MPICH_X": "1", "MV2_X": "1", "CRAY_X": "1", "MPI_X": "1"},
    ],
)
def test_what_a_launcher_left_is_cleared(inherited: dict[str, str]) -> None:
    found = for_own_ranks({**PLAIN, **inherited, "OMPI_ALLOW_RUN_AS_ROOT": "1"})
    assert dict(found.variables) == {**PLAIN, "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    assert found.cleared == tuple(sorted(inherited))


def test_the_rank_is_looked_for_in_the_order_of_tensorrt_llm() -> None:
    assert rank_of(PLAIN) is None
    assert rank_of({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}) == Rank(2, 4)
    both = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    assert rank_of(both) == Rank(0, 8)
    assert Rank(0, 8).leads
    assert not Rank(1, 8).leads
    assert rank_of({"PMI_ID": "0"}) == Rank(0, 1)


@pytest.mark.parametrize("environ", [{"PMI_RANK": "x"}, {"SLURM_PROCID": "4", "SLURM_NTASKS": "4"}, {"PMI_RANK": "-1"}])
def test_a_rank_that_cannot_be_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(EnvironmentUnfit, match="unset it"):
        rank_of(environ)


def test_without_mpirun_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentUnfit, match="apt-get install openmpi-bin"):
        mpirun_command(2, ["true"])


def test_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    plain = ["--np", "4", "--host", "localhost:4", "--bind-to", "none", "python", "x.py"]
    assert mpirun_command(4, ["python", "x.py"], as_root=False) == ["/opt/mpirun", *plain]
    assert mpirun_command(4, ["python", "x.py"], as_root=True) == ["/opt/mpirun", "--allow-run-as-root", *plain]


#: Each rank leaves a file: mpirun may merge what several print at once.
RANKS = """
import os, pathlib, sys
pathlib.Path(sys.argv[1], os.environ["OMPI_COMM_WORLD_RANK"]).write_text(os.environ["OMPI_COMM_WORLD_SIZE"])
"""


@pytest.mark.mpi
def test_more_ranks_than_cores_start_under_what_slurm_left(tmp_path: Path) -> None:
    """Real processes of the real mpirun, as any user, in an allocation that has one slot."""
    left = {"SLURM_NTASKS": "1", "SLURM_JOB_ID": "7", "SLURM_NODELIST": "other", "SLURM_TASKS_PER_NODE": "1"}
    clean = for_own_ranks({**os.environ, **left})
    assert {*left} <= {*clean.cleared}
    ranks = (os.cpu_count() or 1) + 2
    command = mpirun_command(ranks, [sys.executable, "-c", RANKS, str(tmp_path)])
    done = subprocess.run(command, env=clean.variables, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert told == {str(rank): str(ranks) for rank in range(ranks)}
