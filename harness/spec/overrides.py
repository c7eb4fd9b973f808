"""What the command line changes in a study: done to its raw YAML, so that the outcome is validated like any study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import files
from harness.errors import UsageError
from harness.spec.axes import expand_range, is_scalar
from harness.spec.base import kind_of
from harness.spec.variant import spread_formats

#: Parts of a study, and of its series, that overrides reach into.
_MAPPINGS = ("set", "axes", "hold", "workloads", "parallelism", "baseline")


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line changes: `-a G=1,2`, `--set workloads.decode.kvsl=65536`, `--gpu b200_sxm`."""

    axes: Sequence[str] = ()
    sets: Sequence[str] = ()
    systems: Sequence[str] = field(default_factory=tuple)


def check_shape(data: dict[str, Any], where: str) -> None:
    """Raise UsageError where a part of a raw study is not of the kind that overrides, and the rest, build on."""
    series = data.get("series", [])
    whole = isinstance(series, list) and all(isinstance(part, dict) for part in series)
    findings = [] if whole else [f"{where}: series: expected a list of mappings, such as [{{name: QH 64, axes: …}}]"]
    holders = [("", data)]
    if whole:
        holders += [(f"series.{index}.", part) for index, part in enumerate(series)]
    findings += [
        f"{where}: {place}{name}: expected a mapping, found {kind_of(holder[name])}; leave it out where it is empty"
        for place, holder in holders
        for name in _MAPPINGS
        if name in holder and not isinstance(holder[name], dict)
    ]
    if findings:
        raise UsageError(*findings)


def has_axis(data: dict[str, Any], text: str) -> bool:
    """Whether a study of good shape has, in itself or in a series, the axis that `NAME=VALUES` replaces."""
    return any(_axis_name(text) in holder.get("axes", {}) for holder in _holders(data))


def override(data: dict[str, Any], overrides: Overrides, where: str) -> dict[str, Any]:
    """Apply the command line to a raw study of good shape. Axes and workloads reach into every series with its own."""
    for text in overrides.axes:
        _replace_axis(data, text, where)
    for text in overrides.sets:
        _set(data, text)
        check_shape(data, where)
    if overrides.systems:
        data["systems"] = list(overrides.systems)
        for part in data.get("series", []):
            part.pop("systems", None)
    return data


def _holders(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The study and its series."""
    yield data
    yield from data.get("series", [])


def _axis_name(text: str) -> str:
    name, _, given = text.partition("=")
    if not name.strip() or not all(part.strip() for part in given.split(",")):
        raise UsageError(f"-a {text}: expected NAME=VALUES, for example -a G=1,2,4 or -a G=2^0..2^6")
    return name.strip()


def _replace_axis(data: dict[str, Any], text: str, where: str) -> None:
    name = _axis_name(text)
    items = [item for part in text.partition("=")[2].split(",") for item in expand_range(part, name)]
    values = [files.parse_yaml(item, f"-a {text}") if isinstance(item, str) else item for item in items]
    for value in values:
        if not is_scalar(value):
            raise UsageError(f"-a {text}: {kind_of(value)} is no point of an axis; write numbers or texts: {name}=1,2")
    owners = [holder for holder in _holders(data) if name in holder.get("axes", {})]
    for owner in owners or [data]:
        axes = owner.setdefault("axes", {})
        axes[name] = _points(axes.get(name), values, name, where)
    for holder in _holders(data):  # a baseline that the narrowed axis has no longer gives way to its first value
        if holder.get("baseline", {}).get(name, values[0]) not in values:
            del holder["baseline"][name]


def _points(old: Any, labels: list[Any], name: str, where: str) -> Any:
    """On an axis of labelled points `-a` picks among them."""
    if not isinstance(old, dict):
        return labels
    unknown = [str(label) for label in labels if label not in old]
    if unknown:
        raise UsageError(f"{where}: axis {name} has no point {', '.join(unknown)}; it has {', '.join(map(str, old))}")
    return {label: old[label] for label in labels}


def _set(data: dict[str, Any], text: str) -> None:
    key, value = assignment(text, "--set")
    head, _, rest = key.partition(".")
    if head == "variant" and rest and isinstance(data.get("variant"), str):  # a named variant is changed through `set`
        data.setdefault("set", {})[rest] = value
        return
    parent = key.rpartition(".")[0]
    targets = [part for part in data.get("series", []) if head == "workloads" and _has_path(part, parent)]
    if not targets or _has_path(data, parent):
        targets.append(data)
    for target in targets:
        set_path(target, key, value)


def assignment(text: str, option: str) -> tuple[str, Any]:
    """Return what `FIELD=VALUE` sets; the value is YAML."""
    key, sign, value = text.partition("=")
    if not sign or not all(part.strip() for part in key.split(".")):
        raise UsageError(f"{option} {text}: expected FIELD=VALUE, for example {option} workloads.decode.kvsl=65536")
    return key.strip(), files.parse_yaml(value, f"{option} {text}")


def _has_path(data: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def set_path(data: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path of nested raw data. Raises UsageError where it leads into a list."""
    *parents, last = path.split(".")
    for key in parents:
        inner = spread_formats(data.get(key)) if key == "weights" else data.get(key)
        if isinstance(inner, list):
            raise UsageError(f"--set {path}: '{key}' is a list; set it as a whole, for example --set '{key}=[…]'")
        data[key] = inner = inner if isinstance(inner, dict) else {}
        data = inner
    data[last] = value
