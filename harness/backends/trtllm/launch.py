"""How the processes of one engine are started on one node, and what they must not inherit.

TensorRT-LLM spawns a process per rank by MPI itself. A process that a batch system or another mpirun started carries
variables that such a spawn takes for its own: it then finds no slots, or waits for ranks that never come. What is
cleared are the prefixes that tensorrt_llm/llmapi/trtllm-llmapi-launch at 020c89e clears for the task of rank 0.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import EnvironmentUnfit

#: Beginnings of the names that launchers give their variables.
LAUNCHER_PREFIXES = (
    "OMPI_",
    "PMIX_",
    "PMI_",
    "SLURM_",
    "MPI_",
    "UCX_",
    "I_MPI_",
    "HYDRA_",
    "KMP_",
    "MPICH_",
    "MV2_",
    "CRAY_",
)

#: What a user or a container sets on purpose, and no launcher does.
KEPT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")

#: Of the rank and the number of ranks, in the order in which trtllm-llmapi-launch looks for them.
RANK_VARIABLES = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID")
SIZE_VARIABLES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")

#: Prefixes of which one variable tells of a launcher or an allocation around us. UCX_ and KMP_ alone are tuning.
_SIGNS = ("SLURM_", "OMPI_COMM_WORLD_", "PMIX_", "PMI_", "HYDRA_", "MPICH_", "MV2_")


@dataclass(frozen=True, slots=True)
class Rank:
    """Which of how many processes this is."""

    number: int
    of: int

    @property
    def leads(self) -> bool:
        """Whether it speaks for all."""
        return self.number == 0


@dataclass(frozen=True, slots=True)
class Environment:
    """Variables for a process that starts ranks."""

    variables: Mapping[str, str]
    cleared: tuple[str, ...]
    """Names that were left out, sorted; kept with the run."""


def for_own_ranks(inherited: Mapping[str, str]) -> Environment:
    """Return the variables for a process that starts ranks of its own: without a launcher's, where one is around us."""
    if not any(name.startswith(_SIGNS) for name in inherited):
        return Environment(dict(inherited), ())
    cleared = {name for name in inherited if name.startswith(LAUNCHER_PREFIXES) and name not in KEPT}
    return Environment(
        {name: value for name, value in inherited.items() if name not in cleared}, tuple(sorted(cleared))
    )


def rank_of(environ: Mapping[str, str]) -> Rank | None:
    """Return which rank of a launcher this process is, or None where none started it.

    Raises EnvironmentUnfit for a number that is none or lies outside of the ranks.
    """
    name = next((one for one in RANK_VARIABLES if one in environ), None)
    if name is None:
        return None
    size_name = next((one for one in SIZE_VARIABLES if one in environ), None)
    try:
        rank = Rank(int(environ[name]), int(environ[size_name]) if size_name else 1)
    except ValueError:
        said = ", ".join(f"{one}={environ[one]!r}" for one in (name, size_name) if one)
        raise EnvironmentUnfit(f"{said} is no rank; start without a launcher, or unset it") from None
    if not 0 <= rank.number < rank.of:
        raise EnvironmentUnfit(f"{name}={rank.number} is not below {size_name or 'one rank'} {rank.of}; unset it")
    return rank


def mpirun_command(ranks: int, command: Sequence[str], *, as_root: bool | None = None) -> list[str]:
    """Return the command line that runs `ranks` copies of `command` on this node.

    Slots are given, so that fewer cores than ranks are no refusal, and ranks are bound to no core. Raises
    EnvironmentUnfit where there is no mpirun.
    """
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        raise EnvironmentUnfit(
            "launcher=mpirun needs mpirun on PATH: apt-get install openmpi-bin, or use the container"
        )
    root = os.geteuid() == 0 if as_root is None else as_root
    # Open MPI refuses root without it, as containers are.
    allow = ["--allow-run-as-root"] if root else []
    return [mpirun, *allow, "--np", str(ranks), "--host", f"localhost:{ranks}", "--bind-to", "none", *command]
