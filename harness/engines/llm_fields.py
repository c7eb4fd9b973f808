"""Which settings of the LLM API each TensorRT-LLM version has, from `harness/data/llm_args.yaml`."""

from __future__ import annotations

import datetime as dt
import difflib
import inspect
import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from harness.errors import UsageError
from harness.files import read_yaml
from harness.lint.facts import Dated, in_force
from harness.lint.versions import version_key
from harness.spec.base import Spec, parse

FIELDS_FILE = Path(__file__).resolve().parents[1] / "data" / "llm_args.yaml"

#: The oldest version that anything is known of.
OLDEST = "1.2.1"


class FieldFact(Dated):
    """That some versions have a setting, and what may be written there; no `values` is anything."""

    values: tuple[str, ...] = ()


class _File(Spec):
    read: dt.date
    fields: dict[str, tuple[FieldFact, ...]]


@lru_cache(maxsize=1)
def field_table() -> Mapping[str, tuple[FieldFact, ...]]:
    """Dotted path → what is known of it."""
    return parse(_File, read_yaml(FIELDS_FILE), str(FIELDS_FILE)).fields


def has_field(path: str, version: str) -> bool:
    """Whether a version is known to have a setting."""
    return bool(in_force(field_table().get(path, ()), version))


def allowed_values(path: str, version: str) -> tuple[str, ...]:
    """What a version takes there; empty where anything, or where there is no such setting."""
    return tuple(value for fact in in_force(field_table().get(path, ()), version) for value in fact.values)


def check_version(version: str) -> str:
    """Return a version that something is known of, as it is written: no blanks around it, no `v`, ASCII digits.

    It becomes part of file names. Raises UsageError for an older one, or text that is none.
    """
    if not version.isascii():
        raise UsageError(f"'{version}' is no TensorRT-LLM version; write it as 1.3.0rc20 or 1.2.1")
    version = version.strip().removeprefix("v")
    if version_key(version) < version_key(OLDEST):
        raise UsageError(f"TensorRT-LLM {version} is older than {OLDEST}, the first whose LLM API is known here")
    return version


def check_written(fields: Mapping[str, Any], version: str) -> None:
    """Raise UsageError with every setting that a version does not have, and every value that it does not take."""
    findings = []
    for path, value in _leaves(fields):
        allowed = allowed_values(path, version)
        if not has_field(path, version):
            findings.append(f"{path}: TensorRT-LLM {version} is not known to have this setting")
        elif allowed and value not in allowed:
            findings.append(f"{path}: TensorRT-LLM {version} takes {', '.join(allowed)}, not {value}")
    if findings:
        raise UsageError(*findings)


def _leaves(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value


def check_fields(fields: Mapping[str, Any], model_fields: Mapping[str, Any]) -> None:
    """Compare settings with `TorchLlmArgs.model_fields` of the TensorRT-LLM that is installed.

    `model_fields` is what pydantic calls so: name → a description with the field's type in `annotation`. Raises
    UsageError with every key that is not there, at any level, and every value that a Literal does not allow.
    """
    findings = list(_misfits(fields, model_fields, ""))
    if findings:
        raise UsageError(*findings)


def _misfits(fields: Mapping[str, Any], model_fields: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in fields.items():
        path = f"{prefix}{name}"
        if name not in model_fields:
            close = difflib.get_close_matches(name, [str(one) for one in model_fields], n=1)
            hint = f"; did it become '{prefix}{close[0]}'?" if close else ""
            yield f"{path}: the TensorRT-LLM that is installed has no such setting{hint}"
            continue
        annotation = model_fields[name].annotation
        if isinstance(value, Mapping):
            # Of a union the member that suits best speaks.
            against = [list(_misfits(value, one.model_fields, f"{path}.")) for one in _models_in(annotation)]
            yield from min(against, key=len, default=[])
        elif value is not None:
            allowed = _literals_in(annotation)
            if allowed and value not in allowed:
                yield f"{path}: the TensorRT-LLM that is installed takes {', '.join(map(str, allowed))}, not {value}"


def _models_in(annotation: Any) -> list[Any]:
    if inspect.isclass(annotation) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for one in typing.get_args(annotation) for model in _models_in(one)]


def _literals_in(annotation: Any) -> list[Any]:
    """The values of a Literal, alone or with None; empty for every other type."""
    if typing.get_origin(annotation) is typing.Literal:
        return list(typing.get_args(annotation))
    if typing.get_origin(annotation) not in {typing.Union, UnionType, typing.Annotated}:
        return []
    members = [one for one in typing.get_args(annotation) if one is not NoneType]
    return _literals_in(members[0]) if len(members) == 1 or typing.get_origin(annotation) is typing.Annotated else []
