"""What tests of runs on TensorRT-LLM share: engines with settings in a store, workers on the double, its clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from thorough import mostly_thorough
from workers import LIMITS, TESTS, Run

from harness.backends.base import Setting
from harness.engines.needs import EngineOptions, study_needs
from harness.engines.prepare import prepare, survey
from harness.engines.store import EngineStore
from harness.runner.messages import Job, JobArm, Measured, Opened, Unanswered
from harness.runner.policy import SamplingPolicy
from harness.spec.case import Case
from harness.spec.variant import Variant

PERSONALITIES = ("1.2.1", "1.3.0rc8", "1.3.0rc24", "1.4")
#: For what holds in each of them alike.
EVERY_VERSION = mostly_thorough(PERSONALITIES, {"1.3.0rc24"})
DOUBLES = TESTS / "doubles"

DENSE = Variant(
    name="dense", layers=4, hidden=1024, q_heads=16, kv_heads=4, head_dim=64, ffn=4096, vocab=32000,
)  # fmt: skip
SPARSE: dict[str, Any] = {
    **DENSE.model_dump(), "name": "sparse", "ffn": 0, "experts": {"count": 16, "top_k": 2, "inter": 512},
}  # fmt: skip
LATENT: dict[str, Any] = {
    "name": "latent", "layers": 3, "hidden": 1024, "q_heads": 16, "kv_heads": 16, "head_dim": 128, "ffn": 2048,
    "vocab": 32000, "attention": "mla", "mla": {},
    "experts": {"count": 16, "top_k": 2, "inter": 512, "shared_inter": 512, "dense_layers": 1},
}  # fmt: skip


def decode(batch: int = 8, kvsl: int = 2048, **more: Any) -> dict[str, Any]:
    return {"phase": "decode", "batch": batch, "kvsl": kvsl, **more}


def prefill(batch: int = 2, isl: int = 512, **more: Any) -> dict[str, Any]:
    return {"phase": "prefill", "batch": batch, "isl": isl, **more}


def cases(*workloads: dict[str, Any], variant: Any = DENSE, system: str = "b200_sxm", **split: Any) -> list[Case]:
    made = variant if isinstance(variant, Variant) else Variant.model_validate(variant)
    return [
        Case.model_validate({"variant": made, "workload": one, "system": system, "parallelism": split})
        for one in workloads
    ]


def settings_for(store: Path, asked: Sequence[Case], version: str, **options: Any) -> Path:
    """The folder of the one group of settings that these cases need."""
    made = EngineStore(store)
    needs = study_needs(asked, EngineOptions(version=version, **options))
    assert not needs.problems, needs.problems
    (need,) = needs.engines
    (beside,) = prepare(made, need, survey(made, needs.engines)).settings
    return beside.path


#: As little as shows that warm-up and samples are taken.
POLICY = SamplingPolicy(min_samples=30, max_samples=64)


class Worker:
    """One worker process on the double, and what it said."""

    def __init__(
        self, folder: Path, version: str, asked: Sequence[Case], *, level: str = "model", engine: Path | None = None,
        options: dict[str, Any] | None = None, policy: SamplingPolicy = POLICY, **environment: str,
    ) -> None:  # fmt: skip
        self.truth_file = folder / "truth.jsonl"
        self.run = Run(
            folder,
            Job(
                backend="trtllm",
                setting=Setting(
                    engine=engine or settings_for(folder / "store", asked, version),
                    seed=7,
                    scratch=folder / "scratch",
                    options=options or {},
                ),
                replicate=0,
                policy=policy,
                arms=tuple(JobArm(number, case, level) for number, case in enumerate(asked)),  # type: ignore[arg-type]
                environment={
                    "PYTHONPATH": f"{DOUBLES}:{TESTS}",
                    "TRTLLM_DOUBLE": version,
                    "TRTLLM_DOUBLE_SEED": "1",
                    "TRTLLM_DOUBLE_TRUTH": str(self.truth_file),
                    **environment,
                },
            ),
            limits=LIMITS,
        )

    @property
    def measured(self) -> dict[int, Measured]:
        return {one.number: one for one in self.run.messages if isinstance(one, Measured)}

    @property
    def unanswered(self) -> dict[int, Unanswered]:
        return {one.number: one for one in self.run.messages if isinstance(one, Unanswered)}

    @property
    def opened(self) -> Opened:
        return next(one for one in self.run.messages if isinstance(one, Opened))

    @property
    def truth(self) -> list[dict[str, Any]]:
        """What the double did, iteration by iteration."""
        lines = self.truth_file.read_text(encoding="utf-8").splitlines()
        return [row for line in lines if (row := json.loads(line))["event"] != "open"]


def true_times(rows: Sequence[dict[str, Any]], **what: Any) -> list[float]:
    """Device times, slowest rank, of the iterations that are like this."""
    alike = [row for row in rows if all(row[name] == value for name, value in what.items())]
    by_iteration: dict[Any, list[float]] = {}
    for row in alike:
        by_iteration.setdefault((row["process"], row["generate"], row["iteration"]), []).append(row["device_ms"])
    return [max(times) for times in by_iteration.values()]


def off_pct(measured: Sequence[float], true: Sequence[float]) -> float:
    """By how much the median is off, in %."""
    return 100 * (median(measured) / median(true) - 1)
