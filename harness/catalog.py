"""Find variants, studies and suites by name or path.

A name is looked up in `model_configs/` of the working directory, then in the copy that ships with the package. A
variant may also be a model folder of Hugging Face; a known name comes before a folder that is called so.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from harness.errors import UsageError
from harness.files import checked_path

Kind = Literal["variants", "studies", "suites"]

#: The file that makes a folder a model folder.
MODEL_CONFIG = "config.json"

_PACKAGE = Path(__file__).resolve().parent
#: The wheel carries `model_configs/` inside the package; a checkout has it beside the package.
_SHIPPED = (_PACKAGE / "model_configs", _PACKAGE.parent / "model_configs")


def find(kind: Kind, name_or_path: str | Path) -> Path:
    """Return the YAML file of a variant, study or suite; raise UsageError naming the known ones.

    For a model folder of Hugging Face it is the `config.json`.
    """
    path = checked_path(name_or_path)
    if kind == "variants" and is_model_folder(name_or_path):
        return path if path.is_file() else path / MODEL_CONFIG
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        if path.is_file():
            return path
        raise UsageError(f"{path}: no such file")
    for folder in _folders(kind):
        candidate = folder / checked_path(f"{name_or_path}.yaml")
        if candidate.is_file():
            return candidate
    known = names(kind)
    close = difflib.get_close_matches(str(name_or_path), known, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise UsageError(f"no {kind} entry is called '{name_or_path}'; {hint}known: {', '.join(known) or 'none'}")


def has(kind: Kind, name: str) -> bool:
    """Whether a name (not a path) is known."""
    return name in names(kind)


def is_model_folder(name_or_path: str | Path) -> bool:
    """Whether this is a model folder of Hugging Face, or its config.json; raise UsageError for a folder without one."""
    path = checked_path(name_or_path)
    if path.name == MODEL_CONFIG:
        return path.is_file()
    if not path.is_dir() or has("variants", str(name_or_path)):
        return False
    if not (path / MODEL_CONFIG).is_file():
        raise UsageError(f"{path}: a folder without {MODEL_CONFIG} is no model folder")
    return True


def names(kind: Kind) -> list[str]:
    """Every known name of one kind, sorted."""
    return sorted({path.stem for folder in _folders(kind) for path in folder.glob("*.yaml")})


def _folders(kind: Kind) -> Iterator[Path]:
    for root in (Path("model_configs"), *_SHIPPED):
        if (root / kind).is_dir():
            yield root / kind
