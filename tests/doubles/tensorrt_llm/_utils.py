"""What TensorRT-LLM's tools ask of the machine and of MPI."""

from __future__ import annotations

import os

from tensorrt_llm._double import sm_version


def mpi_rank() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))


def mpi_world_size() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def local_mpi_rank() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", str(mpi_rank())))


def local_mpi_size() -> int:
    return int(os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE", str(mpi_world_size())))


def get_sm_version() -> int:
    return sm_version()
