"""Model folders of Hugging Face for tests: shapes of published models, changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.spec.load import load_variant
from harness.spec.variant import Variant

CONFIGS = Path(__file__).parent / "configs"
NAMES = sorted(folder.name for folder in CONFIGS.iterdir() if folder.is_dir())

#: gpt-oss has its experts in MXFP4, which no variant has, so something has to be assumed.
SETTLED = {"gpt-oss-120b": ["weights.experts=nvfp4"]}

#: Takes a field away.
ABSENT = object()


def published(name: str) -> Variant:
    """A published shape, with what has to be assumed."""
    return load_variant(CONFIGS / name, SETTLED.get(name, []))


class Folders:
    """Writes model folders: the config.json of a published shape, changed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, base: str, quant: Any = None, text: dict[str, Any] | None = None, **changes: Any) -> Path:
        """Write a folder; `quant` is its hf_quant_config.json, `text` changes its text_config."""
        config = json.loads((CONFIGS / base / "config.json").read_text())
        for data, change in ((config, changes), (config.get("text_config", {}), text or {})):
            data.update(change)
            for name in [name for name, value in data.items() if value is ABSENT]:
                del data[name]
        path = self._root / base
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))
        if quant is not None:
            (path / "hf_quant_config.json").write_text(json.dumps(quant))
        return path


def problems(path: Path, *sets: str) -> list[str]:
    """What is said of a folder, its files named without the folder."""
    with pytest.raises(UsageError) as error:
        load_variant(path, sets)
    return [finding.replace(f"{path}/", "") for finding in error.value.findings]
