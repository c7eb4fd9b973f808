"""Text, JSON and JSON Lines of other tools, strictly: whatever is damaged is named with its position."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Unreadable(ValueError):
    """A file that cannot be read, with the position where it breaks; the message goes behind the file's name."""


def read_text(path: Path) -> str:
    """The text of a file. Raises Unreadable where there is none, or it is no UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 text at byte {error.start:,}") from None
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from None


def parse_json(text: str, first_line: int = 1) -> Any:
    """The JSON of a text that starts at line `first_line` of its file. NaN and infinity become None.

    Raises Unreadable for what is no JSON, for a key that is there twice, and for half a surrogate pair.
    """
    try:
        data = json.loads(
            text, object_pairs_hook=_object, parse_constant=lambda _: None, parse_float=_float, parse_int=_int
        )
        json.dumps(data, ensure_ascii=False).encode()
        return data
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        raise Unreadable(f"not JSON at line {line} column {error.colno}: {error.msg}") from None
    except UnicodeEncodeError:
        raise Unreadable(f"half of a surrogate pair from line {first_line} on, which is no text") from None
    except RecursionError:
        raise Unreadable(f"nested too deeply from line {first_line} on") from None
    except _TwiceError as error:
        raise Unreadable(f"key {str(error)!r} is there twice in one object from line {first_line} on") from None


def json_lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of each line that is not blank. Raises Unreadable as `parse_json` does."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            data = parse_json(line, number)
            if not isinstance(data, dict):
                raise Unreadable(f"line {number} is no JSON object")
            yield number, data


def at(data: Any, path: tuple[str, ...]) -> Any:
    """What lies at a path of nested objects; None where a part is absent, null or no object.

    A key may have dots of its own, as `memory.total` has.
    """
    for index, key in enumerate(path):
        if not isinstance(data, dict):
            return None
        rest = ".".join(path[index:])
        if rest in data:
            return data[rest]
        data = data.get(key)
    return data


class _TwiceError(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return data


def _float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _int(text: str) -> int | float | None:
    return int(text) if len(text) < 300 else None
