"""What tests of worker processes share: a job of small cases for the faulty backend, and whether a process lives."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from harness.backends.base import Setting
from harness.runner.limits import Limits
from harness.runner.messages import Job, JobArm, Measured, Message
from harness.runner.policy import SamplingPolicy
from harness.runner.supervise import Ended, run_worker
from harness.spec.case import Case

TESTS = Path(__file__).parent
#: Generous, as a busy machine is slow; what has to hang is made to.
LIMITS = Limits(startup_s=60, idle_s=60, arm_s=60, stop_s=1)

VARIANT = {
    "name": "small",
    "layers": 2,
    "hidden": 256,
    "q_heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "ffn": 512,
    "vocab": 512,
}


def case(batch: int) -> Case:
    workload = {"phase": "decode", "batch": batch, "kvsl": 64}
    return Case.model_validate({"variant": VARIANT, "workload": workload, "system": "h200_sxm"})


def job(pids: Path | None = None, batches: tuple[int, ...] = (1, 2, 4), **options: Any) -> Job:
    """Arms number 10, 20, 40 for batches 1, 2, 4."""
    if pids is not None:
        options["pids"] = str(pids)
    return Job(
        backend="doubles.faulty_backend:FaultyBackend",
        setting=Setting(seed=7, options=options),
        replicate=0,
        policy=POLICY,
        arms=tuple(JobArm(10 * batch, case(batch), "layer") for batch in batches),
        environment={"PYTHONPATH": str(TESTS)},
    )


#: Every arm runs five times.
POLICY = SamplingPolicy(warmup_decode=0, warmup_prefill=0, max_warmup=0, min_samples=5, max_samples=5)


class Run:
    """One worker run in a folder, with what it said and which processes it had."""

    def __init__(self, folder: Path, job_: Job, **how: Any) -> None:
        self.messages: list[Message] = []
        self.ended: Ended = run_worker(
            job_, folder=folder, log_name="w.log", on_message=self.messages.append, **{"limits": LIMITS, **how}
        )

    @property
    def measured(self) -> set[int]:
        return {message.number for message in self.messages if isinstance(message, Measured)}


def pids_in(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def alive(pids: list[int]) -> list[int]:
    """Those of `pids` that exist; one that nobody has waited for is not alive."""
    return [pid for pid in pids if _state(pid) not in {"", "Z", "X"}]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def none_left(pids: list[int], within_s: float = 30) -> bool:
    """Whether all are gone, now or soon."""
    until = time.monotonic() + within_s
    while alive(pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pids)


def main() -> None:
    """Run as a program, to be interrupted or killed: workers.py FOLDER OPTIONS; what the worker says goes to stdout."""
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])

    def say(kind: str, what: object) -> None:
        sys.stdout.write(json.dumps([kind, what]) + "\n")
        sys.stdout.flush()

    def on_message(message: Message) -> None:
        say(message.kind, getattr(message, "number", None))

    asked = job(folder / "pids", **options)
    say("ended", run_worker(asked, folder=folder, log_name="w.log", on_message=on_message, limits=LIMITS).status)


if __name__ == "__main__":
    main()
