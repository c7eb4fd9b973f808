"""Turn a study into its cases: stable order, stable identities, everything that is wrong said at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.spec.axes import Scalar, axis_values, moved_fields
from harness.spec.base import parse
from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.study import Series, Study
from harness.spec.variant import Variant
from harness.spec.workload import Workload

_WORKLOAD: TypeAdapter[Workload] = TypeAdapter(Workload)


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
    findings: list[str] = []
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
        raise UsageError(*dict.fromkeys(findings))
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
        try:
            for (name, _), (_, value) in zip(axes, point, strict=True):
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
    """A readable name for one point of the sweep: `dense-8b G=4`."""
    changes = {**{path: value for path, value in part.set.items() if not isinstance(value, dict)}, **coordinates}
    return " ".join([base, *(f"{name}={value}" for name, value in changes.items())])


def _workloads(study: Study, part: Series, findings: list[str]) -> Iterator[tuple[dict[str, Scalar], Workload]]:
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
            yield {field: value for field, value in values.items() if field != "phase"}, workload


def _workload_finding(study: Study, name: str, item: dict[str, Any]) -> str:
    field = ".".join(str(part) for part in item["loc"][1:])
    where = f"study {study.name}: workloads.{name}" + (f".{field}" if field else "")
    if item["type"] == "union_tag_invalid":
        return f"{where}: '{name}' is no phase; call it prefill, decode or serve, or give phase"
    if item["type"] == "missing":
        return f"{where} is missing"
    message = "unknown key" if item["type"] == "extra_forbidden" else str(item["msg"]).removeprefix("Value error, ")
    return f"{where}: {message} (found {item['input']!r})"


def _apply(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of nested `fields` with dotted paths set."""
    result = dict(fields)
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        if rest:
            inner = result.get(head)
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
