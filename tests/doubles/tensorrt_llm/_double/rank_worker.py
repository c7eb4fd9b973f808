"""The process of one rank other than 0. Needs nothing but the standard library, so that it starts at once.

rank_worker.py --rank 1 --reply FD [--leak]     reads commands from stdin, answers on FD
rank_worker.py --rank 1 --connect PATH          the same over a socket, under mpirun
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import sys
import time
from typing import IO

_JOB = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "SLURM_JOB_ID")


def address() -> str:
    """Where rank 0 of this job waits for the others."""
    given = os.environ.get("TLLM_SPAWN_PROXY_PROCESS_IPC_ADDR")
    if given:
        return given
    job = next((f"{name}={os.environ[name]}" for name in _JOB if os.environ.get(name)), f"parent={os.getppid()}")
    return f"/tmp/trtllm-double-{os.getuid()}-{hashlib.sha256(job.encode()).hexdigest()[:16]}"


def serve(commands: IO[bytes], replies: IO[bytes]) -> None:
    """Do what rank 0 says until it is gone."""
    for command in commands:
        message = json.loads(command)
        if "say" in message:
            os.write(1, message["say"].encode() + b"\n")
        else:
            replies.write(b"done\n")
            replies.flush()


def connect(path: str, rank: int) -> tuple[IO[bytes], IO[bytes]]:
    """Find rank 0, which may be later."""
    ends = time.monotonic() + float(os.environ.get("TRTLLM_DOUBLE_JOIN_S", "20"))
    while True:
        try:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
        except OSError:
            connection.close()
            if time.monotonic() > ends:
                sys.exit(f"rank {rank}: rank 0 does not open a session")
            time.sleep(0.02)
            continue
        stream = connection.makefile("wb")
        stream.write(f"{rank}\n".encode())
        stream.flush()
        return connection.makefile("rb"), stream


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--reply", type=int)
    parser.add_argument("--connect")
    parser.add_argument("--leak", action="store_true")
    given = parser.parse_args()
    # What makes rank 0 stop makes its pipe end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if given.leak:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        if given.connect:
            serve(*connect(given.connect, given.rank))
        else:
            serve(sys.stdin.buffer, os.fdopen(given.reply, "wb"))
    except (BrokenPipeError, ConnectionResetError):
        pass
    while given.leak:
        time.sleep(3600)


if __name__ == "__main__":
    main()
