"""What `harness/data/hf_architectures.yaml` knows about Hugging Face model types: how their layers are built."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from harness.errors import UsageError
from harness.files import read_yaml
from harness.spec.base import Spec, parse

ARCHITECTURES_FILE = Path(__file__).resolve().parents[2] / "data" / "hf_architectures.yaml"


class Architecture(Spec):
    """One `model_type`: what its `config.json` does not say."""

    gated: bool = True
    expert_size: str = ""
    """The field with an expert's inner size; dense where empty."""
    mla: bool = False
    window: Literal["", "all", "late", "pattern"] = ""
    """Which layers `sliding_window` is for, where `layer_types` does not say."""
    fill: dict[str, Any] = {}
    """What the configuration class fills in where a field is absent."""
    requires: tuple[str, ...] = ()
    refused: str = ""
    """Why no variant can be made of it."""
    source: str


class _File(Spec):
    read: str
    architectures: dict[str, Architecture]
    features: dict[str, str]


def find_architecture(config: dict[str, Any], where: str) -> Architecture:
    """Return what is known of a configuration's `model_type`.

    Raises UsageError with every reason why its layers are none that a variant has, or where nothing is known of it.
    """
    known, model_type = _known(), config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise UsageError(f"{where}: model_type is missing, and it says how the layers are built")
    architecture = known.architectures.get(model_type)
    if architecture and architecture.refused:
        raise UsageError(f"{where}: model_type is {model_type}: {architecture.refused}; a variant cannot say so")
    features = [field for field in known.features if config.get(field)]
    if features:
        reasons = (f"{field} is {_short(config[field])}: {known.features[field]}" for field in features)
        raise UsageError(*(f"{where}: {reason}; a variant cannot say so" for reason in reasons))
    if architecture is None:
        readable = sorted(name for name, one in known.architectures.items() if not one.refused)
        raise UsageError(
            f"{where}: how the layers of model_type '{model_type}' are built is not known here; known: "
            f"{', '.join(readable)}. A variant in YAML can describe them; `variants show` shows its fields"
        )
    return architecture


@lru_cache(maxsize=1)
def _known() -> _File:
    return parse(_File, read_yaml(ARCHITECTURES_FILE), str(ARCHITECTURES_FILE))


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
