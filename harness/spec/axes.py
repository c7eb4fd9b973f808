"""Axes of a sweep: what one name moves, and the values it takes.

    G: [1, 2, 4]                       group size; `hold` says what stays fixed
    G: 2^0..2^6                        powers of two
    isl: 1024..4096:1024               from, to and step
    shape:                             fields moved together, one label per point
      wide: {hidden: 8192, layers: 16}
      deep: {hidden: 4096, layers: 64}

An axis names `G`, `Hsz`, a field of the variant (`ffn`, `experts.top_k`) or of the parallelism (`parallelism.tp`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from harness.errors import UsageError

Scalar = int | float | str | bool
Hold = Literal["q_heads", "kv_heads", "heads", "width"]

#: What may stay fixed while a symbol moves; the first is the default.
HOLDS: dict[str, tuple[Hold, ...]] = {"G": ("q_heads", "kv_heads"), "Hsz": ("heads", "width")}

_POWERS = re.compile(r"2\^(\d+)\.\.2\^(\d+)")
_STEPS = re.compile(r"(\d+)\.\.(\d+)(?::(\d+))?")


def axis_values(name: str, values: Any) -> list[tuple[Scalar, Any]]:
    """Return the points of one axis as (label, value), in the order given; raise UsageError where there are none."""
    points: list[tuple[Scalar, Any]]
    if isinstance(values, Mapping):
        points = [(str(label), fields) for label, fields in values.items()]
    elif isinstance(values, str):
        points = [(value, value) for value in expand_range(values)]
    elif isinstance(values, list | tuple):
        points = [(value, value) for item in values for value in _item(item)]
    else:
        points = [(values, values)]
    if not points:
        raise UsageError(f"axis {name} has no values; give at least one, for example {name}: [1, 2, 4]")
    times = Counter(label for label, _ in points)
    repeated = [str(label) for label, count in times.items() if count > 1]
    if repeated:
        raise UsageError(f"axis {name} names {', '.join(repeated)} twice")
    return points


def expand_range(text: str) -> list[Scalar]:
    """Expand `2^0..2^6` and `1..9:2`; any other text is one value."""
    if match := _POWERS.fullmatch(text.strip()):
        low, high = int(match[1]), int(match[2])
        return [2**exponent for exponent in range(low, high + 1)]
    if match := _STEPS.fullmatch(text.strip()):
        return list(range(int(match[1]), int(match[2]) + 1, int(match[3] or 1)))
    return [text]


def _item(item: Any) -> Iterator[Any]:
    yield from expand_range(item) if isinstance(item, str) else [item]


def moved_fields(name: str, value: Any, base: Mapping[str, Any], hold: str | None) -> dict[str, Any]:
    """Return which fields of the variant `base` one axis value sets, as dotted paths.

    Raises UsageError where the value is impossible, naming values that work.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if name == "G":
        return _group_size(value, base, hold or "q_heads")
    if name == "Hsz":
        return _head_size(value, base, hold or "heads")
    return {name: value}


def _group_size(group: Any, base: Mapping[str, Any], hold: str) -> dict[str, Any]:
    q_heads, kv_heads = base["q_heads"], base["kv_heads"]
    if not isinstance(group, int) or isinstance(group, bool) or group < 1:
        raise UsageError(
            f"axis G: {group!r} is no group size; it is a whole number of query heads per KV head, at least 1"
        )
    if hold == "kv_heads":
        return {"q_heads": kv_heads * group}
    if q_heads % group:
        works = [n for n in range(1, q_heads + 1) if q_heads % n == 0]
        raise UsageError(
            f"axis G: {q_heads} query heads cannot be split into groups of {group}; "
            f"values that work: {', '.join(map(str, works))} (or hold: {{G: kv_heads}} to change the query heads)"
        )
    return {"kv_heads": q_heads // group}


def _head_size(head_dim: Any, base: Mapping[str, Any], hold: str) -> dict[str, Any]:
    if hold == "heads":
        return {"head_dim": head_dim}
    q_width, kv_width = base["q_heads"] * base["head_dim"], base["kv_heads"] * base["head_dim"]
    if not isinstance(head_dim, int) or head_dim < 1 or kv_width % head_dim or q_width % head_dim:
        works = [n for n in (64, 96, 128, 192, 256, 512) if kv_width % n == 0 and q_width % n == 0]
        raise UsageError(
            f"axis Hsz: {head_dim!r} does not divide the fixed widths QH·Hsz = {q_width} and KH·Hsz = {kv_width}; "
            f"values that work: {', '.join(map(str, works)) or 'none of the usual sizes'}"
        )
    return {"head_dim": head_dim, "q_heads": q_width // head_dim, "kv_heads": kv_width // head_dim}
