"""What a name or path on the command line stands for, where a command takes variants, studies and suites alike."""

from __future__ import annotations

from harness import catalog
from harness.errors import UsageError
from harness.files import read_yaml


def is_variant(what: str) -> bool:
    """Whether a name or path is that of a variant; raise UsageError where it is of nothing."""
    if what.endswith((".yaml", ".yml")):
        data = read_yaml(what)
        return isinstance(data, dict) and "hidden" in data
    if catalog.has("variants", what):
        return True
    if catalog.has("studies", what) or catalog.has("suites", what):
        return False
    if catalog.is_model_folder(what):
        return True
    kinds: tuple[catalog.Kind, ...] = ("variants", "studies", "suites")
    known = "; ".join(f"{kind}: {', '.join(catalog.names(kind)) or 'none'}" for kind in kinds)
    raise UsageError(f"no variant, study or suite is called '{what}'; known {known}")
