"""The manifest of an engine: what it is, what it was made from, what a person or a run may rely on.

Parameters, weight bytes and KV bytes are the cost model's (`harness.cost`), so that report and engine never disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.cost.kv_cache import kv_bytes_per_token
from harness.cost.parameters import parameter_count
from harness.cost.weights import rank_weights
from harness.engines.sealed import FileEntry, Seal, read_seal
from harness.spec.base import Spec
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

WeightsMode = Literal["none", "modelopt"]


class WeightsOrigin(Spec):
    """Where the weights come from. Mode `none`: there are none, TensorRT-LLM makes them up (`load_format: dummy`)."""

    mode: WeightsMode
    seed: int | None = None
    versions: dict[str, str] = {}
    """Package → version of those that decide the bytes, and of the recipe."""
    details: dict[str, Any] = {}
    """What the writer says about how they were made."""

    @property
    def text(self) -> str:
        """One line."""
        if self.mode == "none":
            return "none; TensorRT-LLM fills every parameter with random values (load_format: dummy)"
        made_by = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        how = "quantised by NVIDIA Model Optimizer" if "nvidia-modelopt" in self.versions else "bf16"
        return f"synthetic, seed {self.seed}, {how} ({made_by})"


class Figures(Spec):
    """Sizes from the cost model."""

    parameters: int
    weight_bytes: float
    """Bytes that one GPU holds when it holds the whole model (tp 1)."""
    kv_bytes_per_token: float
    """Bytes that the first token of a sequence adds on one GPU (tp 1)."""

    @classmethod
    def of(cls, variant: Variant) -> Figures:
        """The figures of a variant on one GPU."""
        return cls(
            parameters=parameter_count(variant),
            weight_bytes=rank_weights(variant, Parallelism()).total_bytes,
            kv_bytes_per_token=kv_bytes_per_token(variant),
        )


class Manifest(Seal):
    """`manifest.json` of an engine."""

    variant: Variant
    architecture: str
    """`architectures[0]` of config.json: the model class that TensorRT-LLM takes."""
    weights: WeightsOrigin
    figures: Figures
    notes: tuple[str, ...] = ()
    """What was decided while the files were made, for example another architecture than the usual one."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine in a store or elsewhere: the folder that TensorRT-LLM is given, and its manifest."""

    path: Path
    manifest: Manifest

    @property
    def key(self) -> str:
        """The name of the engine: a hash of everything that decides its content."""
        return self.manifest.key


def read_engine(folder: Path) -> Engine:
    """Read the engine in `folder` without looking at its files.

    Raises UsageError where there is none, UnreadableInput where the manifest is damaged.
    """
    return Engine(folder, read_seal(folder, Manifest))


def engine_variant(variant: Variant) -> Variant:
    """What of a variant an engine holds: not its name, nor the arithmetic of prefill attention, which is the run's."""
    plain = Variant.model_fields
    return variant.model_copy(update={field: plain[field].default for field in ("name", "attn_format")})


def describe(
    key: str,
    inputs: Mapping[str, Any],
    variant: Variant,
    architecture: str,
    weights: WeightsOrigin,
    notes: tuple[str, ...],
    entries: tuple[FileEntry, ...],
) -> Manifest:
    """Return the manifest of an engine with these files, built now."""
    return Manifest(
        key=key,
        inputs=dict(inputs),
        files=entries,
        variant=variant,
        architecture=architecture,
        weights=weights,
        figures=Figures.of(variant),
        notes=notes,
    )
