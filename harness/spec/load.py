"""Read studies, suites and variants from YAML, with overrides from the command line applied before validation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness import catalog, files
from harness.errors import UsageError
from harness.spec.base import kind_of, parse
from harness.spec.case import Case
from harness.spec.hf_config import fields_from_hf
from harness.spec.overrides import Overrides, assignment, check_shape, has_axis, override, set_path
from harness.spec.study import Study, Suite
from harness.spec.variant import Variant

__all__ = ["Overrides", "base_variant", "case_from_sets", "load_study", "load_suite", "load_variant"]


def load_variant(name_or_path: str | Path, sets: Iterable[str] = ()) -> Variant:
    """Read one variant, also from a model folder of Hugging Face; `sets` are `field=value` texts.

    Raises UsageError with every finding.
    """
    path = catalog.find("variants", name_or_path)
    changes = {key.removeprefix("variant."): value for key, value in (assignment(text, "--set") for text in sets)}
    foreign = path.name == catalog.MODEL_CONFIG
    data = fields_from_hf(path, changes) if foreign else {"name": path.stem, **_mapping(path)}
    for key, value in changes.items():
        set_path(data, key, value)
    return parse(Variant, data, str(path))


def load_study(name_or_path: str | Path, overrides: Overrides | None = None) -> Study:
    """Read one study with its base variant inlined. Raises UsageError with every finding."""
    path = catalog.find("studies", name_or_path)
    return _study(path, _raw_study(path), overrides or Overrides())


def _raw_study(path: Path) -> dict[str, Any]:
    data = {"name": path.stem, **_mapping(path)}
    check_shape(data, str(path))
    return data


def _study(path: Path, data: dict[str, Any], overrides: Overrides) -> Study:
    study = parse(Study, override(data, overrides, str(path)), str(path))
    if isinstance(study.variant, str):
        variant = load_variant(_found("variants", study.variant, f"{path}: variant"))
        study = study.model_copy(update={"variant": variant})
    return study


def _found(kind: catalog.Kind, name: str | Path, where: str) -> Path:
    """The file of what a YAML file names; raise UsageError saying where it does so."""
    try:
        return catalog.find(kind, name)
    except UsageError as error:
        raise UsageError(*(f"{where}: {text}" for text in error.findings)) from None


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
    paths = [_found("studies", _beside(path, study), f"{path}: studies") for study in suite.studies]
    raw = [_raw_study(one) for one in paths]
    meant = [_meant_for(data, wanted, raw) for data in raw]
    studies = list(map(_study, paths, raw, meant))
    twice = [name for name, count in Counter(study.name for study in studies).items() if count > 1]
    if twice:
        raise UsageError(f"{path}: studies: {', '.join(twice)} is there twice; give each study a name of its own")
    return suite, studies


def _meant_for(study: dict[str, Any], wanted: Overrides, all_studies: Iterable[dict[str, Any]]) -> Overrides:
    """In a suite `-a` replaces an axis where there is one; where no study has it, it is added to every one."""
    axes = [
        text for text in wanted.axes if has_axis(study, text) or not any(has_axis(one, text) for one in all_studies)
    ]
    return Overrides(axes, wanted.sets, wanted.systems)


def _beside(suite: Path, study: str) -> str | Path:
    """A study of a suite is a name, or a path relative to the suite."""
    relative = suite.parent / study
    return relative if Path(study).suffix in {".yaml", ".yml"} and relative.is_file() else study


def _mapping(path: Path) -> dict[str, Any]:
    data = files.read_yaml(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected a mapping of fields, found {kind_of(data)}")
    return data


def case_from_sets(variant: str, sets: Iterable[str], system: str) -> Case:
    """Build one case from a variant and texts such as `workload.batch=8`, `kv_heads=4`, `parallelism.tp=2`."""
    parts: dict[str, dict[str, Any]] = {"workload": {}, "parallelism": {}}
    shape = []
    for text in sets:
        key, value = assignment(text, "--set")
        head, _, rest = key.partition(".")
        if head in parts and rest:
            set_path(parts[head], rest, value)
        else:
            shape.append(text)
    if "phase" not in parts["workload"]:
        raise UsageError(
            "the workload is missing; say for example --set workload.phase=decode --set workload.batch=8 "
            "--set workload.kvsl=8192, or --set workload.phase=prefill --set workload.batch=1 --set workload.isl=4096"
        )
    base = load_variant(variant, shape)
    return parse(Case, {"variant": base.model_dump(), "system": system, **parts}, "--set")
