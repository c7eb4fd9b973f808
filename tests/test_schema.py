"""The JSON Schemas in `model_configs/schemas` are those of the models, and accept what we ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import REPOSITORY

from harness.files import read_yaml
from harness.spec.schema import KINDS, schema_text

CONFIGS = REPOSITORY / "model_configs"
FOLDERS = {"variant": "variants", "study": "studies", "suite": "suites"}
SHIPPED = [(kind, path) for kind, folder in FOLDERS.items() for path in sorted((CONFIGS / folder).glob("*.yaml"))]


def meaning(schema: Any) -> Any:
    """A schema without what pydantic's releases spell differently."""
    if isinstance(schema, list):
        return [meaning(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: meaning(value) for key, value in schema.items() if (key, value) != ("additionalProperties", True)}
    if "const" in kept:
        kept.pop("enum", None)
        kept.pop("type", None)
    return kept


@pytest.mark.parametrize("kind", KINDS)
def test_the_committed_schema_is_the_generated_one(kind: str) -> None:
    """`make schemas` brings it up to date."""
    committed = json.loads((CONFIGS / "schemas" / f"{kind}.schema.json").read_text())
    assert meaning(committed) == meaning(json.loads(schema_text(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_a_schema(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(schema_text(kind)))


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda value: value.stem if isinstance(value, Path) else value)
def test_what_we_ship_is_valid(kind: str, path: Path) -> None:
    jsonschema.validate(read_yaml(path), json.loads(schema_text(kind)))


def test_a_misspelt_key_is_invalid() -> None:
    with pytest.raises(jsonschema.ValidationError, match="axs"):
        jsonschema.validate({"title": "t", "variant": "v", "axs": {}}, json.loads(schema_text("study")))
