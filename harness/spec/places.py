"""What a study names has to be there: fields that its axes move, coordinates of its baselines and exclusions."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.spec.axes import HOLDS, Scalar, axis_values
from harness.spec.parallelism import Parallelism
from harness.spec.reserved import RESERVED, WORKLOAD_FIELDS
from harness.spec.study import Series, Study
from harness.spec.variant import Variant

#: Coordinates that every row has.
_PLACE = ("series", "system", "phase")

#: What a symbol sets, by what it holds.
_SYMBOLS = {
    ("G", "q_heads"): {"kv_heads"},
    ("G", "kv_heads"): {"q_heads"},
    ("Hsz", "heads"): {"head_dim"},
    ("Hsz", "width"): {"head_dim", "q_heads", "kv_heads"},
}


def misplaced(study: Study) -> list[str]:
    """Return everything that a study names and that is not there, in words."""
    found = [text for part in study.parts for text in _misplaced_in(part)]
    found += _unknown_coordinates(study)
    return [f"study {study.name}: {text}" for text in dict.fromkeys(found)]


def _misplaced_in(part: Series) -> Iterator[str]:
    axes = {name: axis_values(name, values) for name, values in part.axes.items()}
    for name, points in axes.items():
        yield from _misnamed(name, part.axes[name])
        for path in _paths(name, points):
            if path == "name":
                yield f"axis {name}: a variant is named by its coordinates; move another field"
            elif not _moves_something(path):
                yield f"axis {name}: there is no field '{path}'{_hint(path)}"
        wanted, labels = part.baseline.get(name), [label for label, _ in points]
        if wanted is not None and wanted not in labels:
            shown = ", ".join(map(str, labels[:12])) + (" …" if len(labels) > 12 else "")
            yield f"baseline {name}: {wanted} is not on the axis, which has {shown}"
    moved = {name: _moved(name, points, part.hold.get(name)) for name, points in axes.items()}
    for (one, first), (other, second) in itertools.combinations(moved.items(), 2):
        both = sorted({max(pair, key=len) for pair in itertools.product(first, second) if _overlap(*pair)})
        if both and {one, other} != set(HOLDS):  # Hsz keeps G as it is, so these two go together
            yield f"axes {one} and {other} both set {', '.join(both)}; leave it to one of them"


def _misnamed(name: str, values: Any) -> Iterator[str]:
    """Points with labels must not hide what their axis is called."""
    if not isinstance(values, Mapping):
        return
    if name in RESERVED:
        what = "a field of the workload" if name in WORKLOAD_FIELDS else "a column of the records"
        yield f"axis {name}: '{name}' is {what}; call an axis of labelled points something else, such as 'shape'"
    elif name in HOLDS and any(isinstance(value, Mapping) for value in values.values()):
        yield f"axis {name}: these points are no values of {name}; call the axis something else, such as 'shape'"


def _paths(name: str, points: list[tuple[Scalar, Any]]) -> list[str]:
    """The dotted paths that an axis moves, but for a symbol's."""
    if any(isinstance(value, Mapping) for _, value in points):
        return list(dict.fromkeys(path for _, value in points for path in value))
    return [] if name in HOLDS else [name]


def _moved(name: str, points: list[tuple[Scalar, Any]], hold: str | None) -> set[str]:
    """All dotted paths that an axis moves."""
    symbol = _SYMBOLS.get((name, hold or HOLDS[name][0]), set()) if name in HOLDS else set()
    return {*_paths(name, points), *symbol}


def _overlap(one: str, other: str) -> bool:
    """Whether two paths set the same field, or one a part of the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _moves_something(path: str) -> bool:
    head, _, rest = path.partition(".")
    return rest in Parallelism.model_fields if head == "parallelism" else head in Variant.model_fields


def _hint(path: str) -> str:
    known = [*Variant.model_fields, *HOLDS, *(f"parallelism.{name}" for name in Parallelism.model_fields)]
    if f"parallelism.{path}" in known:
        return f"; did you mean 'parallelism.{path}'?"
    if path in WORKLOAD_FIELDS:
        return f"; sweep the workload with a list: workloads: {{decode: {{{path}: [1, 2]}}}}"
    return _close(path, known)


def _unknown_coordinates(study: Study) -> Iterator[str]:
    """Baselines and exclusions that speak of coordinates which no series has."""
    names = [name for part in study.parts for name in part.axes]
    names += [field for part in study.parts for fields in part.workloads.values() for field in fields]
    known = [name for name in dict.fromkeys(names) if name != "phase"]
    for name in dict.fromkeys(name for part in study.parts for name in part.baseline):
        if name not in known:
            yield f"baseline {name}: there is no such coordinate{_close(name, known)}"
    for name in dict.fromkeys(name for exclusion in study.exclude for name in exclusion.when):
        if name not in known and name not in _PLACE:
            yield f"exclude: when: {name}: there is no such coordinate{_close(name, [*known, *_PLACE])}"


def _close(name: str, known: Iterable[str]) -> str:
    listed = list(known)
    close = difflib.get_close_matches(name, listed, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; known: {', '.join(listed)}"
