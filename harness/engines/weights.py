"""Weights of an engine: seeded random values, quantised by NVIDIA Model Optimizer, written layer by layer.

Each layer is made, calibrated on the hidden states that the layers before it make of a few random tokens, quantised,
exported and let go of, so that one is in memory at a time. Scales are those of calibrating the whole model on these
tokens. A killed build goes on behind the last finished layer and writes the same bytes as one that was not.

Weights are the same on every machine. Scales of inputs and of the KV cache come from a forward pass in bf16, whose last
bits depend on the processor; `processor` in the provenance says on which it ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.engines.module_formats import ModuleFormats
from harness.engines.safetensors_shards import INDEX_FILE
from harness.engines.weights_build import STATE_VALUES, WeightsBuild
from harness.engines.weights_layout import Config, Tensor, format_of, layer_tensors, stored_model
from harness.engines.weights_packages import check_packages, fitting_threads, import_packages

#: Python with torch, transformers and Model Optimizer, and what it takes while a small layer is made: 0.75 GB measured.
_BASE_MEMORY_BYTES = 900_000_000
#: Memory in bytes for each value of the largest matrix beside the layer in bf16: while its largest value is looked for,
#: which is the peak, since packing is done in slices (`harness.engines.weights_slices`). Measured with torch 2.13.0 and
#: Model Optimizer 0.47.0 on matrices of 0.23e9 values 1.9, 5.0 and 1.5, on one of 0.47e9 1.2 (NVFP4).
_WORK_BYTES = {"bf16": 0.0, "fp8": 3.0, "fp8_block": 5.5, "nvfp4": 3.0}
#: Of one tensor in a file's header and in the index, beside its name.
_HEADER_BYTES = 160

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class WeightsPlan:
    """What weights take, known before they are made."""

    steps: int
    """Files: the embedding, each layer, lm_head, and scales of the KV cache where it has some."""
    weight_bytes: int
    """Bytes of all tensors."""
    disk_bytes: int
    """Most that is on disk at any time."""
    memory_bytes: int
    """Most memory at any time, Python and its packages included."""


def estimate(config: Config, hf_quant_config: Mapping[str, Any] | None) -> WeightsPlan:
    """Return what the weights of a model take: `config` is its config.json, and the other file says its formats."""
    formats = ModuleFormats.read(hf_quant_config)
    steps = stored_model(config, formats)
    tensors = [one for step in steps for one in step]
    weights = sum(one.bytes for one in tensors)
    headers = sum(2 * len(one.name) + _HEADER_BYTES for one in tensors)
    states = 2 * 2 * STATE_VALUES * config["hidden_size"]
    first, last = 0, config["num_hidden_layers"] - 1  # one of each kind: with and without experts
    return WeightsPlan(
        steps=len(steps),
        weight_bytes=weights,
        disk_bytes=weights + headers + states + (1 << 20),
        memory_bytes=max(_layer_memory(layer_tensors(config, layer), formats) for layer in (first, last)),
    )


def required_packages(hf_quant_config: Mapping[str, Any] | None) -> dict[str, str]:
    """Return package → version of those that decide the bytes of weights; none is imported.

    Raises MissingExtra where one is not installed, EnvironmentUnfit where its version cannot do it.
    """
    return check_packages(ModuleFormats.read(hf_quant_config))


def write_weights(
    config: Config,
    hf_quant_config: Mapping[str, Any] | None,
    folder: Path,
    seed: int,
    progress: Progress = lambda _done, _total, _what: None,
    *,
    resume: bool = True,
) -> dict[str, Any]:
    """Write the weights of a model into `folder` and return how they were made (plain JSON data).

    `config` is its config.json, `hf_quant_config` that file or None; `progress` is told steps done, steps in all and
    what comes next. What an earlier call with the same arguments finished is kept, unless `resume` is false; it is
    known by hidden files, which may be removed afterwards. Raises as `required_packages` does, UsageError where a shape
    has no such format, and EnvironmentUnfit where the disk is full.
    """
    required_packages(hf_quant_config)
    import_packages(ModuleFormats.read(hf_quant_config))
    build = WeightsBuild(config, hf_quant_config, folder, seed)
    build.start(resume)
    with fitting_threads(max(tensor.values for tensor in layer_tensors(config, config["num_hidden_layers"] - 1))):
        for step in range(build.finished, build.steps):
            progress(step, build.steps, build.name_of(step))
            build.write(step)
        progress(build.steps, build.steps, INDEX_FILE)
        return build.finish()


def _layer_memory(tensors: list[Tensor], formats: ModuleFormats) -> int:
    """Most memory while a layer is made: all of it in bf16, and what quantising the largest matrix takes."""
    work = max(_WORK_BYTES[format_of(tensor, formats)] * tensor.values for tensor in tensors)
    return _BASE_MEMORY_BYTES + sum(tensor.bf16_bytes for tensor in tensors) + round(work)
