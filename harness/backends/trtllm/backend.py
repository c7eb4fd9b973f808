"""The backend `trtllm`: cases on TensorRT-LLM, as whole models through its LLM API or layer by layer.

A worker opens one engine with one set of settings, `Setting.engine` = STORE/KEY/llm_args/NAME, and answers the cases
whose workloads these are for. Level `model` starts one LLM instance for all of them, with its first case; level `layer`
takes the runner of single layers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.backends.base import Arm, BackendFacts, CannotAnswer, Setting
from harness.backends.trtllm.fit import check_model
from harness.backends.trtllm.launch import for_own_ranks
from harness.backends.trtllm.options import Options, read_options
from harness.backends.trtllm.prompts import Prompts
from harness.backends.trtllm.settings_folder import EngineSettings, check_fields_exist, read_settings_folder
from harness.errors import EnvironmentUnfit, UsageError
from harness.hardware import match_device_name
from harness.spec.axes import Scalar
from harness.spec.case import Case
from harness.spec.study import Level
from harness.spec.workload import Prefill, Serve

if TYPE_CHECKING:
    from harness.backends.trtllm.features import Features
    from harness.backends.trtllm.layerwise import LayerRunner
    from harness.backends.trtllm.session import LlmSession

#: Variables that change what is measured; they are kept with the run.
_KEPT_PREFIXES = ("TLLM_", "TRTLLM_", "ENABLE_PERFECT_ROUTER", "EXPERT_STATISTIC", "NCCL_", "CUDA_VISIBLE_DEVICES")
_TUNER_CACHE = "TLLM_AUTOTUNER_CACHE_PATH"


class TrtllmBackend:
    """Runs cases at levels `model` and `layer` on the TensorRT-LLM that is installed."""

    name = "trtllm"

    def __init__(self) -> None:
        self._options = Options()
        self._setting = Setting()
        self._settings: EngineSettings | None = None
        self._features: Features | None = None
        self._session: LlmSession | None = None
        self._unusable: CannotAnswer | None = None
        self._layers: LayerRunner | None = None

    def open(self, setting: Setting) -> BackendFacts:
        """Read the settings, set the environment that they need, and import TensorRT-LLM.

        Raises UsageError without settings or for unknown options, MissingExtra without TensorRT-LLM, EnvironmentUnfit
        without a GPU.
        """
        from harness.backends.trtllm.features import detect

        self._options = read_options(setting.options)
        if setting.engine is None:
            raise UsageError("--on trtllm needs an engine with settings: STORE/KEY/llm_args/NAME")
        self._setting, self._settings = setting, read_settings_folder(setting.engine)
        # TensorRT-LLM reads most variables once, when it is imported.
        cleared = _clear_launcher() if self._options.launcher == "spawn" else ()
        os.environ.update(self._settings.environment)
        cache = _tuner_cache(setting.scratch, self._settings)
        if cache:
            os.environ.setdefault(_TUNER_CACHE, str(cache))
        features = self._features = detect()
        if not features.gpus:
            because = features.machine.gpus_unknown_because or "none is there"
            raise EnvironmentUnfit(f"TensorRT-LLM needs a GPU, and {because}")
        return self._facts(features, cleared)

    def prepare(self, case: Case, level: Level) -> Arm:
        """Make a case ready: start the instance with the first one, and warm its batch up."""
        settings, features = self._settings, self._features
        assert settings, "open comes first"
        assert features
        if level not in {"model", "layer"} or isinstance(case.workload, Serve):
            asked = "serving" if isinstance(case.workload, Serve) else f"level {level}"
            raise CannotAnswer(f"--on trtllm answers prefill and decode at levels model and layer, not {asked}")
        self._check_place(case, level, features)
        check_model(case, settings)
        check_fields_exist(settings, features)
        if case.parallelism.cp > 1:
            raise CannotAnswer(
                "Helix runs in the generation server of disaggregated serving; that a plain LLM instance or the "
                "layer-wise runner takes context_parallel_size > 1 is not established"
            )
        return self._prepare_model(case) if level == "model" else self._prepare_layers(case)

    def close(self) -> None:
        """Shut the instance down."""
        session, self._session = self._session, None
        if session:
            session.close()
        layers, self._layers = self._layers, None
        if layers:
            layers.close()

    def _prepare_model(self, case: Case) -> Arm:
        from harness.backends.trtllm.fit import check_sizes
        from harness.backends.trtllm.llm_api import open_arm
        from harness.backends.trtllm.session import LlmSession

        assert self._settings
        check_routing(case)
        check_stages(case)
        check_sizes(case, self._settings)
        if self._unusable:
            raise self._unusable
        if self._session is None:
            assert self._features
            settings = _as_run(self._settings, self._features, isinstance(case.workload, Prefill))
            prompts = Prompts(self._setting.seed, case.variant.vocab)
            try:
                self._session = LlmSession(settings, prompts, case.parallelism.world_size)
            except CannotAnswer as error:
                # What no instance of this release can tell, the next case need not wait for either.
                self._unusable = error
                raise
        return open_arm(self._session, case)

    def _prepare_layers(self, case: Case) -> Arm:
        from harness.backends.trtllm.layerwise import LayerRunner

        assert self._settings
        assert self._features
        if self._layers is None:
            self._layers = LayerRunner(self._settings, self._features, self._options)
        return self._layers.arm(case)

    def _check_place(self, case: Case, level: Level, features: Features) -> None:
        gpu = features.gpus[0]
        system = match_device_name(gpu.name)
        if system is None or system.key != case.system:
            here = gpu.name + (f" ({system.key})" if system else "")
            raise CannotAnswer(f"this machine has {here}, and the case asks for {case.system}")
        ranks = case.parallelism.world_size
        if level == "layer":
            ranks = min(ranks, self._options.layerwise_gpus or ranks)
        if ranks > len(features.gpus):
            raise CannotAnswer(f"the case needs {ranks} GPUs, and here are {len(features.gpus)}")

    def _facts(self, features: Features, cleared: tuple[str, ...]) -> BackendFacts:
        assert self._settings
        used = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_KEPT_PREFIXES)}
        details: dict[str, Scalar] = {
            "settings": self._settings.name,
            "architecture": self._settings.engine.manifest.architecture,
            "engine_notes": "; ".join(self._settings.engine.manifest.notes),
            "driver": features.machine.driver,
            "environment": json.dumps(used),
            "environment_cleared": ", ".join(cleared),
            "features": json.dumps(features.to_data()),
        }
        return BackendFacts(
            provenance="simulated" if features.is_double else "measured",
            versions=f"tensorrt_llm {features.version}",
            device=features.gpus[0].name,
            gpu_uuids=tuple(gpu.uuid for gpu in features.gpus if gpu.uuid),
            details=details,
        )


def check_routing(case: Case) -> None:
    """Raise CannotAnswer for a routing that a whole model cannot be told."""
    if case.variant.experts and case.workload.routing != "balanced":
        raise CannotAnswer(
            f"TensorRT-LLM cannot be told to route as {case.workload.routing}; at level layer balance_method and "
            "balance_ratio make experts uneven"
        )


def check_stages(case: Case) -> None:
    """Raise CannotAnswer for pipeline stages, of which an iteration's figures tell one."""
    if case.parallelism.pp > 1:
        raise CannotAnswer(
            f"with {case.parallelism.pp} pipeline stages TensorRT-LLM tells the time of a stage and not of a step; "
            "pp 1 can be measured"
        )


