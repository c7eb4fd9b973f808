"""Find variants, studies and suites by name or path.

A name is looked up in `model_configs/` of the working directory, then in the copy that ships with the package.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from harness.errors import UsageError

Kind = Literal["variants", "studies", "suites"]

_PACKAGE = Path(__file__).resolve().parent
#: The wheel carries `model_configs/` inside the package; a checkout has it beside the package.
_SHIPPED = (_PACKAGE / "model_configs", _PACKAGE.parent / "model_configs")


def find(kind: Kind, name_or_path: str | Path) -> Path:
    """Return the YAML file of a variant, study or suite; raise UsageError naming the known ones."""
    path = Path(name_or_path)
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        if path.is_file():
            return path
        raise UsageError(f"{path}: no such file")
    for folder in _folders(kind):
        candidate = folder / f"{name_or_path}.yaml"
        if candidate.is_file():
            return candidate
    known = names(kind)
    close = difflib.get_close_matches(str(name_or_path), known, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise UsageError(f"no {kind} entry is called '{name_or_path}'; {hint}known: {', '.join(known) or 'none'}")


def has(kind: Kind, name: str) -> bool:
    """Whether a name (not a path) is known."""
    return name in names(kind)


def names(kind: Kind) -> list[str]:
    """Every known name of one kind, sorted."""
    return sorted({path.stem for folder in _folders(kind) for path in folder.glob("*.yaml")})


def _folders(kind: Kind) -> Iterator[Path]:
    for root in (Path("model_configs"), *_SHIPPED):
        if (root / kind).is_dir():
            yield root / kind
