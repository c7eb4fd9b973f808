"""A worker under mpirun: one process for each rank, of which the first does the job and speaks to the supervisor.

TensorRT-LLM's launcher `trtllm-llmapi-launch` has rank 0 run a command and the other ranks serve it; it splits the
command at every blank (tensorrt_llm/llmapi/trtllm-llmapi-launch at 020c89e). mpirun hands no descriptors on, so that
rank 0 opens those of the process that started mpirun, which waits and ends as mpirun does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.backends.trtllm.launch import for_own_ranks, mpirun_command
from harness.errors import EnvironmentUnfit

LAUNCHER = "trtllm-llmapi-launch"

#: Runs the worker without the current folder on its path; there is no blank in it.
_BOOT = "__import__('sys').path.pop(0);__import__('harness.runner.worker').runner.worker.main()"
_ROOT = Path(__file__).resolve().parents[2]


def run_under_mpirun(ranks: int, job: Path, pipe: int, cell: int | None) -> int:
    """Run the job's worker as rank 0 of `ranks` and return mpirun's exit code.

    Raises EnvironmentUnfit without mpirun or TensorRT-LLM's launcher.
    """
    launcher = shutil.which(LAUNCHER)
    if launcher is None:
        raise EnvironmentUnfit(f"launcher=mpirun needs {LAUNCHER} on PATH, which comes with TensorRT-LLM")
    with job.open("rb") as file:
        ours = f"/proc/{os.getpid()}/fd"
        command = [launcher, sys.executable, "-u", "-X", "faulthandler", "-c", _BOOT, f"{ours}/{file.fileno()}"]
        command += ["--leads", "--fd", f"{ours}/{pipe}"]
        command += [] if cell is None else ["--cell", f"{ours}/{cell}"]
        environment = dict(for_own_ranks(os.environ).variables)
        root = "" if _ROOT.name in {"site-packages", "dist-packages"} else str(_ROOT)
        places = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        return subprocess.run(mpirun_command(ranks, command), env=environment, check=False).returncode
