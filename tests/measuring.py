"""What tests of measured runs share: small plans for the faulty backend, and what a run folder then says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers import LIMITS, VARIANT

from harness.files import dump_yaml
from harness.results.record import Record
from harness.results.store import latest_attempts, read_attempts
from harness.runner.measure_run import MeasureOptions
from harness.runner.plan import Plan, make_plan
from harness.runner.policy import SamplingPolicy
from harness.spec.base import parse
from harness.spec.study import Study, Suite

FAULTY = "doubles.faulty_backend:FaultyBackend"
MENDED = "doubles.mended_backend:MendedBackend"

#: Every arm is warmed up 20 times and sampled 30 times, whatever it shows.
POLICY = SamplingPolicy(min_samples=30, max_samples=30)

#: A claim about the batch, so that all batches share a process.
TOGETHER = {
    "id": "flat", "guideline": "A1d", "statement": "It is flat.", "kind": "flat_within", "axis": "batch",
    "at_most_pct": 5, "scatter_pct": 5,
}  # fmt: skip


def study(*, together: bool = True, **changes: Any) -> dict[str, Any]:
    """Decode at batch 1, 2 and 4, which the double answers with 1, 2 and 4 ms; in one process where `together`."""
    return {
        "name": "faults", "title": "Faults", "level": "layer", "variant": VARIANT, "systems": ["cpu"],
        "workloads": {"decode": {"batch": [1, 2, 4], "kvsl": 64}}, "claims": [TOGETHER] if together else [], **changes,
    }  # fmt: skip


def plan(**changes: Any) -> Plan:
    made = parse(Study, study(**changes), "faults")
    return make_plan(Suite(name="faults", title="Faults", studies=("faults",)), [made])


def study_file(path: Path, **changes: Any) -> Path:
    path.write_text(dump_yaml(study(**changes)))
    return path


def options(*, replicates: int | None = 1, **backend: Any) -> MeasureOptions:
    return MeasureOptions(on=FAULTY, replicates=replicates, policy=POLICY, limits=LIMITS, backend_options=backend)


@dataclass(frozen=True)
class Row:
    """A row, in short."""

    batch: int | None
    replicate: int | None
    status: str
    step_ms: float | None


def rows(out: Path) -> list[Row]:
    """The rows of a run, one for each slot."""
    return [Row(one.batch, one.replicate, one.status, one.step_ms) for one in records(out)]


def records(out: Path) -> list[Record]:
    attempts, damage = read_attempts(out)
    assert not damage
    return [attempt.record for attempt in latest_attempts(attempts)]


def ok(*batches: int, replicate: int = 0) -> list[Row]:
    """What the double answers."""
    return [Row(batch, replicate, "ok", float(batch)) for batch in batches]
