"""The base of every YAML-backed model: frozen, no unknown keys, and errors that name file, field and value."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from harness.errors import UsageError


class Spec(BaseModel):
    """A frozen value object read from YAML; a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def to_yaml_data(self) -> dict[str, Any]:
        """Plain data that reads back to an equal object: only what differs from the defaults."""
        return self.model_dump(mode="json", exclude_defaults=True, by_alias=True)


class AlsoOne:
    """Annotates a field whose validator also takes one bare value, so that its JSON Schema says so too."""

    def __init__(self, *json_types: str) -> None:
        self.json_types = json_types

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """One value of a plain type, or what the field's own type says."""
        return {"anyOf": [{"type": list(self.json_types)}, handler(core_schema)]}


#: Kinds of values as YAML calls them.
_KINDS = {
    "dict_type": "Input should be a mapping",
    "model_type": "Input should be a mapping of fields",
    "tuple_type": "Input should be a list",
    "model_attributes_type": "Input should be a mapping of fields",
}

#: Characters of a wrong value that a message shows.
_SHOWN = 80

SpecT = TypeVar("SpecT", bound=BaseModel)


def parse(model: type[SpecT], data: object, where: str) -> SpecT:
    """Validate `data` as `model`; raise UsageError with every finding, each naming `where`, field and value."""
    if not isinstance(data, Mapping):
        raise UsageError(f"{where}: expected a mapping of fields, found {kind_of(data)}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        items: list[dict[str, Any]] = [dict(item) for item in error.errors()]
        # A field that takes a name or a whole object complains twice about a wrong object; the text half says nothing.
        told = [item for item in items if item["type"] != "string_type" or item["loc"][-1] != "str"]
        raise UsageError(*(_finding(model, item, where) for item in told or items)) from None


def _finding(model: type[BaseModel], item: dict[str, Any], where: str) -> str:
    location = _readable(model, [part for part in item["loc"] if not str(part).startswith("function-")])
    field = ".".join(str(part) for part in location)
    if item["type"] == "extra_forbidden":
        known = sorted(_fields_at(model, location[:-1]))
        close = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known keys: {', '.join(known)}" if known else ""
        return f"{where}: unknown key '{field}'" + (f"; {hint}" if hint else "")
    if item["type"] == "missing":
        return f"{where}: '{field}' is missing"
    message = str(item["msg"]).removeprefix("Value error, ")
    message = _KINDS.get(item["type"], message)
    if item["loc"] and item["loc"][-1] == "[key]":
        return (
            f"{where}: {'.'.join(map(str, location[:-2]))}: {item['input']!r} is no name; quote it: '{item['input']}'"
        )
    return f"{where}: {field}: {message}{finding_value(item)}" if field else f"{where}: {message}{finding_value(item)}"


def finding_value(item: Mapping[str, Any]) -> str:
    """What was found where pydantic found `item` wrong, in brackets; nothing for what is too large to show."""
    value = item["input"]
    if isinstance(value, Mapping | list | tuple | BaseModel):
        return ""
    text = repr(value)
    return f" (found {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'})"


def kind_of(value: object) -> str:
    """What a value of a YAML file is, in a word."""
    names = {dict: "a mapping", list: "a list", str: "a text", type(None): "nothing", bool: "true or false"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def _readable(model: type[BaseModel], location: list[Any]) -> list[Any]:
    """`location` without the names and tags of union members, which no file contains."""
    shown: list[Any] = []
    for part in location:
        if not any(part == member.__name__ or part in _tags(member) for member in _models_at(model, shown)):
            shown.append(part)
    return shown


def _tags(model: type[BaseModel]) -> set[Any]:
    """What tells this member of a union from the others: the values of its one-word fields."""
    literals = (typing.get_args(field.annotation) for field in model.model_fields.values())
    return {values[0] for values in literals if len(values) == 1 and isinstance(values[0], str)}


def _fields_at(model: type[BaseModel], location: list[Any]) -> set[str]:
    """The keys allowed at `location`; empty where the type is not a model."""
    models = _models_at(model, location)
    return {field.alias or name for candidate in models for name, field in candidate.model_fields.items()}


def _models_at(model: type[BaseModel], location: list[Any]) -> list[type[BaseModel]]:
    """The models that may stand at `location`."""
    candidates = [model]
    for part in location:
        found = [candidate.model_fields[part] for candidate in candidates if part in candidate.model_fields]
        if found:
            candidates = [inner for field in found for inner in _models_in(field.annotation)]
    return candidates


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _models_in(argument)]
