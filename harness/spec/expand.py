"""Turn a study into its cases: stable order, stable identities, everything that is wrong said at once."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.spec.axes import HOLDS, Scalar, axis_values, moved_fields
from harness.spec.base import finding_value, parse
from harness.spec.bounds import MAX_NAME
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.places import misplaced
from harness.spec.study import Series, Study
from harness.spec.variant import Variant, spread_formats
from harness.spec.workload import Decode, Prefill, Serve, Workload

_PHASES: dict[str, type[Prefill | Decode | Serve]] = {"prefill": Prefill, "decode": Decode, "serve": Serve}
_WORKLOAD: TypeAdapter[Workload] = TypeAdapter(Workload)

#: Findings about one study that are listed; the rest is counted.
_TOLD = 20


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A case with its place in the study.

    `coordinates` says where on the sweep it lies: axis → label, workload field → value, in a fixed order.
    `skip_reason` is set where an exclusion of the study leaves it out.
    """

    case: Case
    study: str
    series: str
    coordinates: dict[str, Scalar]
    level: str
    skip_reason: str = ""
    ops: tuple[str, ...] = ()
    """The only ops asked for, at level `op`."""


def count_cases(study: Study) -> int:
    """How many cases a study expands to, without expanding it; an empty one is an error."""
    total = 0
    for part in study.parts:
        points = math.prod(len(axis_values(name, values)) for name, values in part.axes.items())
        workloads = sum(
            math.prod(len(axis_values(f"{name}.{field}", values)) for field, values in fields.items())
            for name, fields in part.workloads.items()
        )
        total += points * workloads * len(part.systems)
    if not total:
        missing = [what for what in ("workloads", "systems") if any(not getattr(part, what) for part in study.parts)]
        raise UsageError(f"study {study.name} has no cases: it names no {' and no '.join(missing)}")
    return total


def expand(study: Study, variant: Variant) -> list[PlannedCase]:
    """Return every case of `study` on its base `variant`, series by series, system outermost.

    Raises UsageError with all impossible axis values, shapes and workloads at once.
    """
    count_cases(study)
    findings = misplaced(study)
    if findings:
        raise UsageError(*findings)
    planned: list[PlannedCase] = []
    for part in study.parts:
        variants = list(_variants(study, part, variant, findings))
        workloads = list(_workloads(study, part, findings))
        for system, (coordinates, shape, split), (place, workload) in itertools.product(
            part.systems, variants, workloads
        ):
            case = Case(variant=shape, parallelism=split, workload=workload, system=system)
            where = {**coordinates, **place}
            reason = _skip_reason(study, part.name, case, where)
            planned.append(PlannedCase(case, study.name, part.name, where, study.level, reason, study.ops))
    if findings:
        told = list(dict.fromkeys(findings))
        more = [f"study {study.name}: … and {len(told) - _TOLD:,} more like these"] if len(told) > _TOLD else []
        raise UsageError(*told[:_TOLD], *more)
    return planned


def _variants(
    study: Study, part: Series, base: Variant, findings: list[str]
) -> Iterator[tuple[dict[str, Scalar], Variant, Parallelism]]:
    start = _apply(base.model_dump(), part.set)
    axes = [(name, axis_values(name, values)) for name, values in part.axes.items()]
    for point in itertools.product(*(values for _, values in axes)):
        coordinates = {name: label for (name, _), (label, _) in zip(axes, point, strict=True)}
        label = ", ".join(f"{name} {value}" for name, value in coordinates.items())
        where = f"study {study.name}" + (f", {part.name}" if part.name else "") + (f" at {label}" if label else "")
        fields, split = start, dict(study.parallelism)
        moves = [(name, value) for (name, _), (_, value) in zip(axes, point, strict=True)]
        try:
            # Symbols last: G is a ratio of heads, and an axis may move these heads.
            for name, value in sorted(moves, key=lambda move: move[0] in HOLDS):
                for path, moved in moved_fields(name, value, fields, part.hold.get(name)).items():
                    if path.startswith("parallelism."):
                        split[path.removeprefix("parallelism.")] = moved
                    else:
                        fields = _apply(fields, {path: moved})
            shape = parse(Variant, {**fields, "name": variant_label(base.name, coordinates, part)}, where)
            yield coordinates, shape, parse(Parallelism, split, where)
        except UsageError as error:
            findings += [text if text.startswith(where) else f"{where}: {text}" for text in error.findings]


def variant_label(base: str, coordinates: Mapping[str, Scalar], part: Series) -> str:
    """A readable name for one point of the sweep, `dense-8b G=4`, cut where it is longer than a name may be."""
    changes = {**{path: value for path, value in part.set.items() if not isinstance(value, dict)}, **coordinates}
    label = " ".join([base, *(f"{name}={value}" for name, value in changes.items())])
    return label if len(label) <= MAX_NAME else f"{label[: MAX_NAME - 1]}…"


def _workloads(study: Study, part: Series, findings: list[str]) -> Iterator[tuple[dict[str, Scalar], Workload]]:
    seen: set[tuple[str, frozenset[tuple[str, Scalar]]]] = set()
    for name, fields in part.workloads.items():
        axes = [(field, axis_values(f"workloads.{name}.{field}", values)) for field, values in fields.items()]
        for point in itertools.product(*(values for _, values in axes)):
            values = {field: value for (field, _), (_, value) in zip(axes, point, strict=True)}
            data = {"phase": name, **values}
            try:
                workload = _WORKLOAD.validate_python(data)
            except ValidationError as error:
                findings += [_workload_finding(study, name, dict(item)) for item in error.errors()]
                continue
            place = {field: value for field, value in values.items() if field != "phase"}
            if (workload.phase, frozenset(place.items())) in seen:
                findings.append(f"study {study.name}: workloads.{name}: {workload.label} is there twice")
            seen.add((workload.phase, frozenset(place.items())))
            yield place, workload


def _workload_finding(study: Study, name: str, item: dict[str, Any]) -> str:
    field = ".".join(str(part) for part in item["loc"][1:])
    where = f"study {study.name}: workloads.{name}" + (f".{field}" if field else "")
    if item["type"] == "union_tag_invalid":
        return f"{where}: '{name}' is no phase; call it prefill, decode or serve, or give phase"
    if item["type"] == "missing":
        return f"{where} is missing"
    if item["type"] == "extra_forbidden":
        known = sorted(set(_PHASES[str(item["loc"][0])].model_fields))
        close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
        return f"{where}: unknown key; " + (f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}")
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}{finding_value(item)}"


def _apply(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested `fields` with dotted paths set."""
    result = dict(fields)
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        if rest:
            inner = spread_formats(result.get(head)) if head == "weights" else result.get(head)
            result[head] = _apply(inner if isinstance(inner, Mapping) else {}, {rest: value})
        else:
            result[head] = value
    return result


def _skip_reason(study: Study, series: str, case: Case, coordinates: Mapping[str, Scalar]) -> str:
    place = {**coordinates, "series": series, "system": case.system, "phase": case.workload.phase}
    for exclusion in study.exclude:
        if matches(exclusion.when, place):
            return exclusion.reason
    return ""


def matches(when: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    """Whether every coordinate in `when` has the wanted value, or one of the wanted values, at `place`."""
    return all(
        name in place and place[name] in (wanted if isinstance(wanted, list | tuple) else (wanted,))
        for name, wanted in when.items()
    )
