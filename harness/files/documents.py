"""YAML in and out, JSON in.

Scalars follow YAML 1.2's core schema (yaml.org/spec/1.2.2, section 10.3.2), as JSON and editors do: `64:8`, `yes` and
`2026-01-31` are text and `1e12` is a number. PyYAML by itself follows YAML 1.1 and makes 3848, true, a date and text of
them, which is no good where people write head counts and rates.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import yaml

from harness.errors import UnreadableInput, UsageError
from harness.files.paths import checked_path

#: Values of one document, those behind aliases counted each time: past this, aliases of aliases are a trap.
_MAX_VALUES = 1_000_000
_MAX_DIGITS = 100
_SURROGATE = re.compile("[\ud800-\udfff]")

_BOOL = re.compile("^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile("^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_NULL = re.compile("^(?:~|null|Null|NULL|)$")
_CORE_SCHEMA = (
    ("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", _BOOL, list("tTfF")),
    ("tag:yaml.org,2002:int", _INT, list("-+0123456789")),
    ("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789")),
    ("tag:yaml.org,2002:merge", re.compile("^<<$"), ["<"]),
)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the core schema; a key that occurs twice is an error."""

    yaml_implicit_resolvers = {}  # none of YAML 1.1's rules; those of the core schema are added below

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in first:
                problem = f"the key {key.value!r} is there twice, first in line {first[key.tag, key.value]}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            first[key.tag, key.value] = key.start_mark.line + 1
        return node

    def construct_core_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        if len(text) > _MAX_DIGITS:
            problem = f"a number of {len(text)} digits; the longest has {_MAX_DIGITS}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        return int(text if base == 10 else text[2:], base)

    def construct_text(self, node: yaml.ScalarNode) -> str:
        text = str(self.construct_scalar(node))
        try:
            return _joined(text)
        except UnicodeDecodeError:
            problem = "half of a surrogate pair (\\ud800 to \\udfff) is no text"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper; quotes text that either version of YAML would take for something else."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


for _tag, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_core_int)
_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.construct_text)


def read_yaml(path: str | os.PathLike[str]) -> object:
    """Read a file of one YAML document; an empty one is None.

    Raises UsageError with file, line and column where it is missing, not YAML, or names a key twice, and
    UnreadableInput where it exists and cannot be read.
    """
    return parse_yaml(_read_text(path, "a YAML file"), os.fspath(path))


def read_json(path: str | os.PathLike[str]) -> object:
    """Read a file of one JSON value; raises as `read_yaml` does."""
    name = os.fspath(path)
    text = _read_text(path, "a JSON file")
    try:
        data: object = json.loads(text, object_pairs_hook=_without_repeats)
        if "\\ud" in text.lower():
            json.dumps(data, ensure_ascii=False).encode()
        return data
    except json.JSONDecodeError as error:
        raise UsageError(f"{name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    except _RepeatedKey as error:
        raise UsageError(f"{name}: the key '{error}' is there twice in one object") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{name}: half of a surrogate pair (\\ud800 to \\udfff) is no text") from error
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"{name}: not JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: nested too deeply") from error


def parse_yaml(text: str, name: str = "YAML") -> object:
    """Parse one YAML document; `name` says where the text is from. Raises UsageError as `read_yaml` does."""
    try:
        data = yaml.load(text, _Loader)  # noqa: S506  # a safe loader
        if "*" in text:
            _check_aliases(data, name)
        return data
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UsageError(f"{name}{place}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError) as error:
        # `!!int x` and the like: PyYAML lets the errors of its own conversions through.
        raise UsageError(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: nested too deeply") from error


def dump_yaml(value: object) -> str:
    """Return plain data (dicts, lists, tuples, text, numbers, None) as YAML that `parse_yaml` reads back equal."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _joined(text: str) -> str:
    """`text` with surrogate pairs, which JSON's escapes make, as the one character they are."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16") if _SURROGATE.search(text) else text


def _check_aliases(data: object, name: str) -> None:
    """Raise UsageError where aliases make a document endless, or so large that nobody can have meant it."""
    left, seen = [data], 0
    while left:
        value = left.pop()
        seen += 1
        if seen > _MAX_VALUES:
            raise UsageError(f"{name}: its aliases (*name) spell out more than {_MAX_VALUES:,} values; write them out")
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()


class _RepeatedKey(ValueError):
    """A key that occurs twice in one JSON object."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise _RepeatedKey(key)
        data[key] = value
    return data


def _read_text(path: str | os.PathLike[str], what: str) -> str:
    name = os.fspath(path)
    try:
        content = checked_path(path).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{name}: no such file") from error
    except IsADirectoryError as error:
        raise UsageError(f"{name}: is a folder, not {what}") from error
    except OSError as error:
        raise UnreadableInput(f"{name}: cannot be read: {error.strerror or error}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: not UTF-8 text") from error
