"""An engine with the settings of one group of its workloads, as `trtllm-harness build` laid them down.

STORE/KEY/llm_args/NAME/   llm_args.yaml with paths relative to it, environment.json
STORE/KEY/engine/          the model
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.features import Features
from harness.engines.manifest import Engine, read_engine
from harness.engines.settings import ARGS_FILE, read_settings
from harness.errors import UsageError

#: Fields whose values are paths relative to the folder.
_PATHS = (("moe_config", "load_balancer"),)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an LLM instance is opened with."""

    folder: Path
    engine: Engine
    fields: Mapping[str, Any]
    """As `TorchLlmArgs` takes them, with whole paths; without `model`."""
    environment: Mapping[str, str]
    """Variables that TensorRT-LLM reads when it is imported or starts."""

    @property
    def name(self) -> str:
        """Engine and settings, as they are called in the store."""
        return f"{self.engine.key}/{self.folder.name}"

    @property
    def overlaps(self) -> bool:
        """Whether the scheduler overlaps iterations, which is TensorRT-LLM's default."""
        return not self.fields.get("disable_overlap_scheduler", False)

    def part(self, name: str) -> Mapping[str, Any]:
        """A config within the settings; empty where there is none."""
        found = self.fields.get(name)
        return found if isinstance(found, Mapping) else {}

    def with_fields(self, **changes: Any) -> EngineSettings:
        """The same with other fields."""
        return replace(self, fields={**self.fields, **changes})


def read_settings_folder(folder: Path) -> EngineSettings:
    """Read a folder of settings and the manifest of its engine, STORE/KEY/engine.

    Raises UsageError where it is no such folder, UnreadableInput for damaged files.
    """
    if not (folder / ARGS_FILE).is_file():
        raise UsageError(
            f"{folder}: no {ARGS_FILE} there; give the folder of settings of an engine, STORE/KEY/llm_args/NAME, as "
            "`trtllm-harness build` makes it"
        )
    folder = folder.resolve()
    settings = read_settings(folder)
    engine = read_engine(folder.parents[1] / "engine")
    environment = {str(name): str(value) for name, value in settings["environment"].items()}
    return EngineSettings(folder, engine, _with_whole_paths(folder, settings["fields"]), environment)


def check_fields_exist(settings: EngineSettings, features: Features) -> None:
    """Raise CannotAnswer that names every field, at any level, and every value that this TensorRT-LLM does not take."""
    # A null asks for nothing, but for CUDA graphs, which it turns off.
    fields = {
        name: value for name, value in settings.fields.items() if value is not None or name == "cuda_graph_config"
    }
    findings = features.misfits(fields)
    if findings:
        raise CannotAnswer(
            f"settings {settings.name} are not for TensorRT-LLM {features.version}: {'; '.join(findings)} "
            f"(`trtllm-harness build --trtllm-version {features.version}` makes settings for it)"
        )


def _with_whole_paths(folder: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(fields)
    for config, name in _PATHS:
        found = whole.get(config)
        if isinstance(found, Mapping) and isinstance(found.get(name), str):
            whole[config] = {**found, name: str(folder / found[name])}
    return whole
