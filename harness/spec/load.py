"""Read studies, suites and variants from YAML, with overrides from the command line applied before validation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import catalog, files
from harness.errors import UsageError
from harness.spec.axes import expand_range
from harness.spec.base import parse
from harness.spec.case import Case
from harness.spec.study import Study, Suite
from harness.spec.variant import Variant


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line changes: `-a G=1,2`, `--set workloads.decode.kvsl=65536`, `--gpu b200_sxm`."""

    axes: Sequence[str] = ()
    sets: Sequence[str] = ()
    systems: Sequence[str] = field(default_factory=tuple)


def load_variant(name_or_path: str | Path, sets: Iterable[str] = ()) -> Variant:
    """Read one variant; `sets` are `field=value` texts. Raises UsageError with every finding."""
    path = catalog.find("variants", name_or_path)
    data = _mapping(path)
    for text in sets:
        key, value = _assignment(text, "--set")
        _set_path(data, key.removeprefix("variant."), value)
    return parse(Variant, {"name": path.stem, **data}, str(path))


def load_study(name_or_path: str | Path, overrides: Overrides | None = None) -> Study:
    """Read one study with its base variant inlined. Raises UsageError with every finding."""
    path = catalog.find("studies", name_or_path)
    data = {"name": path.stem, **_mapping(path)}
    data = _override(data, overrides or Overrides(), str(path))
    study = parse(Study, data, str(path))
    if isinstance(study.variant, str):
        study = study.model_copy(update={"variant": load_variant(study.variant)})
    return study


def base_variant(study: Study) -> Variant:
    """The variant of a loaded study."""
    return study.variant if isinstance(study.variant, Variant) else load_variant(study.variant)


def load_suite(name_or_path: str | Path, overrides: Overrides | None = None) -> tuple[Suite, list[Study]]:
    """Read a suite and its studies; a study's name or path gives a suite of one."""
    name = str(name_or_path)
    is_path = Path(name).suffix in {".yaml", ".yml"}
    if (is_path and "studies" not in _mapping(catalog.find("suites", name))) or (
        not is_path and not catalog.has("suites", name) and catalog.has("studies", name)
    ):
        study = load_study(name, overrides)
        return Suite(name=study.name, title=study.title, about=study.about, studies=(study.name,)), [study]
    if not is_path and not catalog.has("suites", name):
        known = catalog.names("suites") + catalog.names("studies")
        raise UsageError(f"no suite or study is called '{name}'; known: {', '.join(known) or 'none'}")
    path = catalog.find("suites", name)
    suite = parse(Suite, {"name": path.stem, **_mapping(path)}, str(path))
    wanted = overrides or Overrides()
    if suite.systems and not wanted.systems:
        wanted = Overrides(wanted.axes, wanted.sets, suite.systems)
    return suite, [load_study(_beside(path, study), wanted) for study in suite.studies]


def _beside(suite: Path, study: str) -> str | Path:
    """A study of a suite is a name, or a path relative to the suite."""
    relative = suite.parent / study
    return relative if Path(study).suffix in {".yaml", ".yml"} and relative.is_file() else study


def _mapping(path: Path) -> dict[str, Any]:
    data = files.read_yaml(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected a mapping of fields, found {type(data).__name__}")
    return data


def _override(data: dict[str, Any], overrides: Overrides, where: str) -> dict[str, Any]:
    """Apply the command line to the raw study. Axes and workloads reach into every series that has its own."""
    parts = [part for part in data.get("series") or [] if isinstance(part, dict)]
    for text in overrides.axes:
        name, value = text.partition("=")[::2]
        if not value:
            raise UsageError(f"-a {text}: expected NAME=VALUES, for example -a G=1,2,4 or -a G=2^0..2^6")
        values = [
            files.parse_yaml(item) if isinstance(item, str) else item
            for v in value.split(",")
            for item in expand_range(v)
        ]
        owners = [part for part in parts if name in (part.get("axes") or {})]
        for owner in owners or [data]:
            owner.setdefault("axes", {})[name] = _points(owner["axes"].get(name), values, name, where)
    for text in overrides.sets:
        key, value = _assignment(text, "--set")
        targets = [part for part in parts if key.startswith("workloads.") and _has_path(part, key.rsplit(".", 1)[0])]
        if not targets or _has_path(data, key.rsplit(".", 1)[0]):
            targets.append(data)
        for target in targets:
            _set_path(target, key, value)
    if overrides.systems:
        data["systems"] = list(overrides.systems)
        for part in parts:
            part.pop("systems", None)
    return data


def _points(old: Any, labels: list[Any], name: str, where: str) -> Any:
    """On an axis of labelled points `-a` picks among them."""
    if not isinstance(old, dict):
        return labels
    unknown = [str(label) for label in labels if label not in old]
    if unknown:
        raise UsageError(f"{where}: axis {name} has no point {', '.join(unknown)}; it has {', '.join(map(str, old))}")
    return {label: old[label] for label in labels}


def _assignment(text: str, option: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(f"{option} {text}: expected FIELD=VALUE, for example {option} workloads.decode.kvsl=65536")
    return key.strip(), files.parse_yaml(value)


def _has_path(data: Any, path: str) -> bool:
    for key in path.split("."):
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _set_path(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        inner = data.get(key)
        if isinstance(inner, str) and key == "weights":  # `weights: fp8` is short for all three groups
            inner = {"attention": inner, "ffn": inner, "experts": inner}
        data[key] = inner = inner if isinstance(inner, dict) else {}
        data = inner
    data[last] = value


def case_from_sets(variant: str, sets: Iterable[str], system: str) -> Case:
    """Build one case from a variant and texts such as `workload.batch=8`, `kv_heads=4`, `parallelism.tp=2`."""
    parts: dict[str, dict[str, Any]] = {"workload": {}, "parallelism": {}}
    shape = []
    for text in sets:
        key, value = _assignment(text, "--set")
        head, _, rest = key.partition(".")
        if head in parts and rest:
            _set_path(parts[head], rest, value)
        else:
            shape.append(text)
    base = load_variant(variant, shape)
    return parse(Case, {"variant": base.model_dump(), "system": system, **parts}, "--set")
