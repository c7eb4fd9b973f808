"""Everything that decides the content of an engine, put together from a variant before anything is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

from harness.engines.manifest import WeightsMode, WeightsOrigin, engine_variant
from harness.engines.sealed import SCHEMA_VERSION, key_of
from harness.spec.variant import Variant

CONFIG_FILE = "config.json"
QUANT_FILE = "hf_quant_config.json"
GENERATION_FILE = "generation_config.json"


class Progress(Protocol):
    """Told how far a long step is: `done` of `total` steps, and what comes next."""

    def __call__(self, done: int, total: int, what: str) -> None: ...


def no_progress(done: int, total: int, what: str) -> None:
    """A Progress that says nothing."""


@dataclass(frozen=True)
class WeightsJob:
    """How the weights of an engine are written, and what that takes."""

    seed: int
    versions: Mapping[str, str]
    """Package → version, of those that decide the bytes."""
    disk_bytes: int
    memory_bytes: int
    write: Callable[[Path, Progress], Mapping[str, Any]]
    """Writes into a folder, going on where an earlier try with the same inputs ended; returns how it was done."""


@dataclass(frozen=True)
class EngineSpec:
    """One engine to build. Two specs with the same `key` give the same files, byte for byte."""

    variant: Variant
    architecture: str
    files: Mapping[str, str]
    """Name → text of every file but the weights."""
    notes: tuple[str, ...] = ()
    weights: WeightsJob | None = None
    origin: WeightsOrigin = field(default=WeightsOrigin(mode="none"))

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """What the key is made of: the shape, the text of the files, where the weights come from."""
        return {
            "schema": SCHEMA_VERSION,
            "variant": self.variant.model_dump(mode="json", exclude={"name"}, exclude_defaults=True),
            "architecture": self.architecture,
            "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.files.items()},
            "weights": self.origin.model_dump(mode="json", exclude={"details"}, exclude_defaults=True),
        }

    @cached_property
    def key(self) -> str:
        """The name of the engine."""
        return key_of(self.inputs)

    @property
    def disk_bytes(self) -> int:
        """About how much it will take."""
        return sum(len(text.encode()) for text in self.files.values()) + (
            self.weights.disk_bytes if self.weights else 0
        )


def engine_spec(
    variant: Variant,
    *,
    architecture: str | None = None,
    weights: WeightsMode = "none",
    seed: int = 0,
    longest: int = 0,
) -> EngineSpec:
    """Put together the engine of a variant.

    `architecture` names the model class, by default the one that the variant needs; `longest` is the longest sequence
    in tokens that the engine must take. Raises UsageError with every reason why the variant cannot be such a model, and
    MissingExtra where `weights` need a package that is not there.
    """
    from harness.engines.hf_config import hf_config
    from harness.engines.quantization import quant_files

    model = hf_config(variant, architecture, max_positions=positions(longest))
    quant = quant_files(variant, model.architecture)
    config = dict(model.config)
    if quant.quantization_config is not None:
        config["quantization_config"] = quant.quantization_config
    texts = {CONFIG_FILE: _json(config), GENERATION_FILE: _json(_generation(config)), **_tokenizer(variant.vocab)}
    if quant.hf_quant_config is not None:
        texts[QUANT_FILE] = _json(quant.hf_quant_config)
    job, origin = None, WeightsOrigin(mode="none")
    if weights == "modelopt":
        job = _weights_job(config, quant.hf_quant_config, seed)
        origin = WeightsOrigin(mode="modelopt", seed=seed, versions=dict(job.versions))
    notes = tuple(dict.fromkeys((*model.notes, *quant.notes)))
    return EngineSpec(engine_variant(variant), model.architecture, texts, notes, job, origin)


def _weights_job(config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None, seed: int) -> WeightsJob:
    from harness.engines.weights import estimate, required_packages, write_weights
    from harness.engines.weights_build import RECIPE

    plan = estimate(config, hf_quant_config)
    versions = {"recipe": str(RECIPE), **required_packages(hf_quant_config)}

    def write(folder: Path, progress: Progress) -> Mapping[str, Any]:
        return write_weights(config, hf_quant_config, folder, seed, progress)

    return WeightsJob(seed, versions, plan.disk_bytes, plan.memory_bytes, write)


def positions(longest: int) -> int:
    """Positions of the model: the usual number, so that most workloads share an engine, else the next power of two."""
    from harness.engines.hf_config import MAX_POSITIONS

    return MAX_POSITIONS if longest <= MAX_POSITIONS else 1 << (longest - 1).bit_length()


def _generation(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id") if name in config}


@lru_cache(maxsize=8)
def _tokenizer(vocab_size: int) -> Mapping[str, str]:
    from harness.engines.tokenizer import tokenizer_files

    return tokenizer_files(vocab_size)


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=2, allow_nan=False) + "\n"
