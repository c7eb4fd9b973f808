"""What the TensorRT-LLM that is installed can do. Whoever drives it asks this, and never its version alone.

`glance()` imports nothing; `detect()` imports TensorRT-LLM, which takes long and may need a driver.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import shutil
import subprocess
import typing
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from harness.backends.trtllm.machine import Gpu, Machine, look
from harness.errors import MissingExtra

PACKAGE = "tensorrt_llm"
#: Commands whose `--help` says what they take. trtllm-build is that of the engine backend.
COMMANDS = ("trtllm-bench", "trtllm-serve", "trtllm-build")
#: The runner of single layers: older releases name it in the package's __init__, newer ones only here.
LAYER_WISE = f"{PACKAGE}.tools.layer_wise_benchmarks"

#: Levels of configs within configs.
_DEPTH = 3
_HELP_S = 120.0


@dataclass(frozen=True, slots=True)
class Glance:
    """What can be known without importing TensorRT-LLM."""

    installed: bool
    version: str = ""
    """Empty where the installation does not tell."""
    is_double: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class Features:
    """What this TensorRT-LLM has."""

    version: str
    is_double: bool
    settings: Mapping[str, tuple[str, ...]]
    """Dotted path of each field of `TorchLlmArgs` and the configs in it → values that it takes; none: anything."""
    layer_wise: bool
    """Whether the runner of single layers can be imported."""
    engine_backend: bool
    machine: Machine
    commands: Mapping[str, str] = field(default_factory=dict)
    """Command → its `--help`; only what was asked for and is there."""

    @property
    def moe_backends(self) -> tuple[str, ...]:
        """Names that `moe_config.backend` takes."""
        return self.settings.get("moe_config.backend", ())

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """GPUs in order of their index."""
        return self.machine.gpus

    def has(self, path: str) -> bool:
        """Whether there is a setting of this dotted path, or it lies in one that takes any mapping."""
        parts = path.split(".")
        return path in self.settings or any(f"{'.'.join(parts[:i])}.*" in self.settings for i in range(1, len(parts)))

    def misfits(self, fields: Mapping[str, Any]) -> list[str]:
        """Return what of these settings is not there, and each value that is not taken: one sentence each."""
        return [finding for path, value in _leaves(fields) if (finding := self._misfit(path, value))]

    def _misfit(self, path: str, value: Any) -> str:
        if not self.has(path):
            close = difflib.get_close_matches(path, self.settings, n=1)
            hint = f"; did it become '{close[0]}'?" if close else ""
            return f"{path}: TensorRT-LLM {self.version} has no such setting{hint}"
        taken = self.settings.get(path, ())
        if taken and value is not None and str(value) not in taken:
            return f"{path}: TensorRT-LLM {self.version} takes {', '.join(taken)}, not {value}"
        return ""

    def to_data(self) -> dict[str, Any]:
        """Plain data, to be stored with a run."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Features:
        """What `to_data` made, also after JSON; raises TypeError or KeyError for anything else."""
        machine = {**data["machine"], "gpus": tuple(Gpu(**gpu) for gpu in data["machine"]["gpus"])}
        settings = {path: tuple(values) for path, values in data["settings"].items()}
        return cls(**{**data, "settings": settings, "machine": Machine(**machine)})


def glance() -> Glance:
    """Say whether TensorRT-LLM is installed, without importing it."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return Glance(False)
    try:
        version = metadata.version("tensorrt-llm")
    except metadata.PackageNotFoundError:
        version = ""
    return Glance(True, version, "__double__" in _head(Path(spec.origin)), str(Path(spec.origin).parent))


def detect(*, probe_commands: bool = False) -> Features:
    """Import TensorRT-LLM and find out what it has; with `probe_commands` also what its commands take.

    Raises MissingExtra where it is not installed; what its import raises goes through.
    """
    if not glance().installed:
        raise MissingExtra("trtllm", "a run on TensorRT-LLM", "or the container, see docs/gpu-node.md")
    package = importlib.import_module(PACKAGE)
    is_double = bool(getattr(package, "__double__", False))
    # No public module has had the class in every release.
    arguments = importlib.import_module(f"{PACKAGE}.llmapi.llm_args").TorchLlmArgs
    return Features(
        version=str(package.__version__),
        is_double=is_double,
        settings=dict(_settings(arguments.model_fields)),
        layer_wise=_imports(f"{LAYER_WISE}.runner") or _has_runner(),
        engine_backend=importlib.util.find_spec(f"{PACKAGE}._tensorrt_engine") is not None,
        machine=_double_machine() if is_double else look(),
        commands=_helps() if probe_commands else {},
    )


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(4096)
    except OSError:
        return ""


def _settings(fields: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Paths and what they take; of a union every member speaks."""
    found: dict[str, tuple[str, ...]] = {}
    for name, info in fields.items():
        path = f"{prefix}{name}"
        found[path] = tuple(map(str, _literals(info.annotation)))
        if _takes_any_mapping(info.annotation):
            found[f"{path}.*"] = ()
        for model in _models(info.annotation) if depth < _DEPTH else ():
            for inner, values in _settings(model.model_fields, f"{path}.", depth + 1):
                found[inner] = tuple(dict.fromkeys((*found.get(inner, ()), *values)))
    yield from found.items()


def _models(annotation: Any) -> list[Any]:
    if inspect.isclass(annotation) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for one in typing.get_args(annotation) for model in _models(one)]


def _literals(annotation: Any) -> list[Any]:
    """Values of a Literal, alone, optional or annotated; empty for every other type."""
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return list(typing.get_args(annotation))
    if origin is typing.Annotated:
        return _literals(typing.get_args(annotation)[0])
    if origin in {typing.Union, UnionType}:
        members = [one for one in typing.get_args(annotation) if one is not NoneType]
        return _literals(members[0]) if len(members) == 1 else []
    return []


def _takes_any_mapping(annotation: Any) -> bool:
    members = [annotation, *typing.get_args(annotation)]
    return any(one is Any or one is dict or typing.get_origin(one) is dict for one in members)


def _leaves(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _imports(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def _has_runner() -> bool:
    try:
        package = importlib.import_module(LAYER_WISE)
    except ImportError:
        return False
    return hasattr(package, "Runner") or hasattr(package, "get_runner_cls")


def _helps() -> dict[str, str]:
    found = {}
    for command in COMMANDS:
        if shutil.which(command) is None:
            continue
        try:
            done = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=_HELP_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            found[command] = done.stdout
    return found


def _double_machine() -> Machine:
    """The machine that a test double pretends to be."""
    from harness.hardware import load_system, match_device_name

    double = importlib.import_module(f"{PACKAGE}._double")
    name = str(double.gpu_name())
    system = match_device_name(name) or load_system(name)
    gpu = Gpu(
        name, system.sm, system.memory_bytes / 2**30, nvlinks=int(system.nvlink_bandwidth_bytes_per_s is not None)
    )
    here = look()
    return Machine(
        gpus=(gpu,) * int(double.gpu_count()),
        driver="double",
        shared_memory_gib=here.shared_memory_gib,
        mpirun=here.mpirun,
        mpi4py=here.mpi4py,
        rank_variable=here.rank_variable,
        in_container=here.in_container,
    )
