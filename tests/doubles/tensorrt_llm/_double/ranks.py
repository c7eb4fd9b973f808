"""The processes of ranks other than 0: started by the API itself, or found under mpirun."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from tensorrt_llm._double import failures
from tensorrt_llm._double.logger import write
from tensorrt_llm._double.rank_worker import address

WORKER = Path(__file__).with_name("rank_worker.py")
#: Variables of a job that `MPI_Comm_spawn` would take for its own.
INHERITED = ("SLURM_", "PMI_", "PMIX_")


class Ranks:
    """Rank 0 is this process. Others write their own log lines, so that these come from where they really come."""

    def __init__(self, world: int, config: dict[str, Any]) -> None:
        self.world, self.config = world, config
        self.processes: list[subprocess.Popen[bytes]] = []
        self.to: list[IO[bytes]] = []
        self.back: list[IO[bytes]] = []
        self.listening: socket.socket | None = None
        if world == 1:
            return
        size = int(os.environ.get("TRTLLM_DOUBLE_WORLD") or os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
        if size > 1:
            self._join(size)
        else:
            self._spawn()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def say(self, rank: int, text: str) -> None:
        if rank == 0:
            write(text)
        elif self.to:
            self._send(rank, {"say": text})

    def wait(self) -> None:
        """Until every rank did what it was told; a rank that is gone takes the job with it, as MPI has it."""
        for rank in range(1, len(self.to) + 1):
            self._send(rank, {"wait": True})
        for rank, stream in enumerate(self.back, start=1):
            if not stream.readline():
                failures.leave(failures.MPI_ABORT.format(rank=rank))

    def close(self) -> None:
        """Let them go; harmless when done before."""
        for stream in [*self.to, *self.back]:
            try:
                stream.close()
            except OSError:
                continue
        for process in self.processes:
            if not failures.asked("leak", self.config):
                process.wait(timeout=10)
        if self.listening:
            self.listening.close()
            Path(address()).unlink(missing_ok=True)
        self.processes, self.to, self.back, self.listening = [], [], [], None

    def _send(self, rank: int, message: dict[str, Any]) -> None:
        try:
            self.to[rank - 1].write(json.dumps(message).encode() + b"\n")
            self.to[rank - 1].flush()
        except OSError:
            failures.leave(failures.MPI_ABORT.format(rank=rank))

    def _spawn(self) -> None:
        if any(name.startswith(INHERITED) for name in os.environ):
            failures.leave(failures.SLOTS.format(ranks=self.world))
        leak = ["--leak"] if failures.asked("leak", self.config) else []
        for rank in range(1, self.world):
            back, reply = os.pipe()
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WORKER), "--rank", str(rank), "--reply", str(reply), *leak],
                stdin=subprocess.PIPE,
                pass_fds=[reply],
                # As Open MPI's daemon does, so that a signal to the process group of rank 0 does not reach them.
                start_new_session=True,
            )
            os.close(reply)
            assert process.stdin
            self.processes.append(process)
            self.to.append(process.stdin)
            self.back.append(os.fdopen(back, "rb"))
        self.wait()

    def _join(self, size: int) -> None:
        rank = 0 if os.environ.get("TRTLLM_DOUBLE_WORLD") else int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        if rank:
            raise RuntimeError(f"only rank 0 can start multi-node session, got {rank}")
        if size != self.world:
            raise ValueError(f"n_workers must be equal to the number of processes in MPI, got {self.world} vs {size}")
        place = Path(address())
        place.unlink(missing_ok=True)
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(place))
        self.listening.listen(size)
        self.listening.settimeout(float(os.environ.get("TRTLLM_DOUBLE_JOIN_S", "20")))
        found: dict[int, tuple[IO[bytes], IO[bytes]]] = {}
        ends = time.monotonic() + self.listening.gettimeout()  # type: ignore[operator]
        while len(found) < size - 1:
            try:
                connection, _ = self.listening.accept()
            except TimeoutError:
                missing = sorted(set(range(1, size)) - set(found))
                raise RuntimeError(f"MPI ranks {missing} did not come: each runs trtllm-llmapi-launch") from None
            stream = connection.makefile("rb")
            found[int(stream.readline())] = (connection.makefile("wb"), stream)
            assert time.monotonic() < ends + 60
        for rank in range(1, size):
            self.to.append(found[rank][0])
            self.back.append(found[rank][1])
        self.wait()
