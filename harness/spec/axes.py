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

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from harness.errors import UsageError
from harness.spec.base import kind_of
from harness.spec.bounds import MAX_EXPONENT, MAX_HEADS, MAX_POINTS, checked_name

Scalar = int | float | str | bool
Hold = Literal["q_heads", "kv_heads", "heads", "width"]

#: What may stay fixed while a symbol moves; the first is the default.
HOLDS: dict[str, tuple[Hold, ...]] = {"G": ("q_heads", "kv_heads"), "Hsz": ("heads", "width")}

# Eighteen digits fit 64 bits; what is longer is no range of sizes, but a text that no field of sizes takes.
_POWERS = re.compile(r"2\^([0-9]{1,18})\.\.2\^([0-9]{1,18})")
_STEPS = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})(?::([0-9]{1,18}))?")


def axis_values(name: str, values: Any) -> list[tuple[Scalar, Any]]:
    """Return the points of one axis as (label, value), in the order given.

    Raises UsageError where there are none, more than 100,000, one twice, or one that is neither number nor text.
    """
    points: list[tuple[Scalar, Any]]
    if isinstance(values, Mapping):
        points = _labelled(name, values)
    else:
        points = [(value, value) for value in _expanded(name, values if isinstance(values, list | tuple) else [values])]
    if not points:
        raise UsageError(f"axis {name} has no values; give at least one, for example {name}: [1, 2, 4]")
    times = Counter(label for label, _ in points)
    repeated = [str(label) for label, count in times.items() if count > 1]
    if repeated:
        raise UsageError(f"axis {name} names {', '.join(repeated[:10])} twice")
    return points


def is_scalar(value: object) -> bool:
    """Whether a value can be a label: text, true or false, or a finite number."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def checked_place(place: dict[str, Any]) -> dict[str, Any]:
    """Return coordinates, each a label or a list of labels; raise ValueError where they are anything else."""
    for name, wanted in place.items():
        labels = wanted if isinstance(wanted, list | tuple) else [wanted]
        if not labels or not all(map(is_scalar, labels)):
            raise ValueError(f"{name}: has to be a text, a number or a list of them, such as {{G: [8, 16], batch: 1}}")
    return place


def _labelled(name: str, values: Mapping[Any, Any]) -> list[tuple[Scalar, Any]]:
    """Points with labels of their own: each moves fields together, or is a value of what the axis names."""
    for label, value in values.items():
        if not isinstance(label, str):
            raise UsageError(f"axis {name}: the label {label!r} is no text; quote it: '{label}'")
        try:
            checked_name(label)
        except ValueError as error:
            raise UsageError(f"axis {name}: a label: {error}") from None
        if not is_scalar(value) and not (isinstance(value, Mapping) and all(isinstance(path, str) for path in value)):
            raise UsageError(f"axis {name}: the point {label!r} has to be fields to move, such as {{hidden: 8192}}")
    if len({isinstance(value, Mapping) for value in values.values()}) > 1:
        raise UsageError(f"axis {name}: some points are fields to move, some are values; write all as fields")
    return list(values.items())


def _expanded(name: str, items: Iterable[Any]) -> list[Scalar]:
    """The values of a list, with its ranges spelt out."""
    points: list[Scalar] = []
    for item in items:
        if not is_scalar(item):
            found = item if isinstance(item, float) else kind_of(item)
            raise UsageError(f"axis {name}: {found} is no point; give numbers or texts, such as {name}: [1, 2, 4]")
        points += expand_range(item, name) if isinstance(item, str) else [item]
        if len(points) > MAX_POINTS:
            raise UsageError(f"axis {name} has more than {MAX_POINTS:,} points; take larger steps, such as 1..9999:100")
    return points


def expand_range(text: str, axis: str = "") -> list[Scalar]:
    """Expand `2^0..2^6` and `1..9:2`; any other text is one value.

    Raises UsageError, naming `axis`, where a range counts down, has no step or is too long to be meant.
    """
    where = f"axis {axis}: {text.strip()}" if axis else text.strip()
    if match := _POWERS.fullmatch(text.strip()):
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise UsageError(f"{where} counts down; write 2^{high}..2^{low}")
        if high > MAX_EXPONENT:
            raise UsageError(f"{where}: no size is larger than 2^{MAX_EXPONENT}; write 2^{low}..2^{MAX_EXPONENT}")
        return [2**exponent for exponent in range(low, high + 1)]
    if match := _STEPS.fullmatch(text.strip()):
        low, high, step = int(match[1]), int(match[2]), int(match[3] or 1)
        if low > high:
            raise UsageError(f"{where} counts down; write {high}..{low}")
        if not step:
            raise UsageError(f"{where}: a step of 0 never arrives; write {low}..{high}:1 or a larger step")
        if (high - low) // step >= MAX_POINTS:
            count = (high - low) // step + 1
            raise UsageError(
                f"{where} has {count:,} points, more than {MAX_POINTS:,}; "
                f"{low}..{high}:{-(-(high - low + 1) // MAX_POINTS)} has fewer"
            )
        return list(range(low, high + 1, step))
    return [text]


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
    q_heads, kv_heads = _sizes("G", base, "q_heads", "kv_heads")
    if not _is_count(group):
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
    q_heads, kv_heads, old = _sizes("Hsz", base, "q_heads", "kv_heads", "head_dim")
    q_width, kv_width = q_heads * old, kv_heads * old
    if not _is_count(head_dim) or kv_width % head_dim or q_width % head_dim:
        works = [n for n in (64, 96, 128, 192, 256, 512) if kv_width % n == 0 and q_width % n == 0]
        raise UsageError(
            f"axis Hsz: {head_dim!r} does not divide the fixed widths QH·Hsz = {q_width} and KH·Hsz = {kv_width}; "
            f"values that work: {', '.join(map(str, works)) or 'none of the usual sizes'}"
        )
    return {"head_dim": head_dim, "q_heads": q_width // head_dim, "kv_heads": kv_width // head_dim}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _sizes(axis: str, base: Mapping[str, Any], *names: str) -> list[int]:
    """Sizes of a shape that nothing has validated yet: `set` and other axes may have put anything there."""
    for name in names:
        if not _is_count(base[name]) or base[name] > MAX_HEADS:
            raise UsageError(f"axis {axis}: {name} must be a whole number from 1 to {MAX_HEADS} (found {base[name]!r})")
    return [base[name] for name in names]
