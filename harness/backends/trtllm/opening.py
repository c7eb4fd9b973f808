"""What TensorRT-LLM and which GPUs are here, asked before there are settings: these are made for the version found."""

from __future__ import annotations

import json
import os

from harness.backends.base import Arm, BackendFacts, CannotAnswer, Setting
from harness.backends.trtllm.options import read_options
from harness.errors import EnvironmentUnfit
from harness.spec.case import Case
from harness.spec.study import Level


class TrtllmOpening:
    """Opens without an engine and answers no case; `details` holds `version`, `gpus` and `features`."""

    name = "trtllm"

    def open(self, setting: Setting) -> BackendFacts:
        """Import TensorRT-LLM and look at it.

        Raises UsageError for unknown options, MissingExtra without TensorRT-LLM, EnvironmentUnfit without a GPU.
        """
        from harness.backends.trtllm.features import detect
        from harness.backends.trtllm.launch import for_own_ranks

        read_options(setting.options)
        # An import that starts MPI within another job waits for ranks that never come.
        for name in for_own_ranks(os.environ).cleared:
            del os.environ[name]
        features = detect()
        if not features.gpus:
            because = features.machine.gpus_unknown_because or "none is there"
            raise EnvironmentUnfit(f"TensorRT-LLM needs a GPU, and {because}")
        return BackendFacts(
            provenance="simulated" if features.is_double else "measured",
            versions=f"tensorrt_llm {features.version}",
            device=features.gpus[0].name,
            gpu_uuids=tuple(gpu.uuid for gpu in features.gpus if gpu.uuid),
            details={
                "version": features.version,
                "gpus": len(features.gpus),
                "driver": features.machine.driver,
                "features": json.dumps(features.to_data()),
            },
        )

    def prepare(self, case: Case, level: Level) -> Arm:
        """Answer none: that takes an engine."""
        raise CannotAnswer(f"{case.workload.label} at level {level} needs an engine with settings")

    def close(self) -> None:
        """Nothing is held."""
