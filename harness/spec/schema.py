"""JSON Schemas of the YAML kinds, for editors. `python -m harness.spec.schema` writes them to `model_configs/schemas/`.

Put `# yaml-language-server: $schema=../schemas/study.schema.json` on top of a file and the editor checks it.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from harness import files
from harness.spec.study import Study, Suite
from harness.spec.variant import Variant

#: File name → model.
KINDS: dict[str, type[BaseModel]] = {"variant": Variant, "study": Study, "suite": Suite}

FOLDER = Path("model_configs/schemas")


def schema_text(kind: str) -> str:
    """The JSON Schema of one kind of YAML file, as committed. `name` may be left out: it is the file's name."""
    schema = KINDS[kind].model_json_schema(mode="validation")
    schema["$schema"] = GenerateJsonSchema.schema_dialect
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name != "name"]
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def write_schemas(folder: Path = FOLDER) -> list[Path]:
    """Write every schema; return the files."""
    paths = []
    for kind in KINDS:
        paths.append(folder / f"{kind}.schema.json")
        files.write_atomic(paths[-1], schema_text(kind))
    return paths


if __name__ == "__main__":
    for path in write_schemas():
        print(path)  # noqa: T201
