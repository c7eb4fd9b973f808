"""Make what a study needs be there: engines, their settings and, where asked for, their TensorRT plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.engines.engine_spec import Progress, no_progress
from harness.engines.manifest import Engine
from harness.engines.needs import EngineNeed
from harness.engines.places import OnWait
from harness.engines.settings import Settings
from harness.engines.space import check_space
from harness.engines.store import Built, EngineStore, Outcome

#: Builds the plan of an engine for one of its settings; returns its folder and what that took, or None where it failed.
BuildPlan = Callable[[EngineNeed, Settings], tuple[Path, Outcome] | None]


@dataclass(frozen=True, slots=True)
class Beside:
    """Settings or a plan beside an engine."""

    settings: Settings
    path: Path
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Prepared:
    """One engine that is there now, with what stands beside it."""

    need: EngineNeed
    built: Built
    settings: tuple[Beside, ...] = ()
    plans: tuple[Beside, ...] = ()

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.built.engine


@dataclass(slots=True)
class Survey:
    """Which of the engines that are needed are there and whole."""

    whole: dict[str, Engine] = field(default_factory=dict)
    missing: list[EngineNeed] = field(default_factory=list)


def survey(
    store: EngineStore, needs: Sequence[EngineNeed], begin: Callable[[EngineNeed], None] = lambda _: None
) -> Survey:
    """Look at every engine needed, each byte of it, and whether there is room for what is missing.

    Raises EnvironmentUnfit where there is none.
    """
    found = Survey()
    for need in needs:
        begin(need)
        seen = store.inspect(need.spec.key)
        if seen.engine and seen.is_whole:
            found.whole[need.spec.key] = seen.engine
        else:
            found.missing.append(need)
    check_space(store, [need.spec for need in found.missing])
    return found


def prepare(
    store: EngineStore,
    need: EngineNeed,
    found: Survey,
    *,
    build_plan: BuildPlan | None = None,
    progress: Progress = no_progress,
    on_wait: OnWait | None = None,
) -> Prepared:
    """Make one engine be there, with its settings, or with plans where `build_plan` makes them.

    Raises UsageError where the weights of such a model cannot be made, EnvironmentUnfit as `EngineStore.build`.
    """
    key = need.spec.key
    if key in found.whole:
        store.touch(key)
        built = Built(found.whole[key], "kept")
    else:
        built = store.build(need.spec, progress, on_wait)
    if build_plan:
        plans = ((one, build_plan(need, one)) for one in need.settings)
        return Prepared(need, built, plans=_distinct(Beside(one, *plan) for one, plan in plans if plan))
    settings = ((one, store.add_settings(key, one.name, one.texts(), on_wait)) for one in need.settings)
    return Prepared(need, built, settings=_distinct(Beside(one, *added) for one, added in settings))


def _distinct(settings: Iterator[Beside]) -> tuple[Beside, ...]:
    """What has the same content once: groups of several GPUs or studies may have equal sizes."""
    by_path: dict[Path, Beside] = {}
    for one in settings:
        by_path.setdefault(one.path, one)
    return tuple(by_path.values())
