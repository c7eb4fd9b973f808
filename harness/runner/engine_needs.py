"""Which engine and settings serve each case of a plan, and why others are served by none; nothing is built here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from harness.backends.base import BackendFacts
from harness.engines.llm_fields import check_version
from harness.engines.manifest import WeightsMode, engine_variant
from harness.engines.needs import EngineNeed, EngineOptions, Needs, merged, study_needs
from harness.engines.settings import Settings
from harness.hardware import match_device_name
from harness.lint import Settings as LintSettings
from harness.results.record import Status
from harness.runner.plan import Plan, Step
from harness.spec.case import Case
from harness.spec.workload import Serve

#: Levels at which engines are loaded, and single layers of them run.
MODEL, LAYER = "model", "layer"


@dataclass(frozen=True, slots=True)
class EngineAsk:
    """Which engines a run is to load, as far as the user says so. Paths are whole, so that they can be kept."""

    store: str | None = None
    """None: `engines` in the run folder."""
    version: str = "auto"
    """TensorRT-LLM that settings are written for; `auto` is the one that is installed."""
    weights: WeightsMode = "none"
    moe_backend: str | None = None
    architecture: str | None = None
    tuner: str | None = None
    """Folder of the autotuner's caches; None: `autotuner` in the run folder."""

    @property
    def told(self) -> list[str]:
        """What of it decides the numbers, where it is not the usual: `moe_backend TRTLLM`."""
        usual = EngineAsk()
        named = ((name, getattr(self, name)) for name in ("version", "weights", "moe_backend", "architecture"))
        return [f"{name} {value}" for name, value in named if value != getattr(usual, name)]


@dataclass(frozen=True, slots=True)
class Served:
    """The engine and the settings of one case."""

    need: EngineNeed
    settings: Settings


@dataclass(slots=True)
class Assigned:
    """Every step that will be asked, with what serves it or why nothing does."""

    plan: Plan
    """Judged for the version; what fits its GPU in no company is rejected."""
    needs: Needs
    served: dict[int, Served] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """Steps that are unsupported here, each with the reason."""


def version_of(ask: EngineAsk, facts: BackendFacts) -> str:
    """The version that settings are written for. Raises UsageError where nothing is known of it."""
    installed = str(facts.details["version"]).partition("+")[0]  # without a local build's own part
    return check_version(installed if ask.version == "auto" else ask.version)


def assign(plan: Plan, ask: EngineAsk, facts: BackendFacts) -> Assigned:
    """Say what serves each step on the machine that `facts` tells of. Raises UsageError for a version that is none."""
    version = version_of(ask, facts)
    plan = plan.judged_for(version, LintSettings(moe_backend=ask.moe_backend))
    options = EngineOptions(version, ask.architecture, ask.weights, moe_backend=ask.moe_backend)
    refused = {step.number: why for step in plan.steps if step.will_run and (why := _cannot(step, facts))}
    wanted: dict[tuple[str, str], list[Case]] = {}
    for step in plan.whole or plan.steps:
        if step.will_run and not _cannot(step, facts):
            wanted.setdefault((step.planned.study, step.planned.level), []).append(step.planned.case)
    needs = {key: study_needs(cases, options, whole_model=key[1] == MODEL) for key, cases in wanted.items()}
    served, rejected = dict[int, Served](), dict[int, str]()
    for step in plan.steps:
        if step.number in refused or not step.will_run:
            continue
        found = _serve(step, needs[step.planned.study, step.planned.level])
        if isinstance(found, Served):
            served[step.number] = found
        else:
            (rejected if found.status == "rejected" else refused)[step.number] = found.reason
    steps = tuple(_rejected(step, rejected) for step in plan.steps)
    return Assigned(replace(plan, steps=steps), merged(list(needs.values())), served, refused)


@dataclass(frozen=True, slots=True)
class _Unserved:
    status: Status
    reason: str


def _cannot(step: Step, facts: BackendFacts) -> str:
    """Why no engine would help here, or nothing."""
    planned = step.planned
    if planned.level not in {MODEL, LAYER} or isinstance(planned.case.workload, Serve):
        asked = "serving" if isinstance(planned.case.workload, Serve) else f"level {planned.level}"
        return f"TensorRT-LLM answers prefill and decode at levels layer and model, not {asked}; add --level layer"
    case, here = planned.case, match_device_name(facts.device)
    if here is None or here.key != case.system:
        return f"this machine has {facts.device}{f' ({here.key})' if here else ''}, and the case asks for {case.system}"
    gpus = int(facts.details["gpus"])
    if planned.level == MODEL and case.parallelism.world_size > gpus:
        return f"the case needs {case.parallelism.world_size} GPUs, and here are {gpus}"
    return ""


def _serve(step: Step, needs: Needs) -> Served | _Unserved:
    case = step.planned.case
    variant = engine_variant(case.variant)
    for need in needs.engines:
        if engine_variant(need.variant) == variant:
            for settings in need.settings:
                if settings.group.serves(case):
                    return Served(need, settings)
    for other, verdict in needs.too_large:
        if other == case:
            return _Unserved("rejected", f"memory: {verdict.text}")
    reasons = (reason for other, reason in needs.unserved if other == case)
    return _Unserved("unsupported", next(reasons, "no settings are made for this case"))


def _rejected(step: Step, reasons: Mapping[int, str]) -> Step:
    return replace(step, rejection=reasons[step.number]) if step.number in reasons else step


def engines_of(needs: Needs, served: Iterable[Served]) -> list[EngineNeed]:
    """Of all engines needed those that serve these, in order."""
    keys = {one.need.spec.key for one in served}
    return [need for need in needs.engines if need.spec.key in keys]