def _clear_launcher() -> tuple[str, ...]:
    """Take out of the environment what a launcher around this process left in it."""
    cleared = for_own_ranks(os.environ).cleared
    for name in cleared:
        del os.environ[name]
    return cleared


def _tuner_cache(scratch: Path | None, settings: EngineSettings) -> Path | None:
    """A file that all processes of a run share for one engine, so that replicates time the same kernels."""
    if scratch is None:
        return None
    folder = scratch / "autotuner"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{settings.engine.key}-{settings.folder.name}.json"


def _as_run(settings: EngineSettings, features: Features, prefill: bool) -> EngineSettings:
    """Settings with what makes a batch form at once, where this release has it, and room to see a prefill's end."""
    changes: dict[str, object] = {}
    if features.has("batch_wait_timeout_ms") and not settings.fields.get("batch_wait_timeout_ms"):
        changes["batch_wait_timeout_ms"] = BATCH_WAIT_MS
    if prefill:
        # Of some releases the next iteration tells the time of a prefill, so that there has to be one.
        changes["max_seq_len"] = int(settings.fields["max_seq_len"]) + 1
        cache = settings.part("kv_cache_config")
        if cache.get("max_tokens"):
            more = int(settings.fields["max_batch_size"]) * int(cache.get("tokens_per_block") or 32)
            changes["kv_cache_config"] = {**cache, "max_tokens": int(cache["max_tokens"]) + more}
    return settings.with_fields(**changes)


#: How long the executor waits for the rest of a batch: requests come one by one, within a few milliseconds.
BATCH_WAIT_MS = 100.0
