"""Cases at level `layer`: decoder layers by the layer-wise runner that comes with TensorRT-LLM.

On one GPU in this process, where the installed package has the runner; else, and with several ranks, by its command
from a checkout of the installed version (option `layerwise_checkout`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.backends.base import ArmFacts, CannotAnswer, OpTime, Taken
from harness.backends.trtllm.features import Features
from harness.backends.trtllm.fit import sequences_of
from harness.backends.trtllm.layerwise_command import RUN_TIMES, LayerCommand
from harness.backends.trtllm.layerwise_module import LayerModule
from harness.backends.trtllm.layerwise_problem import LayerCase, Problem, layer_case
from harness.backends.trtllm.options import Options
from harness.backends.trtllm.settings_folder import EngineSettings
from harness.spec.axes import Scalar
from harness.spec.case import Case

#: Samples that an arm takes in a turn: by the command all of a process, as it starts anew for more.
MODULE_TAKE, COMMAND_TAKE = 10, 60

Timer = Callable[[int], "list[float]"]


class LayerArm:
    """The layers of one case."""

    def __init__(
        self, case: Case, asked: LayerCase, timers: list[Timer], take: int, details: dict[str, Scalar]
    ) -> None:
        self._case, self._asked, self._timers, self._take, self._details = case, asked, timers, take, details

    @property
    def facts(self) -> ArmFacts:
        """How the layers ran; times are those of as many layers as ran, each part in its share."""
        run, layers = self._asked.layers_run, self._case.variant.layers
        return ArmFacts(layers_run=run, scale=layers / run, take=self._take, details=self._details)

    def take(self, count: int) -> Taken:
        """Time `count` iterations of every part; they add up one by one."""
        share = self._asked.layers_run / self._case.variant.layers
        times = [0.0] * count
        for problem, timer in zip(self._asked.problems, self._timers, strict=True):
            fresh = timer(count)
            times = [sum_ + problem.part.scale * share * one for sum_, one in zip(times, fresh, strict=True)]
        return Taken(tuple(times))

    def op_times(self) -> list[OpTime]:
        """None: layers are one piece."""
        return []

    def close(self) -> None:
        """Let go of caches and graphs; layers stay for the other arms."""
        self._timers.clear()


class LayerRunner:
    """Makes the arms of one engine, which share layers or, by the command, a process."""

    def __init__(self, settings: EngineSettings, features: Features, options: Options) -> None:
        self._settings, self._features, self._options = settings, features, options
        self._module: LayerModule | None = None
        self._commands: dict[tuple[int, int | None], LayerCommand] = {}

    def arm(self, case: Case) -> LayerArm:
        """Return the arm of a case. Raises CannotAnswer where the runner is not there, or cannot be asked."""
        architecture = self._settings.engine.manifest.architecture
        asked = layer_case(case, sequences_of(case), self._options, architecture)
        in_process = self._features.layer_wise and asked.ranks == 1 and asked.scaled_from is None
        if in_process:
            module = self._module = self._module or LayerModule(self._settings, self._features, self._moe_backend(case))
            timers = [module.prepare(problem) for problem in asked.problems]
            return LayerArm(case, asked, timers, MODULE_TAKE, self._details(case, asked, "in process", module.tuned))
        command = self._command(case, asked)
        for problem in asked.problems:
            command.expect(problem)
        timers = [_by_command(command, problem) for problem in asked.problems]
        return LayerArm(case, asked, timers, COMMAND_TAKE, self._details(case, asked, "command of a checkout", True))

    def close(self) -> None:
        """Let go of the layers."""
        self._module = None
        self._commands.clear()

    def _command(self, case: Case, asked: LayerCase) -> LayerCommand:
        checkout = self._options.layerwise_checkout
        if checkout is None:
            why = f"{asked.ranks} ranks" if self._features.layer_wise else "a release without the layer-wise runner"
            why = "--scaled-from" if asked.scaled_from else why
            raise CannotAnswer(
                f"level layer with {why} needs --backend-option layerwise_checkout=PATH, a checkout of TensorRT-LLM "
                f"{self._features.version}"
            )
        key = (asked.ranks, asked.scaled_from)
        if key not in self._commands:
            self._commands[key] = LayerCommand(self._settings, Path(checkout), self._moe_backend(case), *key)
        return self._commands[key]

    def _moe_backend(self, case: Case) -> str:
        """Kernels of experts by name: the runner replaces the routing of named ones only."""
        named = str(self._settings.part("moe_config").get("backend", "CUTLASS"))
        if named != "AUTO":
            return named
        # What AUTO means (tensorrt_llm/_torch/model_config.py at 008e0af): FP8 blocks on Blackwell are TRTLLM's.
        blocks = case.variant.weights.experts == "fp8_block" and self._features.gpus[0].sm >= _BLACKWELL
        return "TRTLLM" if blocks else "CUTLASS"

    def _details(self, case: Case, asked: LayerCase, how: str, tuned: bool) -> dict[str, Scalar]:
        parts = list(dict.fromkeys(problem.part for problem in asked.problems))
        details: dict[str, Scalar] = {
            "step_time_source": "CUDA events" if how == "in process" else f"median of {RUN_TIMES} iterations",
            "layer_runner": how,
            "settings": self._settings.name,
            "layer_numbers": "; ".join(f"{part.layers[0]}-{part.layers[-1]} for {part.of}" for part in parts),
            "batch_per_rank": asked.problems[0].batch,
            "ranks": asked.ranks,
            "query_length": asked.problems[0].query,
            "kv_length_mean": case.workload.kvsl if hasattr(case.workload, "kvsl") else 0,
            "autotuner": tuned,
            "architecture_adds": "; ".join(self._settings.engine.manifest.notes),
        }
        if asked.scaled_from:
            details["scaled_from"] = asked.scaled_from
        if case.variant.experts:
            routed = parts[-1]
            details["moe_backend"] = self._moe_backend(case)
            details["balance"] = routed.balance_method
            if routed.balance_ratio is not None:
                details["balance_ratio"] = routed.balance_ratio
        return details


_BLACKWELL = 100


def _by_command(command: LayerCommand, problem: Problem) -> Timer:
    return lambda count: command.times_ms(problem, count)
